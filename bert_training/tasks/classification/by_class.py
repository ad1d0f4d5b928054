"""Precision, recall and F1 of every class, their macro means, and who is taken for whom; scikit-learn computes them.

What is 0/0 counts as 0.0: the precision of a class that is never predicted, and the recall of a class that no row has.
As in scikit-learn, the macro means are over the classes that occur in the labels or in the predictions, so that a class
without rows lowers them only if some row is taken for it.

In all_results.json the macro means are ``eval_f1_macro`` and so on. ``eval_by_class`` is an object, whose keys are the
names of the classes, whatever is in them. In flags a class is named as ``f1:very angry``; this is the key of a result,
too, if it decides which weights are kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

BY_CLASS = "by_class"
RATES = ("precision", "recall", "f1")
MACRO = tuple(f"{rate}_macro" for rate in ("f1", "precision", "recall"))
SEPARATOR = ":"


def scores_by_class(predicted: np.ndarray, labels: Sequence[int] | np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """The macro means, and below BY_CLASS the scores and the number of rows (``support``) of each class.

    Args:
        predicted, labels: for every row the number of a class.
        names: of all classes, in the order of their numbers.
    """
    from sklearn.metrics import precision_recall_fscore_support  # imported here because that takes almost a second

    columns = precision_recall_fscore_support(labels, predicted, labels=range(len(names)), zero_division=0.0)
    rows = zip(names, *(column.tolist() for column in columns), strict=True)
    classes = {name: {**dict(zip(RATES, rates)), "support": support} for name, *rates, support in rows}
    occur = [names[number] for number in np.union1d(labels, predicted)]
    macro = {f"{rate}_macro": float(np.mean([classes[name][rate] for name in occur])) for rate in RATES}
    return {name: macro[name] for name in MACRO} | {BY_CLASS: classes}


def confusion(predicted: np.ndarray, labels: Sequence[int] | np.ndarray, classes: int) -> np.ndarray:
    """The matrix (C, C) of the numbers of rows: those of class i that were taken for class j."""
    matrix = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(matrix, (np.asarray(labels), predicted), 1)
    return matrix


def metric_names(names: Iterable[str]) -> list[str]:
    """The results by which the best model may be chosen, without the prefix of a split."""
    return [*MACRO, "ece", *(f"{rate}{SEPARATOR}{name}" for name in names for rate in reversed(RATES))]


def value_of(results: Mapping[str, Any], key: str) -> Any:
    """The result of this key, also that of a class, such as ``eval_f1:very angry``; None if there is none."""
    if key in results:
        return results[key]
    metric, separator, name = key.partition(SEPARATOR)
    prefix, _, rate = metric.partition("_")  # eval and average_precision
    classes = results.get(f"{prefix}_{BY_CLASS}") if separator else None
    return classes[name].get(rate) if isinstance(classes, Mapping) and name in classes else None


def with_chosen(results: dict[str, Any], key: str) -> dict[str, Any]:
    """The results and, if ``key`` names a class, its value under this key."""
    return results | {key: value_of(results, key)} if results and key not in results and SEPARATOR in key else results


def shown(results: Mapping[str, Any]) -> str:
    """The results on one line, without the many of the classes; all_results.json has every digit."""
    single = {name: value for name, value in results.items() if not isinstance(value, Mapping)}
    return ", ".join(
        f"{name} {round(value, 4) if isinstance(value, float) else value}" for name, value in single.items()
    )


def table(classes: Mapping[str, Mapping[str, float]], most: int = 30) -> str:
    """The scores by class as a text table; of more than ``most`` classes those with the lowest F1."""
    listed = list(classes.items())
    if len(listed) > most:
        listed = sorted(listed, key=lambda one: one[1]["f1"])[:most]
    width = max(len("class"), *(len(name) for name, _ in listed))
    lines = [f"{'class':{width}}  precision  recall     F1  support"]
    lines += [
        f"{name:{width}}  {one['precision']:9.3f}  {one['recall']:6.3f}  {one['f1']:5.3f}  {one['support']:7,}"
        for name, one in listed
    ]
    if len(classes) > len(listed):
        lines.append(f"({most} of {len(classes)} classes, those with the lowest F1)")
    return "\n".join(lines)
