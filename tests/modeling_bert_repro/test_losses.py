"""The losses: exact under accumulation, worked by hand, with sparse prediction, and in transformers' Trainer."""

import math

import pytest
import torch
import transformers
from transformers.utils.generic import find_labels

import modeling_bert_repro
from modeling_bert_repro import losses
from modeling_bert_repro.losses import classification_loss, cross_entropy
from tests.helpers.bert_pairs import CLASSES, assert_same, gradients, make_inputs, make_labels, ours

HEADS_WITH_SPARSE = pytest.mark.parametrize("name", ["BertForPreTraining", "BertForMaskedLM"])


def count_of(name: str, labels: dict) -> dict[str, int]:
    """The numbers of labelled items, tokens or examples, in a whole optimiser step."""
    if name == "BertForPreTraining":
        return {
            "num_items_in_batch": int((labels["labels"] != -100).sum()),
            "num_sequences_in_batch": len(labels["next_sentence_label"]),
        }
    items = labels.get("labels", labels.get("end_positions"))
    return {"num_items_in_batch": int((items != -100).sum())}


def rows(batch: dict, start: int, stop: int) -> dict:
    return {key: tensor[start:stop] for key, tensor in batch.items()}


@pytest.mark.parametrize("name", CLASSES)
def test_trainer_finds_the_labels_of_transformers_in_our_arguments(name):
    """It takes every argument with "label" in its name for one that a batch must have."""
    assert find_labels(getattr(modeling_bert_repro, name)) == find_labels(getattr(transformers, name))


@pytest.mark.parametrize("name", CLASSES[1:])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_one_batch_equals_its_micro_batches(name, as_tensor):
    """1 x 16, 4 x 4 and 8 x 2 rows give the same loss and gradient, although the labels are unevenly distributed."""
    model = ours(name)
    inputs = make_inputs(name, batch=16)
    labels = make_labels(name, inputs)
    if name == "BertForQuestionAnswering":
        labels["start_positions"].clamp_(max=8)
    counts = count_of(name, labels)
    if as_tensor:
        counts = {key: torch.tensor(value) for key, value in counts.items()}
    whole = model(**inputs, **labels).loss
    expected = gradients(model, whole)
    for size in (16, 4, 2):
        parts = [
            model(**rows(inputs, i, i + size), **rows(labels, i, i + size), **counts).loss for i in range(0, 16, size)
        ]
        torch.testing.assert_close(sum(parts), whole, rtol=0, atol=1e-10)
        assert_same(gradients(model, sum(parts)), expected)


def test_pretraining_without_a_sequence_count_weighs_nsp_by_labelled_tokens():
    name = "BertForPreTraining"
    model = ours(name)
    inputs = make_inputs(name, batch=4)
    labels = make_labels(name, inputs)
    labels["labels"] = torch.full((4, 9), -100)
    labels["labels"][0, :3], labels["labels"][2, 4] = 7, 9  # 3 labelled tokens in the first half, 1 in the second
    halves = [(rows(inputs, i, i + 2), rows(labels, i, i + 2)) for i in (0, 2)]
    means = [model(**i, **la).nsp_loss for i, la in halves]
    weighted = [model(**i, **la, num_items_in_batch=4).nsp_loss for i, la in halves]
    torch.testing.assert_close(weighted[0], means[0] * 3 / 4)
    torch.testing.assert_close(weighted[1], means[1] * 1 / 4)


def test_cross_entropy_worked_by_hand():
    """With equal logits for 4 classes, an item costs ln 4. The label -100 costs nothing. Half precision is summed in
    float32.
    """
    logits = torch.zeros(5, 4)
    labels = torch.tensor([0, 3, -100, -100, 1])
    assert cross_entropy(logits, labels).item() == pytest.approx(math.log(4))
    assert cross_entropy(logits, labels, 6).item() == pytest.approx(math.log(4) / 2)
    assert cross_entropy(logits, labels.int(), torch.tensor(3)).item() == pytest.approx(math.log(4))
    many = cross_entropy(torch.zeros(5000, 4, dtype=torch.bfloat16), torch.zeros(5000, dtype=torch.long))
    assert many.dtype == torch.float32
    assert many.item() == pytest.approx(math.log(4), rel=1e-5)


@pytest.mark.parametrize("block", [1, 20, 10**6])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_large_cross_entropy_is_that_of_torch(block, dtype, monkeypatch):
    """Value and gradient are those of torch, in blocks of one row, of two rows and of all rows, with ignored labels
    and with scores that differ a lot.
    """
    monkeypatch.setattr(losses, "BLOCK", block)
    generator = torch.Generator().manual_seed(0)
    scores = (40 * torch.randn(7, 10, generator=generator, dtype=torch.float64)).to(dtype)
    labels = torch.tensor([3, -100, 0, 9, 9, -100, 1])
    found = []
    for large in (0, 10**9):
        monkeypatch.setattr(losses, "LARGE", large)
        logits = scores.clone().requires_grad_()
        loss = cross_entropy(logits, labels, 3)
        assert loss.grad_fn.next_functions[0][0].name().startswith("LargeCrossEntropy") is (large == 0)
        (slope,) = torch.autograd.grad(loss * 2, logits)
        assert slope.dtype == dtype and loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        found.append((loss, slope))
    torch.testing.assert_close(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])
    assert (found[0][1][[1, 5]] == 0).all()
    monkeypatch.setattr(losses, "LARGE", 0)
    nothing = scores.clone().requires_grad_()
    cross_entropy(nothing, torch.full((7,), -100)).backward()
    assert (nothing.grad == 0).all()
    with pytest.raises(RuntimeError, match="index 10 is out of bounds"):
        cross_entropy(scores, labels.clamp(min=10))


