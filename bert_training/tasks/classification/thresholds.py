"""Several labels a text: the probability from which on a label is given, one for each label.

1. Found on validation data by ``find_thresholds``, in every evaluation of a training: for each label the threshold with
   the best F1. It is chosen on the texts that it is then measured on, so the scores with it are slightly too good.
2. Stored by ``store_thresholds`` in the model's config, as ``fine_tuning["thresholds"]``, in the order of id2label.
3. Read by ``stored_thresholds`` for an evaluation without training, for predictions, ``bert-repro ask`` and the page.
   A model without stored thresholds gives a label from 0.5 on.
4. Applied by ``gives``.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from transformers import PretrainedConfig

from bert_training.tasks.classification.glue import Task
from bert_training.tasks.classification.trained_for import store_facts, stored_facts

if TYPE_CHECKING:
    from bert_training.tasks.classification.labelled_texts import ClassificationData

FIELD = "thresholds"  # in the field fine_tuning of the model's config
USUAL = 0.5


Thresholds = list[float] | None
"""One for each label, in the order of id2label; None for models that do not give a text several labels."""


def thresholds_of(task: Task, config: PretrainedConfig) -> Thresholds:
    """The thresholds with which an evaluation begins: those stored with the model, otherwise 0.5 for each label."""
    return (stored_thresholds(config) or [USUAL] * len(task.labels or ())) if task.several_labels else None


def chosen_thresholds(
    data: "ClassificationData", config: PretrainedConfig, logits: Mapping[str, ArrayLike]
) -> Thresholds:
    """In a training the thresholds found on the validation data, otherwise those of ``thresholds_of``.

    Args:
        logits: of every validation split (texts, labels).
    """
    if data.task.several_labels and "train" in data.splits:
        for split, values in logits.items():
            return find_thresholds(np.asarray(values), data.splits[split].labels or [])
    return thresholds_of(data.task, config)


def origin_of_thresholds(task: Task, config: PretrainedConfig, training: bool) -> dict[str, str]:
    """A fact for run.json: where the thresholds of a run are from; {} if a text has no several labels."""
    if not task.several_labels:
        return {}
    return {"thresholds": "found" if training else "usual" if stored_thresholds(config) is None else "stored"}


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The probability of every label, each by itself: the logistic function in float64."""
    from scipy.special import expit

    return expit(np.asarray(logits, dtype=np.float64))


def gives(shares: np.ndarray, thresholds: Sequence[float]) -> np.ndarray:
    """Which labels are given to which texts: those whose probability reaches their threshold."""
    return shares >= np.asarray(thresholds)


def find_threshold(shares: np.ndarray, has_label: np.ndarray) -> float:
    """The threshold with the best F1 of one label; 0.5 if no text has it.

    Between two neighbouring probabilities all thresholds give the same F1; the one in the middle stands for them, and
    0.5 if it lies there. Of equally good ones, the one closest to 0.5 is taken, and of two as close the higher.

    Args:
        shares: (texts,) the probabilities.
        has_label: (texts,) whether the text has the label.
    """
    if not has_label.any():
        return USUAL
    order = np.argsort(-shares, kind="stable")
    ordered = shares[order]
    last = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)  # of the texts with the same probability
    given, right = last + 1, np.cumsum(has_label[order])[last]
    f1 = 2 * right / (given + has_label.sum())
    bounds = [*ordered[last].tolist(), 0.0]
    best = [_between(bounds[place], bounds[place + 1]) for place in np.flatnonzero(f1 == f1.max())]
    return min(best, key=lambda threshold: (abs(threshold - USUAL), -threshold))


def _between(higher: float, lower: float) -> float:
    """A threshold that ``higher`` reaches and ``lower`` does not."""
    if lower < USUAL <= higher:
        return USUAL
    middle = (lower + higher) / 2
    return middle if lower < middle else higher  # of neighbouring floats, none is between


def find_thresholds(logits: np.ndarray, labels: ArrayLike) -> list[float]:
    """The thresholds of all labels, for logits and labels (texts, labels)."""
    shares = probabilities(logits)
    return [find_threshold(column, there > 0) for column, there in zip(shares.T, np.asarray(labels).T, strict=True)]


def store_thresholds(config: PretrainedConfig, thresholds: Sequence[float]) -> None:
    """Write the thresholds to the config of a model."""
    store_facts(config, **{FIELD: [float(threshold) for threshold in thresholds]})


def stored_thresholds(config: PretrainedConfig) -> list[float] | None:
    """The thresholds stored with a model; None if it has none."""
    found = stored_facts(config).get(FIELD)
    assert found is None or len(found) == len(config.id2label or {})
    return found
