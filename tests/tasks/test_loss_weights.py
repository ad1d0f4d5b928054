"""bert_training/tasks/task_data.py, and a training with weights: however a batch is split, torch's weighted mean."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional as F
from transformers.modeling_outputs import SequenceClassifierOutput

import modeling_bert_repro
from bert_training.engine.batches import Features, step_batches
from bert_training.engine.checkpoint import UNKNOWN, TrainingState
from bert_training.engine.loop import labelled_items, training_steps
from bert_training.engine.predict import predict
from bert_training.networks.control import control_of, with_exact_losses
from bert_training.tasks.classification.evaluation import with_labels_at_the_end
from bert_training.tasks.classification.labelled_texts import ClassificationData, Examples, weighted
from bert_training.tasks.task_data import class_weights_of, count_labels, loss_arguments, with_loss_weights
from modeling_bert_repro.losses import classification_loss
from tests.helpers.small_networks import NO_DROPOUT, small_config
from tokenization.errors import UserError

NAMES = ("never", "often", "seldom")
LABELS = [1, 1, 2, 1, 0, 1, 1, 2, 1, 1, 1, 0]
ROWS = [0.5, 2.0, 1.0, 0.0, 3.0, 1.0, 0.25, 1.0, 1.0, 2.0, 1.0, 0.5]


def flags(**given) -> SimpleNamespace:
    return SimpleNamespace(**{"class_weights": None} | given)


def features(labels=LABELS) -> Features:
    draw = np.random.default_rng(0)
    ids = [draw.integers(5, 99, size=3 + number % 4) for number in range(len(labels))]
    return Features({"input_ids": ids, "token_type_ids": [row * 0 for row in ids], "labels": labels}, 0)


# --- The weights ------------------------------------------------------------------------------------------


def test_balanced_weights_are_those_of_scikit_learn():
    counts = count_labels(LABELS, 3)
    found = class_weights_of(flags(class_weights="balanced"), NAMES, counts, "row")
    assert list(found.values()) == pytest.approx(compute_class_weight("balanced", classes=np.arange(3), y=LABELS))
    tags = [np.array([1, -100, 1]), np.array([-100, 2])]
    found = class_weights_of(flags(class_weights="balanced"), NAMES, count_labels(tags, 3), "word", may_be_absent=True)
    assert found == {"never": 1.0, "often": 0.75, "seldom": 1.5}
    with pytest.raises(
        ValueError, match=r"no training row has the label 'never', so .*; add rows, or give the weights"
    ):
        class_weights_of(flags(class_weights="balanced"), NAMES, [0, 9, 1], "row")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"never": 3, "often": 0.5, "seldom": 1}, None),
        (
            {"never": 3, "often": 1, "seldom": 1, "new": 1},
            "a number above 0 for each of 'never', 'often', 'seldom' and no others; got 'new': 1; correct it",
        ),
        ({"never": 3, "seldom": -1}, "and no others; got 'seldom': -1, 'often': no weight; correct it"),
        ({"never": 0, "often": 1, "seldom": 1}, "and no others; got 'never': 0; correct it"),
        ({"never": 1e999, "often": 1, "seldom": 1}, "got 'never': inf"),
        ({"never": True, "often": 1, "seldom": 1}, "got 'never': True"),
        ({"never": "3", "often": 1, "seldom": 1}, "got 'never': 3"),
        ([1, 2, 3], "expected a JSON object"),
        (None, "No such file"),
    ],
)
def test_a_file_has_the_weight_of_every_class(tmp_path, content, message):
    path = tmp_path / "weights.json"
    if content is not None:
        path.write_text(json.dumps(content))
    asked = flags(class_weights=str(path))
    if message is None:
        assert class_weights_of(asked, NAMES, [1, 1, 1], "row") == content
        return
    with pytest.raises((UserError, OSError), match=message) as caught:
        class_weights_of(asked, NAMES, [1, 1, 1], "row")
    assert str(path) in str(caught.value)


def test_names_in_a_file_of_weights_are_compared_in_nfc(tmp_path):
    (path := tmp_path / "weights.json").write_text('{"e\u0301loge": 1.5, "r": 1}', encoding="utf-8")
    assert class_weights_of(flags(class_weights=str(path)), ("\u00e9loge", "r"), [1, 1], "row") == {
        "\u00e9loge": 1.5,
        "r": 1,
    }


def test_words_have_the_weights_of_their_tags():
    rows = features([np.array([1, -100, 0]), np.array([-100, -100, 2, 1])])
    assert with_loss_weights(rows, None) is rows
    batch = with_loss_weights(rows, {"never": 3.0, "often": 0.25, "seldom": 2.0}).collate([0, 1])
    assert batch["loss_weights"].tolist() == [[0.25, 0, 3, 0], [0, 0, 2, 0.25]]


def test_the_weights_of_a_row_and_of_its_class_are_multiplied():
    train = Examples((["a", "b", "c"],), [0, 1, 1], ["0", "1", "2"], str, {}, None, weights=[2.0, 0.5, 1.0]).first(2)
    task = SimpleNamespace(labels=("x", "y"), several_labels=False)
    data = ClassificationData("custom", task, {"train": train}, class_weights={"x": 1.0, "y": 3.0})
    assert weighted(data, features([0, 1])).columns["loss_weights"] == [2.0, 1.5]
    data.class_weights = None
    assert weighted(data, features([0, 1])).columns["loss_weights"] == [2.0, 0.5]


# --- The loss of a training -------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [None, ROWS])
@pytest.mark.parametrize("kind", ["cls", "last", "control", "regression"])
def test_every_split_of_a_batch_has_torchs_weighted_loss(make_run, kind, rows):
    if kind == "regression" and not rows:
        return
    torch.manual_seed(0)
    config = small_config(num_hidden_layers=1, num_labels=1 if kind == "regression" else 3, **NO_DROPOUT)
    # Their sum over all rows is below 1.
    weights = None if kind == "regression" else {"never": 0.03, "often": 0.0025, "seldom": 0.02}
    token = "Token" if kind == "last" else "Sequence"
    model = getattr(modeling_bert_repro, f"BertFor{token}Classification")(config)
    if kind == "control":
        model = control_of(model)
    labels = [label / 3 for label in LABELS] if kind == "regression" else LABELS
    plain = features(labels)
    data = with_loss_weights(plain, weights, rows)
    if kind == "last":
        data, plain = with_labels_at_the_end(data), with_labels_at_the_end(plain)
    assert loss_arguments(weights) == {}  # the weights of the rows contain them

    batch = plain.collate(range(12))
    with torch.no_grad():
        logits = model.eval()(**batch).logits
    logits = logits[batch["labels"] != -100] if kind == "last" else logits
    of_class = None if weights is None else torch.tensor([*weights.values()])
    own = torch.tensor(rows or [1.0] * 12)
    if kind == "regression":
        losses, total = F.mse_loss(logits[:, 0], torch.tensor(labels), reduction="none"), own.sum()
    else:
        target = torch.tensor(LABELS)
        losses = F.cross_entropy(logits, target, of_class, reduction="none")
        total = (own * of_class[target]).sum()
        if not rows:
            assert losses.sum() / total == pytest.approx(F.cross_entropy(logits, target, of_class).item(), rel=1e-6)
    expected = float((losses * own).sum() / total)

    for size in (12, 4, 1):
        run = make_run(per_device_train_batch_size=size, gradient_accumulation_steps=12 // size)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        state = TrainingState(model, optimizer, scheduler, total_steps=1, origin=UNKNOWN)
        batches = step_batches(data, run, 0, 1)
        step = next(training_steps(run, state, batches, max_grad_norm=0))
        assert step.loss == pytest.approx(expected, rel=1e-5)
        assert step.counts.items == pytest.approx(float(total), rel=1e-6)
        assert (step.counts.sequences, step.counts.tokens) == (12, int(plain.lengths.sum()))
    evaluated, in_training = (predict(run, model, part, 5, kind == "last")["loss"] for part in (plain, data))
    assert in_training == pytest.approx(expected, rel=1e-5)
    if kind != "regression":  # An evaluation knows no weights.
        assert evaluated == pytest.approx(log_loss(LABELS, logits.double().softmax(1)), rel=1e-5)


@pytest.mark.parametrize("rows", [None, [0.5, 2.0, 0.0, 1.0]])
def test_several_labels_have_torchs_pos_weight(rows):
    """Two parts of a batch add up to the whole, as torch computes it; the control does so in its own way."""
    torch.manual_seed(0)
    logits, labels = torch.randn(4, 3), torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 0], [0, 1, 1]])
    of_label = torch.tensor([3.0, 0.25, 2.0])
    own = torch.tensor(rows or [1.0] * 4)[:, None]
    losses = F.binary_cross_entropy_with_logits(logits, labels, pos_weight=of_label, reduction="none")
    expected = float((losses * own).sum() / (own.sum() * 3))

    def parts(find):
        return [find(slice(0, 1)), find(slice(1, 4))]

    def batch(part):
        return {"labels": labels[part], **({} if rows is None else {"loss_weights": own[part, 0]})}

    count = float(sum(map(labelled_items, parts(batch))))
    kind = "multi_label_classification"

    def ours(part):
        weights = batch(part).get("loss_weights")
        return classification_loss(logits[part], labels[part], kind, count, weights, class_weights=of_label)

    def theirs(part):
        network = SimpleNamespace(forward=lambda **_: SequenceClassifierOutput(logits=logits[part]))
        return with_exact_losses(network).forward(**batch(part), num_items_in_batch=count, class_weights=of_label).loss

    assert float(sum(parts(ours))) == pytest.approx(expected, rel=1e-6)
    assert float(sum(parts(theirs))) == pytest.approx(expected, rel=1e-6)
    weights = None if rows is None else own[:, 0]
    assert float(classification_loss(logits, labels, kind, None, weights, class_weights=of_label)) == pytest.approx(
        expected
    )
    with pytest.raises(ValueError, match="expected no class_weights, which regression cannot use"):
        classification_loss(logits, labels, "regression", class_weights=of_label)


def test_balanced_weights_of_several_labels():
    asked = flags(class_weights="balanced")
    assert class_weights_of(asked, ("a", "b"), [1, 3], "row", several_of=4) == {"a": 3.0, "b": pytest.approx(1 / 3)}
    with pytest.raises(ValueError, match="every training row has the label 'b', so there is nothing to balance"):
        class_weights_of(asked, ("a", "b"), [1, 4], "row", several_of=4)
    assert list(loss_arguments({"a": 3.0}, several_labels=True)) == ["class_weights"]


def test_items_of_several_labels_counted_by_hand():
    batch = {"labels": torch.tensor([[1.0, 0, 1], [0, 0, 0]]), "loss_weights": torch.tensor([0.5, 2.0])}
    assert labelled_items(batch) == 0.5 * 3 + 2 * 3
    tokens = {"labels": torch.tensor([[-100, 1], [0, -100]]), "loss_weights": torch.tensor([[9.0, 0.5], [2.0, 9.0]])}
    assert labelled_items(tokens) == 2.5
