"""The files of predictions: no id and no name of a class changes their rows or columns."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from bert_training.tasks.classification.columns import Columns
from bert_training.tasks.classification.glue import Task
from bert_training.tasks.classification.labelled_texts import ClassificationData, Examples
from bert_training.tasks.classification.predictions import write_predictions
from bert_training.tasks.classification.sources import load_data
from tests.helpers.official_files import glue_arguments, write_task

IDS = ["7", 'a "quoted", one', "line\nbreak", "carriage\rreturn", "tab\there", "\u2028", ""]
NAMES = ("id", "label", "p_id", 'of "two", words')
THREE_WAY = ("entailment", "neutral", "contradiction")


def own(labels: tuple[str, ...] | None, ids: list[str]) -> ClassificationData:
    """Data of one's own to predict."""
    examples = Examples((ids,), None, ids, str, {}, Columns(("text",), None, None))
    return ClassificationData("custom", Task(folder="custom", labels=labels), {"test": examples})


def read_back(path) -> tuple[list[list[str]], list[dict]]:
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    with open(path.with_suffix(".jsonl"), encoding="utf-8") as file:
        return rows, [json.loads(line) for line in file]


def test_rows_and_columns_stay_what_they_are(tmp_path):
    logits = np.random.default_rng(0).normal(size=(len(IDS), 4))
    (path,) = write_predictions(tmp_path, own(NAMES, IDS), {"test": logits}, temperature=2.0)
    rows, records = read_back(path)
    shares = np.exp(logits / 2) / np.exp(logits / 2).sum(1, keepdims=True)
    labels = [NAMES[number] for number in shares.argmax(1)]
    assert rows[0] == ["id", "label", *(f"p_{name}" for name in NAMES)] and len({*rows[0]}) == 6
    assert [row[:2] for row in rows[1:]] == [[*pair] for pair in zip(IDS, labels)]
    assert np.allclose(np.array([row[2:] for row in rows[1:]], dtype=float), shares, rtol=1e-6)
    assert [(one["id"], one["label"]) for one in records] == [*zip(IDS, labels)]
    assert [[*one["probabilities"]] for one in records] == [[*NAMES]] * len(IDS)
    assert [[*one["probabilities"].values()] for one in records] == [[*map(float, row[2:])] for row in rows[1:]]


def test_several_labels_are_a_list_and_a_cell(tmp_path):
    data = own(("a", "b"), ["x", "y"])
    data.task = replace(data.task, several_labels=True)
    (path,) = write_predictions(tmp_path, data, {"test": np.array([[1.0, 1], [-1, -1]])}, thresholds=[0.5, 0.9])
    rows, records = read_back(path)
    assert [row[1] for row in rows[1:]] == ["a", ""] and [one["label"] for one in records] == [["a"], []]
    (path,) = write_predictions(tmp_path, data, {"test": np.array([[1.0, 1], [-1, -1]])}, thresholds=[0.5, 0.5])
    assert read_back(path)[0][1][1] == "a|b"


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_the_scores_of_a_regression_keep_all_their_digits(tmp_path, scale):
    scores = (np.array([[0.1234567], [0.1234568], [-7.0]]) * scale).astype(np.float32)
    (path,) = write_predictions(tmp_path, own(None, ["a", "b", "c"]), {"test": scores})
    rows, records = read_back(path)
    assert rows[0] == ["id", "score"] and [row[0] for row in rows[1:]] == ["a", "b", "c"]
    for written in ([row[1] for row in rows[1:]], [one["score"] for one in records]):
        assert np.array_equal(np.array(written, dtype=np.float32), scores[:, 0])


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
    given = glue_arguments(task_name=task, data_dir=str(folder), do_predict=True)
    data = load_data(given, THREE_WAY if task == "ax" else None)
    classes = len(data.task.labels or ["score"])
    logits = np.arange(2 * classes, dtype=float).reshape(2, classes) * 7 - 0.5
    (path,) = write_predictions(tmp_path, data, {split: logits})
    assert path.name == name
    lines = path.read_text(encoding="utf-8").split("\n")
    assert (lines[0], lines[2], lines[3:]) == ("index\tprediction", f"1\t{last}", [""])
    if task == "stsb":
        assert lines[1] == "0\t0.000"  # -0.5 is clipped to the range of the server.
