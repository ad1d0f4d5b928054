"""The scores of text classification, worked by hand or computed by scikit-learn."""

from types import SimpleNamespace

import numpy as np

from bert_training.tasks.classification import glue, labelled_texts, sources
from bert_training.tasks.classification.scores import score


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
