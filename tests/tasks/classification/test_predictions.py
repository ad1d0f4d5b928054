"""The files of predictions: no id and no name of a class changes their rows or columns."""

import csv
import json

import numpy as np

from bert_training.tasks.classification.predictions import write_probabilities, write_scores

IDS = ["7", 'a "quoted", one', "line\nbreak", "carriage\rreturn", "tab\there", "\u2028", ""]
NAMES = ["id", "label", "p_id", 'of "two", words']


def read_back(path) -> tuple[list[list[str]], list[dict]]:
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    with open(path.with_suffix(".jsonl"), encoding="utf-8") as file:
        return rows, [json.loads(line) for line in file]


def test_rows_and_columns_stay_what_they_are(tmp_path):
    shares = np.random.default_rng(0).dirichlet(np.ones(4), size=len(IDS))
    labels = [NAMES[number] for number in shares.argmax(1)]
    rows, records = read_back(write_probabilities(tmp_path, "test", IDS, NAMES, shares, labels))
    assert rows[0] == ["id", "label", *(f"p_{name}" for name in NAMES)]
    assert len({*rows[0]}) == 6
    assert [row[:2] for row in rows[1:]] == [[*pair] for pair in zip(IDS, labels)]
    assert np.allclose(np.array([row[2:] for row in rows[1:]], dtype=float), shares, rtol=1e-6)
    assert [(one["id"], one["label"]) for one in records] == [*zip(IDS, labels)]
    assert [[*one["probabilities"]] for one in records] == [NAMES] * len(IDS)
    assert [[*one["probabilities"].values()] for one in records] == [[*map(float, row[2:])] for row in rows[1:]]


def test_a_regression_has_scores(tmp_path):
    rows, records = read_back(write_scores(tmp_path, "validation", ["a", "b"], np.float32([0.1, 2.5])))
    assert rows == [["id", "score"], ["a", "0.100000001"], ["b", "2.5"]]
    assert records == [{"id": "a", "score": 0.100000001}, {"id": "b", "score": 2.5}]