@pytest.mark.parametrize("size", [12, 6, 4, 3, 1])
def test_weights_are_those_of_torch_however_the_batch_is_split(size):
    """The sum of the weights may be less than 1, and a micro-batch may have no labels."""
    torch.manual_seed(0)
    logits = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 2, 1, -100, 2, 2, -100, -100, -100, 0, 1, 2])
    of_class = torch.tensor([0.05, 0.3, 0.01], dtype=torch.float64)
    expected = torch.nn.functional.cross_entropy(logits, labels, of_class)
    weights = of_class[labels.clamp(min=0)]
    total = weights[labels != -100].sum()
    assert total < 1
    parts = zip(logits.split(size), labels.split(size), weights.split(size))
    loss = sum(cross_entropy(one, label, total, weights=weight) for one, label, weight in parts)
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(cross_entropy(logits, labels, weights=weights), expected, rtol=0, atol=1e-12)
    (gradient,), (wanted,) = torch.autograd.grad(loss, logits), torch.autograd.grad(expected, logits)
    torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-12)


def test_regression_and_multi_label_losses_worked_by_hand():
    squares = classification_loss(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 5]), "regression")
    assert squares.item() == pytest.approx((1 + 4) / 2)
    labels = torch.tensor([[1.0, 0, 1], [0, 0, 0]])
    binary = classification_loss(torch.zeros(2, 3), labels, "multi_label_classification", 12)
    assert binary.item() == pytest.approx(6 * math.log(2) / 12)


@pytest.mark.parametrize("counts", [{}, {"num_items_in_batch": 0}, {"num_items_in_batch": torch.tensor(0)}])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_batch_without_labels_has_loss_zero_and_no_nan_gradient(counts, sparse):
    model = ours("BertForMaskedLM")
    labels = torch.full((4, 9), -100)
    loss = model(**make_inputs("BertForMaskedLM"), labels=labels, sparse_prediction=sparse, **counts).loss
    assert loss.item() == 0
    for name, gradient in gradients(model, loss).items():
        assert gradient is not None and not gradient.any(), name


def test_question_answering_ignores_positions_outside_the_window():
    model = ours("BertForQuestionAnswering")
    inputs = make_inputs("BertForQuestionAnswering")
    outside = torch.tensor([2, 9, 50, 4])
    loss = model(**inputs, start_positions=outside, end_positions=outside).loss
    kept = {key: value[[0, 3]] for key, value in inputs.items()}
    expected = model(**kept, start_positions=outside[[0, 3]], end_positions=outside[[0, 3]]).loss
    torch.testing.assert_close(loss, expected)


@HEADS_WITH_SPARSE
@pytest.mark.parametrize("by_config", [False, True])
def test_sparse_prediction_gives_the_dense_loss_and_gradients(name, by_config):
    model = ours(name)
    inputs = make_inputs(name)
    labels = make_labels(name, inputs)
    dense = model(**inputs, **labels)
    expected = gradients(model, dense.loss)
    model.config.sparse_prediction = by_config
    sparse = model(**inputs, **labels, sparse_prediction=None if by_config else True)
    torch.testing.assert_close(sparse.loss, dense.loss, rtol=0, atol=1e-12)
    assert_same(gradients(model, sparse.loss), expected)
    logits = "prediction_logits" if name == "BertForPreTraining" else "logits"
    torch.testing.assert_close(sparse[logits], dense[logits][labels["labels"] != -100])
    assert model(**inputs)[logits].shape == (4, 9, 61), "without labels there is nothing to select"
    if by_config:
        assert model(**inputs, **labels, sparse_prediction=False)[logits].shape == (4, 9, 61)


@HEADS_WITH_SPARSE
@pytest.mark.parametrize("shape", [(4, 8), (1, 9), (36,)])
def test_sparse_labels_of_another_shape_are_refused(name, shape):
    """Their positions would be others of the inputs."""
    labels = torch.full(shape, -100)
    labels[0] = 3
    with pytest.raises(ValueError, match=r"expected labels of shape \(4, 9\), like the inputs, got "):
        ours(name)(**make_inputs(name), labels=labels, sparse_prediction=True)


@pytest.mark.parametrize(
    "labels, problem_type, message",
    [
        (torch.zeros(4, 2), "regression", r"expected a label for each logit, \(4, 3\), got labels \(4, 2\)"),
        (torch.zeros(4), "multi_label_classification", r"got labels \(4,\)"),
        (torch.zeros(4), "ranking", "expected config.problem_type to be one of .* got 'ranking'"),
    ],
)
def test_bad_labels_are_named(labels, problem_type, message):
    with pytest.raises(ValueError, match=message):
        classification_loss(torch.zeros(4, 3), labels, problem_type)


def test_pretraining_losses_are_reported_apart_and_alone():
    name = "BertForPreTraining"
    model = ours(name)
    inputs = make_inputs(name)
    labels = make_labels(name, inputs)
    both = model(**inputs, **labels)
    torch.testing.assert_close(both.loss, both.mlm_loss + both.nsp_loss)
    assert list(both) == ["loss", "prediction_logits", "seq_relationship_logits", "mlm_loss", "nsp_loss"]
    mlm = model(**inputs, labels=labels["labels"])
    nsp = model(**inputs, next_sentence_label=labels["next_sentence_label"], num_items_in_batch=4)
    assert mlm.nsp_loss is None and nsp.mlm_loss is None
    torch.testing.assert_close(mlm.loss, both.mlm_loss)
    torch.testing.assert_close(nsp.loss, both.nsp_loss)
    assert model(**inputs).loss is None
