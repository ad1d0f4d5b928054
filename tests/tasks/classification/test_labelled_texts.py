"""The way of labelled texts to the model, and of its predictions into files."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bert_training.tasks.classification import glue, labelled_texts
from bert_training.tasks.classification.sources import load_data
from tests.helpers.official_files import glue_arguments, own
from tokenization import build_tokenizer
from tokenization.errors import UserError


def test_features_of_a_pair_worked_by_hand():
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "he", "said", "the", "pie", "is"]
    tokenizer = build_tokenizer(vocab)
    examples = labelled_texts.Examples(
        (["He said"], ["the pie is"]), [1], ["0"], str, {}, labelled_texts.Columns(("a", "b"), "c", None)
    )
    data = labelled_texts.ClassificationData(
        "mrpc", glue.GLUE_TASKS["mrpc"], {"train": examples, "test": replace(examples, labels=None)}
    )
    features = labelled_texts.features(data, tokenizer, max_length=128)
    assert {name: [*map(list, rows)] for name, rows in features["train"].columns.items() if name != "labels"} == {
        "input_ids": [[2, 5, 6, 3, 7, 8, 9, 3]],
        "token_type_ids": [[0, 0, 0, 0, 1, 1, 1, 1]],
    }
    assert features["train"].columns["labels"] == [1]
    assert "labels" not in features["test"].columns
    short = labelled_texts.features(data, tokenizer, max_length=7)["train"].columns
    assert [*map(list, short["input_ids"])] == [[2, 5, 6, 3, 7, 8, 3]]  # The longer text loses its end.


@pytest.mark.parametrize(
    ("labels", "new", "given", "expected"),
    [
        ("abc", "ab", {"calibrate": True, "class_weights": "balanced", "label_token": "last"}, ""),
        ("123", "12", {"calibrate": True}, "--calibrate is for one class a text, and these labels are scores"),
        ("123", "12", {"class_weights": "balanced"}, "--class_weights is for classes, and these labels are scores"),
        ("123", "12", {"label_token": "last"}, "--label_token last: expected classes, got scores (a regression)"),
        ("abc", "", {"calibrate": True}, "--calibrate needs labelled data on which the temperature is found; give"),
    ],
)
def test_flags_that_the_labels_contradict_are_refused_together(tmp_path, labels, new, given, expected):
    kind = {"problem_type": "regression"} if labels == "123" else {}
    rows = [f"film {row},{labels[row % 3]}\n" for row in range(9)]
    train = own(tmp_path, "text,label\n" + "".join(rows), "own.csv")
    valid = own(tmp_path, "text,label\n" + "".join(f"good,{label}\n" for label in new or "abc"), "valid.csv")
    data = load_data(glue_arguments(train_file=train, validation_file=valid, **kind))
    if not new:
        data.splits["test"] = data.splits.pop("validation")
    asked = SimpleNamespace(**{"calibrate": False, "class_weights": None, "label_token": "cls"} | given)
    if not expected:
        labelled_texts.check_flags(asked, data)
        return
    with pytest.raises(UserError, match=re.escape(expected)) as caught:
        labelled_texts.check_flags(asked, data)
    if labels == "123":  # another mistake is in the same error
        asked.label_token = "bilstm"
        with pytest.raises(UserError, match=re.escape("--label_token bilstm: expected classes, got scores")) as both:
            labelled_texts.check_flags(asked, data)
        assert given.get("label_token") or str(caught.value) in str(both.value)
