"""Several labels a text: the metrics, in all and by label, which scikit-learn computes; and the predictions.

A score whose denominator is 0 is 0, as for one class a text. The average precision of a label that no text has is not
defined: it is None, and the macro average is over the other labels.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_training.tasks.classification.scores import BY_CLASS, RATES, SEPARATOR
from bert_training.tasks.classification.thresholds import USUAL, gives, probabilities

# The last one decides which evaluation is the best; transformers' run_classification.py reports it, too.
METRICS = ("subset_accuracy", "average_precision_micro", "average_precision_macro", "f1_macro", "f1_micro")
OF_LABEL = (*RATES, "average_precision")
MARK = "|"  # between the labels of a prediction, unless the data has another


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


def table(by_label: dict[str, dict[str, Any]]) -> str:
    """For the user: the threshold and the scores of each label, and which could have no threshold of its own."""
    width = max(5, *map(len, by_label))
    lines = [f"{'label':{width}}  threshold  precision  recall     F1  average precision  texts"]
    for name, one in by_label.items():
        average = "-" if one["average_precision"] is None else f"{one['average_precision']:.3f}"
        lines.append(
            f"{name:{width}}  {one['threshold']:9.3f}  {one['precision']:9.3f}  {one['recall']:6.3f}  "
            f"{one['f1']:5.3f}  {average:>17}  {one['support']:5,}"
        )
    return "\n".join(lines)


def predicted(
    logits: np.ndarray, thresholds: Sequence[float], names: Sequence[str], mark: str | None
) -> tuple[np.ndarray, list[list[str]], list[str]]:
    """For logits (texts, labels) the probabilities, the labels of each text, and the cell with them, such as a|b."""
    shares = probabilities(logits)
    found = [labels_of(row, thresholds, names) for row in shares]
    return shares, found, [(mark or MARK).join(labels) for labels in found]


def labels_of(shares: np.ndarray, thresholds: Sequence[float], names: Sequence[str]) -> list[str]:
    """The labels of one text, from its probabilities."""
    return [name for name, there in zip(names, gives(shares, thresholds), strict=True) if there]


def say_thresholds(say: Callable[[str], None], results: Mapping[str, Any], origin: str) -> None:
    """Say which thresholds the predictions have, and the scores of each label.

    Args:
        results: of the finished model.
        origin: that of ``origin_of_thresholds``.
    """
    evaluated, tested = (results.get(f"{prefix}_{BY_CLASS}") for prefix in ("eval", "test"))
    parts = {"validation": evaluated, "test": tested}
    if evaluated and origin == "found":
        say("each label has a threshold of its own, found on the validation data by F1 and stored with the model")
        if kept := [name for name, one in evaluated.items() if not one["support"]]:
            say(f"warning: no text of the validation data has these labels, which keep {USUAL}: {', '.join(kept)}")
    elif origin == "stored":
        say("the thresholds are those stored with the model")
    else:
        why = (
            "the model stores no thresholds" if origin == "usual" else "there is no validation data to find better ones"
        )
        say(f"a label is given from a probability of {USUAL} on, because {why}")
    for name, by_label in parts.items():
        if by_label:
            say(f"{name}, by label:\n{table(by_label)}")
