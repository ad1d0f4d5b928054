"""The scores of text classification, worked by hand or computed by scikit-learn."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bert_training.tasks.classification import glue, labelled_texts, multi_label_scores, sources
from bert_training.tasks.classification.evaluation import scores_of
from bert_training.tasks.classification.scores import score, score_by_category
from bert_training.tasks.classification.sources import load_data
from tests.helpers.official_files import glue_arguments, write_task

THREE_WAY = ("entailment", "neutral", "contradiction")


def test_logits_are_scored_with_the_metrics_of_the_task():
    logits = np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 9.0]])
    assert score(glue.GLUE_TASKS["mrpc"], logits, [0, 1, 0]) == {"accuracy": 2 / 3, "f1": 2 / 3}
    names = {"mrpc": ("equivalent", "not_equivalent"), "qqp": ("duplicate", "not_duplicate")}
    for name, order in names.items():  # A model that was trained elsewhere may number the same classes differently.
        task = sources.in_order(glue.GLUE_TASKS[name], order)
        logits = np.array([[1.0, 2.0], [1.0, 0.0], [9.0, 3.0], [1.0, 0.0]])
        assert score(task, logits, [1, 0, 1, 0]) == {"accuracy": 0.75, "f1": 0.8}
        splits = {"validation": SimpleNamespace(labels=[0, 0, 0, 1])}
        data = labelled_texts.ClassificationData(name, task, splits)
        assert data.baselines() == {
            "eval_accuracy": 0.75,
            "eval_f1": 1.5 / 1.75,
        }
    scores = np.array([[1.0], [1.0], [1.0]])
    assert score(glue.GLUE_TASKS["stsb"], scores, [0.0, 1.0, 2.0]) == {"pearson": None, "spearmanr": None}


ONE, LOST = "is no higher than", "classes are never found"
OWN = glue.Task(folder="", text_columns=(), label_columns=(), labels=("a", "b", "c"), metrics=("accuracy",))
SEVERAL = replace(OWN, metrics=multi_label_scores.METRICS, several_labels=True)


@pytest.mark.parametrize(
    ("task", "labels", "predicted", "expected"),
    [
        (OWN, [0, 0, 0, 1, 2], [0, 0, 0, 0, 0], (ONE, "2 of 3 classes are never found in validation, such as b")),
        (OWN, [0, 0, 0, 1, 2], [0, 0, 0, 1, 0], ("1 of 3 classes are never found in validation, such as c",)),
        (OWN, [0, 0, 0, 1, 2], [0, 0, 1, 1, 1], (ONE, LOST)),
        (OWN, [0, 0, 0, 1, 2], [0, 1, 2, 1, 2], (ONE,)),
        (OWN, [0, 0, 0, 1, 1], [0, 0, 0, 1, 1], ()),  # there is no row of class c to be found
        (OWN, [1, 1, 1], [1, 1, 1], ()),  # one answer is right, and nothing can be better
        (glue.GLUE_TASKS["mrpc"], [1, 1, 0, 0, 1], [1, 1, 1, 1, 1], (ONE, LOST)),
        (glue.GLUE_TASKS["mrpc"], [1, 1, 0, 0, 1], [1, 1, 0, 1, 1], ()),
        (glue.GLUE_TASKS["cola"], [1, 1, 0, 0, 1], [1, 1, 1, 1, 1], (ONE, LOST)),
        (glue.GLUE_TASKS["stsb"], [0.0, 1.0, 2.0], [1.5, 1.5, 1.5], (ONE,)),
        (glue.GLUE_TASKS["stsb"], [0.0, 1.0, 2.0], [1.5, 1.6, 1.7], ()),
        (SEVERAL, [[1, 0, 0], [1, 0, 1], [0, 1, 1]], [[1, 1, 1]] * 3, (ONE,)),
        (SEVERAL, [[1, 0, 0], [1, 0, 1], [0, 1, 1]], [[1, 0, 0], [1, 0, 1], [0, 0, 1]], (LOST,)),
    ],
)
def test_a_second_look_at_what_is_no_better_than_one_answer(task, labels, predicted, expected):
    """scikit-learn's dummies say what one answer reaches; the rate is the first remedy of each line."""
    dummies = pytest.importorskip("sklearn.dummy")
    data = labelled_texts.ClassificationData("x", task, {"validation": SimpleNamespace(labels=labels, categories={})})
    logits = np.array(predicted, dtype=float)[:, None] if task.labels is None else np.eye(3)[predicted]
    if task.several_labels:
        logits = np.array(predicted) - 0.5
    thresholds = [0.5] * 3 if task.several_labels else None
    results = scores_of(data, "validation", {"logits": logits, "loss": 0.0}, None, thresholds)
    lines = [*data.second_look(results, {"validation": logits}, 1e-4)]
    assert len(lines) == len(expected)
    for line, words in zip(lines, expected):
        assert line.startswith("second look: ") and words in line
        assert "; change --learning_rate first (it was 0.0001; " in line
    if ONE in expected and "accuracy" in task.metrics:
        dummy = dummies.DummyClassifier(strategy="most_frequent").fit(labels, labels)
        assert f" {dummy.score(labels, labels):.4f}, " in lines[0]


def test_the_halves_of_mnli_have_a_second_look_each():
    splits = {
        f"validation_{half}": SimpleNamespace(labels=[0, 0, 1, 2], categories={}) for half in ("matched", "mismatched")
    }
    data = labelled_texts.ClassificationData("mnli", glue.GLUE_TASKS["mnli"], splits)
    logits = {"validation_matched": np.eye(3)[[0, 0, 1, 2]], "validation_mismatched": np.eye(3)[[0, 0, 1, 1]]}
    results = {"eval_mnli_m_accuracy": 1.0, "eval_mnli_mm_accuracy": 0.75}
    (line,) = data.second_look(results, logits, 5e-5)
    assert line.startswith("second look: 1 of 3 classes are never found in validation_mismatched, such as ")


def test_diagnostics_are_scored_by_category(tmp_path):
    """The scores are those of scikit-learn on the rows of a category. A category without rows has no score."""
    sklearn = pytest.importorskip("sklearn.metrics")
    folder = write_task(tmp_path, "ax", rows=40)
    data = load_data(glue_arguments(task_name="ax", data_dir=str(folder)), THREE_WAY)
    logits = np.random.default_rng(0).normal(size=(40, 3)) + 2 * np.eye(3)[np.arange(40) % 3]
    expected = {}
    for number, name in enumerate(("lexical_semantics", "predicate_argument_structure", "logic", "knowledge"), 2):
        rows = np.arange(0, 40, number)  # official_files.py writes the categories into these rows.
        correlation = sklearn.matthews_corrcoef(rows % 3, logits[rows].argmax(axis=1))
        expected[f"matthews_correlation_{name}"] = pytest.approx(correlation, abs=1e-12)

    def found(part: labelled_texts.Examples) -> dict:
        return score_by_category(data.task, logits[: len(part)], part.labels, part.categories)

    assert found(data.splits["validation"]) == expected
    first = data.splits["validation"].first(1)
    assert len(found(first)) == 4  # Row 0 is in all categories.
    first.categories["Logic"] = [""]
    assert "matthews_correlation_logic" not in found(first)
    other = load_data(glue_arguments(task_name="rte", data_dir=str(write_task(tmp_path / "rte", "rte"))))
    assert other.splits["validation"].categories == {}
