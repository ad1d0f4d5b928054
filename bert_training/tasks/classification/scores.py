"""Scores of text classification: the metrics of a task, computed from logits."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_training.tasks.classification.by_class import scores_by_class
from bert_training.tasks.classification.calibration import calibration_scores
from bert_training.tasks.classification.glue import Task
from bert_training.tasks.classification.metrics import METRICS


def metric_prefix(split: str) -> str:
    """The prefix of the metrics in all_results.json, which keeps the two halves of MNLI apart."""
    kind = "test_" if split.startswith("test") else "eval_"
    return kind + {"matched": "mnli_m_", "mismatched": "mnli_mm_"}.get(split.partition("_")[2], "")


def score(task: Task, logits: np.ndarray, labels: list) -> dict[str, float | None]:
    """The task's metrics for logits (rows, classes), or (rows, 1) for regression, and as many labels.

    An undefined metric (the correlation with a constant) is None, because JSON has no NaN.
    """
    predictions = logits[:, 0] if task.labels is None else logits.argmax(axis=1)
    values = {name: metric(task, name, predictions, np.asarray(labels)) for name in task.metrics}
    return {name: None if np.isnan(value) else value for name, value in values.items()}


def metric(task: Task, name: str, predictions: np.ndarray, labels: np.ndarray) -> float:
    """One of METRICS; F1 is that of the task's positive class, whatever its number is."""
    if name == "f1":
        predictions, labels = predictions == task.positive, labels == task.positive
    return METRICS[name](predictions, labels)


def score_of_constant(task: Task, labels: np.ndarray, with_macro_f1: bool = False) -> dict[str, float]:
    """The task's metrics if the most frequent class, or one score, is always predicted; 0 where they are undefined."""
    constant = np.zeros(len(labels)) if task.labels is None else np.full_like(labels, np.bincount(labels).argmax())
    values = {name: metric(task, name, constant, labels) for name in task.metrics}
    if with_macro_f1 and task.labels is not None:
        values["f1_macro"] = scores_by_class(constant, labels, task.labels)["f1_macro"]
    return {name: 0.0 if np.isnan(value) else value for name, value in values.items()}


def detailed_scores(
    names: Sequence[str], logits: np.ndarray, labels: list, temperature: float | None
) -> dict[str, Any]:
    """The scores by class, their macro means, and whether the probabilities can be believed."""
    return scores_by_class(logits.argmax(axis=1), labels, names) | calibration_scores(logits, labels, temperature)


def score_by_category(
    task: Task, logits: np.ndarray, labels: list, categories: dict[str, list[str]]
) -> dict[str, float | None]:
    """The metrics of each category's rows, such as ``matthews_correlation_logic``.

    Args:
        categories: for every category a cell for each row; the row belongs to it unless the cell is empty.
    """
    values: dict[str, float | None] = {}
    for name, cells in categories.items():
        if rows := [row for row, cell in enumerate(cells) if cell.strip()]:
            of_category = score(task, logits[rows], [labels[row] for row in rows])
            ending = re.sub("[^a-z]+", "_", name.lower())
            values |= {f"{metric_name}_{ending}": value for metric_name, value in of_category.items()}
    return values
