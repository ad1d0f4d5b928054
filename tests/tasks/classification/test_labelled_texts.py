"""The way of labelled texts to the model, and of its predictions into files."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bert_training.tasks.classification import glue, labelled_texts
from bert_training.tasks.classification.sources import load_data
from tests.helpers.official_files import glue_arguments, own, write_task
from tokenization import build_tokenizer
from tokenization.errors import UserError

THREE_WAY = ("entailment", "neutral", "contradiction")


@pytest.mark.parametrize(
    ("task", "split", "name", "last"),
    [
        ("cola", "test", "CoLA.tsv", "1"),
        ("sst2", "test", "SST-2.tsv", "1"),
        ("mrpc", "test", "MRPC.tsv", "1"),
        ("stsb", "test", "STS-B.tsv", "5.000"),
        ("qqp", "test", "QQP.tsv", "1"),
        ("mnli", "test_matched", "MNLI-m.tsv", "contradiction"),
        ("mnli", "test_mismatched", "MNLI-mm.tsv", "contradiction"),
        ("qnli", "test", "QNLI.tsv", "not_entailment"),
        ("rte", "test", "RTE.tsv", "not_entailment"),
        ("wnli", "test", "WNLI.tsv", "1"),
        ("ax", "test", "AX.tsv", "contradiction"),
    ],
)
def test_predictions_in_the_format_of_the_server(tmp_path, task, split, name, last):
    folder = write_task(tmp_path, task, rows=2)
    data = load_data(
        glue_arguments(task_name=task, data_dir=str(folder), do_predict=True), THREE_WAY if task == "ax" else None
    )
    classes = len(data.task.labels or ["score"])
    logits = np.arange(2 * classes, dtype=float).reshape(2, classes) * 7 - 0.5
    path = labelled_texts.write_predictions(tmp_path, data, split, logits)
    assert path.name == name
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines[0] == "index\tprediction"
    assert lines[2] == f"1\t{last}"
    assert lines[3:] == [""]
    if task == "stsb":
        assert lines[1] == "0\t0.000"  # -0.5 is clipped to the range of the server.


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
    assert features["train"].columns == {
        "input_ids": [[2, 5, 6, 3, 7, 8, 9, 3]],
        "token_type_ids": [[0, 0, 0, 0, 1, 1, 1, 1]],
        "labels": [1],
    }
    assert "labels" not in features["test"].columns
    short = labelled_texts.features(data, tokenizer, max_length=7)["train"].columns
    assert short["input_ids"] == [[2, 5, 6, 3, 7, 8, 3]]  # The longer text loses its end.


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e6])
def test_predicted_scores_of_ones_own_keep_all_their_digits(tmp_path, scale):
    """The GLUE server takes three decimals, which is nothing of a score of a ten-thousandth."""
    scores = (np.array([[0.1234567], [0.1234568], [-7.0]]) * scale).astype(np.float32)
    examples = labelled_texts.Examples(
        (["a", "b", "c"],), None, ["0", "1", "2"], str, {}, labelled_texts.Columns(("text",), None, None)
    )
    own = glue.Task(folder="custom", text_columns=(), label_columns=(), labels=None, metrics=("pearson",))
    path = labelled_texts.write_predictions(
        tmp_path, labelled_texts.ClassificationData("custom", own, {"test": examples}), "test", scores
    )
    written = [line.split("\t")[1] for line in path.read_text().splitlines()[1:]]
    assert np.array_equal(np.array(written, dtype=np.float32), scores[:, 0])


@pytest.mark.parametrize(
    ("labels", "new", "given", "expected"),
    [
        ("abc", "ab", {"metric_for_best_model": "f1:c"}, "f1:c: expected examples of 'c' in the validation data"),
        ("abc", "ab", {"metric_for_best_model": "eval_recall:c"}, "expected examples of 'c' in the validation data"),
        ("abc", "ab", {"metric_for_best_model": "f1:b"}, ""),
        ("abc", "ab", {"calibrate": True, "class_weights": "balanced", "label_token": "last"}, ""),
        ("123", "12", {"calibrate": True}, "--calibrate is for one class a text, and these labels are scores"),
        ("123", "12", {"class_weights": "balanced"}, "--class_weights is for classes, and these labels are scores"),
        ("123", "12", {"label_token": "last"}, "--label_token last: expected classes, got scores (a regression)"),
        ("abc", "", {"calibrate": True}, "--calibrate needs labelled data on which the temperature is found; give"),
    ],
)
def test_flags_that_the_labels_contradict_are_refused_together(tmp_path, labels, new, given, expected):
    """Of a class without examples all scores would be 0, and the first evaluation the best."""
    kind = {"problem_type": "regression"} if labels == "123" else {}
    rows = [f"film {row},{labels[row % 3]}\n" for row in range(9)]
    train = own(tmp_path, "text,label\n" + "".join(rows), "own.csv")
    valid = own(tmp_path, "text,label\n" + "".join(f"good,{label}\n" for label in new or "abc"), "valid.csv")
    data = load_data(glue_arguments(train_file=train, validation_file=valid, **kind))
    if not new:
        data.splits["test"] = data.splits.pop("validation")
    asked = SimpleNamespace(**{"metric_for_best_model": None, "calibrate": False, "class_weights": None,
                               "label_token": "cls"} | given)  # fmt: skip
    if not expected:
        labelled_texts.check_flags(asked, data)
        return
    with pytest.raises(UserError, match=re.escape(expected)) as caught:
        labelled_texts.check_flags(asked, data)
    if labels == "123":  # another mistake is in the same error
        asked.label_token = "bilstm"
        asked.metric_for_best_model = None
        with pytest.raises(UserError, match=re.escape("--label_token bilstm: expected classes, got scores")) as both:
            labelled_texts.check_flags(asked, data)
        assert given.get("label_token") or str(caught.value) in str(both.value)
