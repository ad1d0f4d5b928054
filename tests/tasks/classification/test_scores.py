"""The scores of text classification, worked by hand or computed by scikit-learn."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_training.tasks.classification import glue, labelled_texts, sources
from bert_training.tasks.classification.scores import metric, score, score_of_constant, scores_by_class


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


@pytest.mark.parametrize("name", ["cola", "mrpc", "mnli", "ax"])
def test_a_constant_answer_has_the_scores_that_scikit_learn_gives_it(name):
    task = glue.GLUE_TASKS[name]
    assert task.labels is not None
    for seed in range(20):
        labels = np.random.default_rng(seed).integers(0, len(task.labels), 1 + seed)
        constant = np.full_like(labels, np.bincount(labels).argmax())
        expected = {one: np.nan_to_num(metric(task, one, constant, labels)) for one in task.metrics}
        expected["f1_macro"] = scores_by_class(constant, labels, task.labels)["f1_macro"]
        assert score_of_constant(task, labels, with_macro_f1=True) == pytest.approx(expected)
