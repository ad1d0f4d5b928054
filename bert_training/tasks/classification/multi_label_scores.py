"""Several labels a text: the probability from which on each label is given, the metrics, and the predictions.

A threshold passes through four stages:

1. Found on validation data by ``find_thresholds``, in every evaluation of a training: for each label the threshold with
   the best F1. It is chosen on the texts that it is then measured on, so the scores with it are slightly too good.
2. Stored by ``store_thresholds`` in the model's config, as ``fine_tuning["thresholds"]``, in the order of id2label.
3. Read by ``stored_thresholds`` for an evaluation without training, for predictions, ``bert-repro ask`` and the page.
   A model without stored thresholds gives a label from 0.5 on.
4. Applied by ``gives``.

scikit-learn computes the metrics, in all and by label. A score whose denominator is 0 is 0, as for one class a text.
The average precision of a label that no text has is not defined: it is None, and the macro average is over the others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from transformers import PretrainedConfig

from bert_training.tasks.classification.glue import Task
from bert_training.tasks.classification.scores import BY_CLASS, RATES, SEPARATOR
from bert_training.tasks.classification.trained_for import store_facts, stored_facts

FIELD = "thresholds"  # in the field fine_tuning of the model's config
USUAL = 0.5
Thresholds = list[float] | None
"""One for each label, in the order of id2label; None for models that do not give a text several labels."""
# The last one decides which evaluation is the best; transformers' run_classification.py reports it, too.
METRICS = ("subset_accuracy", "average_precision_micro", "average_precision_macro", "f1_macro", "f1_micro")
OF_LABEL = (*RATES, "average_precision")
MARK = "|"  # between the labels of a prediction, unless the data has another


# --- thresholds -----------------------------------------------------------------------------------------------


def thresholds_of(task: Task, config: PretrainedConfig) -> Thresholds:
    """The thresholds with which an evaluation begins: those stored with the model, otherwise 0.5 for each label."""
    return (stored_thresholds(config) or [USUAL] * len(task.labels or ())) if task.several_labels else None


def origin_of_thresholds(config: PretrainedConfig, training: bool) -> str:
    """A fact for run.json: where the thresholds of a run are from."""
    return "found" if training else "usual" if stored_thresholds(config) is None else "stored"


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


# --- scores and predictions -----------------------------------------------------------------------------------


def metric_names(labels: Sequence[str]) -> list[str]:
    """The results by which the best evaluation may be chosen, without the prefix of a split."""
    return [*METRICS, *(f"{metric}{SEPARATOR}{label}" for label in labels for metric in OF_LABEL)]


def score_several(
    logits: np.ndarray, labels: Sequence[Sequence[float]], thresholds: Sequence[float], names: Sequence[str]
) -> dict[str, Any]:
    """METRICS and, below BY_CLASS, the scores of each label, its threshold and its number of texts (``support``).

    Args:
        logits, labels: (texts, labels).
    """
    shares = probabilities(logits)
    scores = _scores(gives(shares, thresholds), shares, np.asarray(labels) > 0, names)
    for name, threshold in zip(names, thresholds, strict=True):
        scores[BY_CLASS][name]["threshold"] = float(threshold)
    return scores


def _scores(given: np.ndarray, shares: np.ndarray, truth: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    from sklearn.metrics import average_precision_score, f1_score, precision_recall_fscore_support

    averages = [
        float(average_precision_score(there, share)) if there.any() else None for there, share in zip(truth.T, shares.T)
    ]
    defined = [value for value in averages if value is not None]
    columns = precision_recall_fscore_support(truth, given, average=None, zero_division=0.0)
    rows = zip(names, averages, *(column.tolist() for column in columns), strict=True)
    return {
        "subset_accuracy": float((given == truth).all(axis=1).mean()),
        "average_precision_micro": float(average_precision_score(truth.ravel(), shares.ravel())) if defined else None,
        "average_precision_macro": float(np.mean(defined)) if defined else None,
        "f1_macro": float(f1_score(truth, given, average="macro", zero_division=0.0)),
        "f1_micro": float(f1_score(truth, given, average="micro", zero_division=0.0)),
        BY_CLASS: {
            name: {**dict(zip(RATES, rates)), "average_precision": average, "support": support}
            for name, average, *rates, support in rows
        },
    }


def score_of_constants(labels: np.ndarray) -> dict[str, float]:
    """METRICS of predictions that are the same for all texts; 0 where they are undefined.

    For F1 these are all labels, for the average precision the same probability, and for the subset accuracy the most
    frequent set of labels.
    """
    truth = np.asarray(labels) > 0
    names = [str(number) for number in range(truth.shape[1])]
    scores = _scores(np.ones_like(truth), np.full(truth.shape, 0.5), truth, names)
    _, counts = np.unique(truth, axis=0, return_counts=True)
    scores["subset_accuracy"] = float(counts.max() / len(truth))
    return {name: scores[name] or 0.0 for name in METRICS}


def labels_of(shares: np.ndarray, thresholds: Sequence[float], names: Sequence[str]) -> list[str]:
    """The labels of one text, from its probabilities."""
    return [name for name, there in zip(names, gives(shares, thresholds), strict=True) if there]


def say_thresholds(say: Callable[[str], None], results: Mapping[str, Any], origin: str) -> None:
    """Say which thresholds the predictions have.

    Args:
        results: of the finished model.
        origin: that of ``origin_of_thresholds``.
    """
    evaluated = results.get(f"eval_{BY_CLASS}") or {}
    ways = {"found": "found on the validation data by F1, and stored with the model", "stored": "stored with the model"}
    found = ways.get(origin if evaluated or origin != "found" else "", f"{USUAL}, the usual one")
    say(f"thresholds of the labels: {found}")
    if origin == "found" and (kept := [name for name, one in evaluated.items() if not one["support"]]):
        say(f"warning: no text of the validation data has these labels, which keep {USUAL}: {', '.join(kept)}")
