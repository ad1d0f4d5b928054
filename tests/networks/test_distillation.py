"""The term of a teacher in the loss of a student: against torch, transformers' example, and by hand; exact in parts."""

import math

import pytest
import torch
from torch.distributions import Bernoulli, kl_divergence
from torch.nn import functional as F

from bert_training.networks.control import with_exact_losses
from bert_training.networks.distillation import divergence, divergence_of_labels, learn_from, teacher_term
from tests.helpers.bert_pairs import assert_same, gradients, make_inputs, ours, pair

HEADS = {
    "classes": ("BertForSequenceClassification", "single_label_classification", ("teacher_logits",)),
    "labels": ("BertForSequenceClassification", "multi_label_classification", ("teacher_logits",)),
    "score": ("BertForSequenceClassification", "regression", ("teacher_logits",)),
    "tokens": ("BertForTokenClassification", None, ("teacher_logits",)),
    "span": ("BertForQuestionAnswering", None, ("teacher_start_logits", "teacher_end_logits")),
}
KINDS = {"tokens": "classes"}
ROWS, LENGTH = 8, 9


def numbers(*shape, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2


def lesson(name: str, weights: bool = False) -> dict[str, torch.Tensor]:
    """A batch of rows of several lengths with labels, and with what a teacher says of it."""
    head, _, columns = HEADS[name]
    batch = make_inputs(head, LENGTH, ROWS)
    batch["attention_mask"] = (torch.arange(LENGTH) < torch.arange(2, 2 + ROWS)[:, None]).long()
    classes = ours(head).config.num_labels
    draw = torch.Generator().manual_seed(5)
    if name == "span":
        batch |= {side: torch.randint(0, 2, (ROWS,), generator=draw) for side in ("start_positions", "end_positions")}
        return batch | {column: numbers(ROWS, LENGTH, seed=6 + n) for n, column in enumerate(columns)}
    shape = {"tokens": (ROWS, LENGTH), "labels": (ROWS, classes), "score": (ROWS, classes)}.get(name, (ROWS,))
    labels = torch.randint(0, classes, shape, generator=draw)
    if name == "tokens":  # an uneven number of labels a row, and none in the padding
        labels = labels.masked_fill((batch["attention_mask"] == 0) | (numbers(*shape) > 1), -100)
    batch["labels"] = (labels > 1).double() if name == "labels" else labels.double() if name == "score" else labels
    batch["teacher_logits"] = numbers(*([*shape, classes] if name in ("classes", "tokens") else shape))
    if weights:
        batch["loss_weights"] = numbers(*(shape if name == "tokens" else shape[:1])).abs()
    return batch


def student(name: str, temperature=2.0, weight=0.3, control=False):
    head, problem, _ = HEADS[name]
    model = pair(head)[1] if control else ours(head)
    model.config.problem_type = problem
    if control:
        with_exact_losses(model)
    learn_from(model, KINDS.get(name, name), temperature, weight)
    return model


def count_of(batch) -> float:
    if "labels" not in batch:
        return len(batch["start_positions"])
    known = (batch["labels"] != -100).double()
    weights = batch.get("loss_weights")
    if weights is None:
        return float(known.sum())
    return float((known * weights.view(*weights.shape, *[1] * (known.dim() - weights.dim()))).sum())


def test_of_two_classes_by_hand():
    """The teacher gives 3:1 at temperature 2, the student 1:1: 4 (3/4 ln(3/2) + 1/4 ln(1/2)), and w = 1/4."""
    teacher, scores = torch.tensor([[2 * math.log(3), 0.0]]), torch.zeros(1, 2)
    expected = 4 * (0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    assert divergence(scores, teacher, 2.0).tolist() == pytest.approx([expected])
    model = student("classes", weight=0.25)
    batch = lesson("classes")
    outputs = model(**batch)
    whole = 0.75 * outputs["labels_loss"] + 0.25 * outputs["teacher_loss"]
    assert outputs.loss.item() == pytest.approx(whole.item())


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_the_term_is_that_of_torch_and_of_the_distillation_of_transformers(temperature):
    scores, teacher = numbers(7, 5), numbers(7, 5, seed=4)
    # distillation/distiller.py in the examples of transformers (DistilBERT), with its KLDivLoss("batchmean").
    theirs = torch.nn.KLDivLoss(reduction="batchmean")(
        F.log_softmax(scores / temperature, dim=-1), F.softmax(teacher / temperature, dim=-1)
    )
    assert divergence(scores, teacher, temperature).mean().item() == pytest.approx(theirs.item() * temperature**2)
    batch = {"labels": torch.zeros(7, dtype=torch.long)}
    term = teacher_term({"logits": scores}, batch, {"logits": teacher}, "classes", temperature)
    assert term.item() == pytest.approx(theirs.item() * temperature**2)
    of_labels = kl_divergence(Bernoulli(logits=teacher / temperature), Bernoulli(logits=scores / temperature))
    torch.testing.assert_close(divergence_of_labels(scores, teacher, temperature), of_labels * temperature**2)
    batch = {"labels": torch.zeros(7, 5, dtype=torch.float64)}
    term = teacher_term({"logits": scores}, batch, {"logits": teacher}, "score", temperature)
    assert term.item() == pytest.approx(F.mse_loss(scores, teacher).item())


def test_of_spans_the_term_is_that_of_the_example_over_the_real_tokens_of_each_row():
    model, batch = student("span", weight=1.0), lesson("span")
    outputs = model(**batch)
    expected = 0.0
    for row in range(ROWS):
        real = batch["attention_mask"][row].bool()
        for side in ("start_logits", "end_logits"):
            one = F.log_softmax(outputs[side][row, real] / 2, dim=-1)
            other = F.softmax(batch[f"teacher_{side}"][row, real] / 2, dim=-1)
            expected += F.kl_div(one, other, reduction="sum").item() * 2**2 / 2 / ROWS
    assert outputs.loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("control", [False, True], ids=["ours", "transformers"])
@pytest.mark.parametrize("weights", [False, True], ids=["alike", "weighted"])
@pytest.mark.parametrize("name", HEADS)
def test_a_batch_equals_its_micro_batches(name, weights, control):
    if name == "span" and weights:
        pytest.skip("spans have no weights")
    if name == "score" and control:
        pytest.skip("the scripts train on one score, and transformers' loss on several is another")
    model, batch = student(name, control=control), lesson(name, weights)
    count = torch.tensor(count_of(batch), dtype=torch.float64)
    whole = model(**batch).loss
    expected = gradients(model, whole)
    for size in (4, 1):
        parts = [
            model(**{key: value[i : i + size] for key, value in batch.items()}, num_items_in_batch=count).loss
            for i in range(0, ROWS, size)
        ]
        tolerance = 1e-5 if control else 1e-10  # the control computes its own loss in float32
        torch.testing.assert_close(sum(parts), whole, rtol=0, atol=tolerance)
        assert_same(gradients(model, sum(parts)), expected, tolerance)


@pytest.mark.parametrize("unpad", [False, True], ids=["padded", "real tokens"])
@pytest.mark.parametrize("name", ["classes", "tokens", "span"])
def test_padding_and_ignored_tokens_contribute_nothing(name, unpad):
    """Whatever a teacher says there; and longer rows of padding have the same loss."""
    model, batch = student(name), lesson(name)
    model.config.unpad_inputs = unpad
    if name == "span":
        model.config.unpad_inputs = True  # otherwise the loss of the labels contains the padding, as transformers'
    expected = model(**batch).loss
    outside = batch["labels"] == -100 if name == "tokens" else batch["attention_mask"] == 0
    for column in HEADS[name][2]:
        if batch[column].shape[:2] == outside.shape:
            batch[column] = batch[column].masked_fill(outside.view(*outside.shape, *[1] * (batch[column].dim() - 2)), 9)
    torch.testing.assert_close(model(**batch).loss, expected)
    longer = {}
    for column, values in batch.items():
        longer[column] = values
        if values.shape[1:2] == (LENGTH,):
            fill = -100 if column == "labels" else 0
            longer[column] = torch.cat([values, values.new_full((ROWS, 3, *values.shape[2:]), fill)], 1)
    torch.testing.assert_close(model(**longer).loss, expected)


def test_weights_of_labels_stay_with_the_labels():
    batch = lesson("labels")
    outputs = student("labels")(**batch, class_weights=torch.full((batch["labels"].shape[1],), 3.0))
    plain = student("labels")(**batch)
    assert outputs["teacher_loss"] == plain["teacher_loss"] and outputs["labels_loss"] > plain["labels_loss"]


def test_a_score_of_minus_100_is_learnt_from_a_teacher():
    scores, teacher = torch.zeros(2, 1), torch.tensor([[-90.0], [2.0]])
    term = teacher_term({"logits": scores}, {"labels": torch.tensor([-100.0, 1.0])}, {"logits": teacher}, "score", 1.0)
    assert term.item() == pytest.approx((90**2 + 2**2) / 2)
