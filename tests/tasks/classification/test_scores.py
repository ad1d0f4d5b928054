"""The scores of text classification, worked by hand or computed by scikit-learn."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_training.tasks.classification import glue, labelled_texts, sources
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
