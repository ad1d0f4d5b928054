"""Several labels a text: what tables hold, the thresholds and the scores, against scikit-learn."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch.nn import functional as F
from transformers import BertConfig

from bert_training.engine.batches import Features
from bert_training.engine.loop import labelled_items
from bert_training.tasks.classification.multi_label_scores import (
    find_threshold,
    find_thresholds,
    probabilities,
    score_of_constants,
    score_several,
    store_thresholds,
    stored_thresholds,
)
from bert_training.tasks.classification.sources import load_data
from bert_training.tasks.classification.trained_for import TrainedFor
from modeling_bert_repro.losses import classification_loss
from tests.helpers.official_files import glue_arguments, glue_error, own

TEXTS = ("the red house", "the old king", "the small river", "the letter")
CELLS = {"b|a": ["b", "a"], "a": ["a"], "": [], "c": ["c"]}  # as in a table, and as a list
HOT = "text,a,b,c\n" + "".join(f"{text},{hot}\n" for text, hot in zip(TEXTS, ("1,1,0", "1,0,0", "0,0,0", "0,0,1")))
ROWS = [(1.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 1.0)]


def listed(labels) -> str:
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in zip(TEXTS, labels))


def piped(labels) -> str:
    return "text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(TEXTS, labels))


def both(path: str, **flags):
    return load_data(glue_arguments(train_file=path, validation_file=path, **flags))


def wrong(path: str, **flags) -> str:
    return glue_error(train_file=path, validation_file=path, **flags)


@pytest.mark.parametrize(
    ("name", "text", "flags"),
    [
        ("own.jsonl", listed(CELLS.values()), {}),
        ("own.csv", piped(CELLS), {"label_separator": "|"}),
        ("own.csv", HOT, {"label_column": ["a", "b", "c"]}),
        ("own.csv", HOT.replace("1", "true").replace("0", "False"), {"label_column": ["a", "b", "c"]}),
    ],
)
def test_three_spellings_of_the_same_labels(tmp_path, name, text, flags):
    data = both(own(tmp_path, text, name), **flags)
    assert (data.task.labels, data.problem_type) == (("a", "b", "c"), "multi_label_classification")
    assert data.splits["train"].labels == ROWS and data.texts_per_example == 1
    assert "texts without labels: 1 of 4" in data.summary() and "labels, several a text: a, b, c" in data.summary()


def test_lists_of_one_label_each_are_one_label_a_text(tmp_path):
    """As doccano exports a classification."""
    train, dev, new = (own(tmp_path, listed([["a"], ["b"], ["a"], ["c"]]), f"{name}.jsonl") for name in "tdn")
    hidden = own(tmp_path, listed([[], [], [], []]), "hidden.jsonl")
    data = load_data(glue_arguments(train_file=train, validation_file=dev, test_file=new))
    assert (data.task.labels, data.problem_type) == (("a", "b", "c"), "single_label_classification")
    assert {tuple(part.labels) for part in data.splits.values()} == {(0, 1, 0, 2)}
    data = load_data(glue_arguments(train_file=train, validation_file=dev, test_file=hidden))
    assert data.splits["test"].labels is None
    assert both(train, problem_type="single_label").task.labels == ("a", "b", "c")
    assert both(own(tmp_path, listed([[3], [1], [3], [1]]), "n.jsonl")).task.labels == ("1", "3")
    one = TrainedFor(("c", "a", "b"), 3)
    assert load_data(glue_arguments(validation_file=dev), one.names, one).splits["validation"].labels == [1, 2, 1, 0]
    # A flag, other rows or the model say that a text may have several.
    assert both(train, problem_type="multi_label").splits["train"].labels[0] == (1, 0, 0)
    assert both(own(tmp_path, listed([["a"], ["b"], [], ["c"]]), "none.jsonl")).task.several_labels
    several = replace(one, several_labels=True)
    data = load_data(glue_arguments(validation_file=dev), one.names, several)
    assert data.splits["validation"].labels[0] == (0, 1, 0)
    told = glue_error(train_file=train, validation_file=own(tmp_path, listed(CELLS.values()), "more.jsonl"))
    assert "more.jsonl, row 1: expected one label, as the training data, the model or --problem_type says" in told


LISTS = [["a"], ["b"], ["a"], ["b"]]
SEVERAL = {"label_separator": "|"}
NO_LABEL = "expected a word or a number as label, without spaces around it, tabs and line ends, or several of them"


@pytest.mark.parametrize(
    ("name", "text", "flags", "expected"),
    [
        ("x.jsonl", listed([["a"], ["b", None]] * 2), {}, f"row 2: {NO_LABEL}, each once; got ['b', '']"),
        ("x.jsonl", listed([[0, 1, 0]] * 4), {}, "or columns of 0 and 1, all of them named with --label_column"),
        ("x.jsonl", listed([[]] * 4), {}, "expected at least two labels and"),
        ("x.jsonl", listed([["a", "b"], ["nan"]] * 2), {}, "row 2: expected a label, got 'nan'; fill it in, or leave"),
        ("x.jsonl", listed([["a"]] * 4), {}, "this and all other training examples (4) have the label 'a'"),
        ("x.jsonl", listed([["a|b", "d"], ["c"]] * 2), {"test_file": "x.jsonl"}, "line ends and '|', because"),
        ("x.jsonl", listed(LISTS), SEVERAL, "with --label_separator '|', some cell with several; got one at most"),
        ("x.jsonl", listed([["a", "b"], ["b"]] * 2), {"problem_type": "single_label"}, "row 1: expected one label, as"),
        ("x.csv", piped(["a|b", "a", "b|", "c"]), SEVERAL, f"row 3: {NO_LABEL}, each once; got ['b', '']"),
        ("x.csv", piped(["a;b", "a", "b", "c"]), SEVERAL, "got one at most in each cell, such as 'a;b'; name what"),
        ("x.csv", piped("abab"), {"problem_type": "multi_label"}, "row 1: expected a list of labels, as the training"),
        ("x.csv", piped(["a|b", "a", "c", "c"]), {}, "the label 'a|b' may be one class or the labels 'a and b'"),
        ("x.csv", HOT.replace("1,1,0", "1,2,0"), {"label_column": ["a", "b"]}, "row 1: expected 0 or 1, or false or"),
    ],
)  # fmt: skip
def test_what_is_no_such_table_is_refused(tmp_path, name, text, flags, expected):
    path = own(tmp_path, text, name)
    assert expected in wrong(path, **flags | ({"test_file": path} if "test_file" in flags else {}))


def test_a_label_of_the_validation_data_alone_is_refused(tmp_path):
    train, dev = own(tmp_path, piped(CELLS)), own(tmp_path, piped(["a", "d|a", "b", "c"]), "dev.csv")
    train = own(tmp_path, piped(CELLS), "train.csv")
    told = glue_error(train_file=train, validation_file=dev, label_separator="|")
    assert "dev.csv, row 2: expected a label out of a, b, c; got ('d', 'a'); correct it, or train with examples" in told


def test_classes_that_only_look_alike_are_one_class_with_a_flag_or_the_names_of_the_model(tmp_path):
    path = own(tmp_path, piped(["a|b", "a", "c", "c"]), "x.csv")
    assert both(path, problem_type="single_label").task.labels == ("a", "a|b", "c")
    trained = TrainedFor(names=("c", "a", "a|b"))
    assert load_data(glue_arguments(train_file=path, validation_file=path), None, trained).task.labels == trained.names
    plain = own(tmp_path, piped(['"Smith, Ann"', '"Jones, Bo"'] * 2), "y.csv")
    assert both(plain).task.labels == ("Jones, Bo", "Smith, Ann")


def test_without_training_the_model_says_how_labels_are_spelled(tmp_path):
    model = TrainedFor(("c", "a", "b"), 3, several_labels=True, texts=1, label_column="label", label_separator="|")
    path = own(tmp_path, piped(CELLS), "x.csv")
    data = load_data(glue_arguments(validation_file=path, test_file=path), None, model)
    assert data.splits["test"].labels == data.splits["validation"].labels == [(c, a, b) for a, b, c in ROWS]
    hidden = own(tmp_path, piped(["", "?", "-1", ""]), "new.csv")
    assert load_data(glue_arguments(test_file=hidden), None, model).splits["test"].labels is None
    other = own(tmp_path, piped(["d", "e|d", "d", ""]), "other.csv")
    data = load_data(glue_arguments(test_file=other), None, model)
    assert data.splits["test"].labels is None and "the predictions are not scored" in data.summary()
    mixed = own(tmp_path, piped(["a", "e|d", "b", ""]), "mixed.csv")
    with pytest.raises(ValueError, match=r"mixed.csv, row 2: expected a label out of c, a, b; got \('e', 'd'\)"):
        load_data(glue_arguments(test_file=mixed), None, model)
    lists = own(tmp_path, listed(CELLS.values()), "lists.jsonl")
    data = load_data(glue_arguments(validation_file=lists, test_file=lists), None, model)
    assert data.splits["test"].labels == data.splits["validation"].labels == [(c, a, b) for a, b, c in ROWS]
    unnamed = TrainedFor(None, 3, several_labels=True)
    numbers = own(tmp_path, listed([[0, 1], [2], [], [1]]), "n.jsonl")
    data = load_data(glue_arguments(validation_file=numbers), None, unnamed)
    assert data.task.labels == ("LABEL_0", "LABEL_1", "LABEL_2") and data.splits["validation"].labels[0] == (1, 1, 0)
    hot = TrainedFor(("a", "b", "c"), 3, several_labels=True, hot_columns=("a", "b", "c"))
    path = own(tmp_path, HOT, "hot.csv")
    assert load_data(glue_arguments(validation_file=path), None, hot).splits["validation"].labels == ROWS
    with pytest.raises(ValueError, match=r"labels a, b, c, expected a column of 0 and 1 for each, got a, c; na"):
        load_data(glue_arguments(validation_file=path, label_column=["a", "c"]), None, hot)
    one = TrainedFor(("a", "b"), 2)
    with pytest.raises(ValueError, match="the flags ask for multi_label, and the model was trained for single_label"):
        load_data(glue_arguments(validation_file=mixed, label_separator="|"), None, one)
    with pytest.raises(ValueError, match="the flags ask for single_label, and the model was trained for multi_label"):
        load_data(glue_arguments(validation_file=path, problem_type="single_label"), None, hot)


def test_the_hub_has_lists_of_named_classes(monkeypatch):
    import datasets

    names = datasets.ClassLabel(names=["joy", "anger", "none"])
    features = datasets.Features({"text": datasets.Value("string"), "labels": datasets.List(names)})
    rows = datasets.Dataset.from_dict({"text": list(TEXTS), "labels": [[0], [1, 0], [], [1]]}, features=features)
    hub = datasets.DatasetDict({"train": rows, "validation": rows})
    monkeypatch.setattr(datasets, "load_dataset", lambda *given: hub)
    data = load_data(glue_arguments(dataset_name="x/y"))
    assert data.task.labels == ("joy", "anger", "none") and data.splits["train"].labels[1] == (1, 1, 0)
    assert "no text has the label none; the model can only learn to give it to none" in data.summary()


# --- The loss ------------------------------------------------------------------------------------------------


def test_the_loss_of_micro_batches_adds_up_to_that_of_torch():
    generator = np.random.default_rng(0)
    labels = (generator.random((7, 3)) < 0.4).astype(np.float32)
    rows = [[2] * int(length) for length in generator.integers(1, 9, 7)]
    features = Features({"input_ids": rows, "token_type_ids": rows, "labels": labels}, 0)
    whole, parts = features.collate(range(7)), [features.collate(part) for part in ([0, 1, 2, 3, 4], [5, 6])]
    assert torch.equal(whole["labels"], torch.from_numpy(labels))
    logits = torch.from_numpy(generator.normal(size=(7, 3)))
    count = sum(labelled_items(part) for part in parts)
    assert count == 21
    losses = [
        classification_loss(own, part["labels"], "multi_label_classification", count)
        for own, part in zip(logits.split([5, 2]), parts)
    ]
    expected = F.binary_cross_entropy_with_logits(logits, whole["labels"].double())
    torch.testing.assert_close(sum(losses), expected, rtol=0, atol=1e-12)


# --- Thresholds and scores -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_threshold_has_the_best_f1_of_all(seed):
    generator = np.random.default_rng(seed)
    shares = generator.integers(0, 6, 9) / 5 if seed % 2 else generator.random(9)
    has_label = generator.random(9) < 0.4
    has_label[0] = True
    found = find_threshold(shares, has_label)
    values = np.unique(shares)
    every = np.unique([*values, *(values[1:] + values[:-1]) / 2, 0.5, values[0] / 2])
    scores = {float(one): metrics.f1_score(has_label, shares >= one, zero_division=0.0) for one in every}
    assert metrics.f1_score(has_label, shares >= found) == max(scores.values())
    if scores[0.5] == max(scores.values()):
        assert found == 0.5


def test_ties_between_thresholds_have_a_fixed_order():
    assert find_threshold(np.array([0.9, 0.6, 0.3]), np.array([True, True, False])) == 0.5
    # Two, of one text and of all three, have an F1 of 2 / 3 and 2 / 3; 0.75 is closer to 0.5 than 0.05.
    assert find_threshold(np.array([0.9, 0.6, 0.55, 0.1]), np.array([True, False, False, True])) == 0.75
    # As close are 0.25 and 0.75: the higher one.
    assert find_threshold(np.array([1.0, 0.5, 0.5, 0.0]), np.array([True, False, False, True])) == 0.75
    assert find_threshold(np.array([0.9, 0.1]), np.array([False, False])) == 0.5
    neighbours = np.array([np.nextafter(0.8, 1), 0.8, 0.8])
    assert find_threshold(neighbours, np.array([True, False, False])) == neighbours[0]


def test_thresholds_are_stored_with_the_model():
    config = BertConfig(id2label={0: "a", 1: "b"})
    assert stored_thresholds(config) is None
    store_thresholds(config, [0.25, 1])
    assert config.fine_tuning == {"thresholds": [0.25, 1.0]} and stored_thresholds(config) == [0.25, 1.0]


def test_scores_are_those_of_scikit_learn():
    generator = np.random.default_rng(1)
    logits, labels = generator.normal(size=(30, 3)).astype(np.float32), generator.random((30, 3)) < (0.5, 0.2, 0.0)
    thresholds = find_thresholds(logits, labels)
    found = score_several(logits, labels, thresholds, ["a", "b", "none"])
    by_label, shares = found.pop("by_class"), probabilities(logits)
    np.testing.assert_allclose(shares, torch.from_numpy(logits).double().sigmoid().numpy(), rtol=1e-12)
    given = shares >= thresholds
    precision = [metrics.average_precision_score(labels[:, place], shares[:, place]) for place in range(2)]
    assert found == pytest.approx({
        "subset_accuracy": metrics.accuracy_score(labels, given),
        "average_precision_micro": metrics.average_precision_score(labels, shares, average="micro"),
        "average_precision_macro": np.mean(precision),
        "f1_macro": metrics.f1_score(labels, given, average="macro", zero_division=0),
        "f1_micro": metrics.f1_score(labels, given, average="micro"),
    })  # fmt: skip
    report = metrics.classification_report(labels, given, output_dict=True, zero_division=0, target_names=[*by_label])
    for name, average, threshold in zip(by_label, (*precision, None), thresholds):
        expected = {"precision": report[name]["precision"], "recall": report[name]["recall"]}
        expected |= {"f1": report[name]["f1-score"], "support": report[name]["support"]}
        assert by_label[name] == expected | {"average_precision": average, "threshold": threshold}
    assert thresholds[2] == 0.5
    constant = score_of_constants(labels)
    assert constant["f1_micro"] == metrics.f1_score(labels, np.ones_like(labels), average="micro")
    assert constant["average_precision_micro"] == pytest.approx(labels.mean())
