"""Scores of text classification: the metrics of GLUE, in all and by class. scikit-learn and scipy compute correlations.

Where libraries warn or disagree, the value is fixed here: F1 and the Matthews correlation are 0.0 if their
denominator is 0, and a correlation with a constant is NaN. What is 0/0 counts as 0.0: the precision of a class that is
never predicted, and the recall of a class that no row has. As in scikit-learn, macro means are over the classes that
occur in the labels or in the predictions, so that a class without rows lowers them only if some row is taken for it.

In all_results.json the macro means are ``eval_f1_macro`` and so on. ``eval_by_class`` is an object, whose keys are the
names of the classes, whatever is in them. In flags a class is named as ``f1:very angry``; this is the key of a result,
too, if it decides which weights are kept.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bert_training.tasks.classification.calibration import calibration_scores
from bert_training.tasks.classification.glue import Task
from tokenization.errors import UserError

BY_CLASS = "by_class"
RATES = ("precision", "recall", "f1")
MACRO = tuple(f"{rate}_macro" for rate in ("f1", "precision", "recall"))
SEPARATOR = ":"


# --- the metrics ----------------------------------------------------------------------------------------------
# Each raises UserError unless both arguments, one-dimensional and equally long, are finite.


def accuracy(predictions: ArrayLike, references: ArrayLike) -> float:
    """The share of equal entries, from 0 to 1."""
    predictions, references = _pair(predictions, references)
    return float(np.mean(predictions == references))


def f1(predictions: ArrayLike, references: ArrayLike) -> float:
    """F1 of class 1, the positive one in MRPC and QQP."""
    guessed, true = (side == 1 for side in _pair(predictions, references))
    return rates(*(int(np.count_nonzero(side)) for side in (guessed & true, guessed, true)))["f1"]


def matthews_correlation(predictions: ArrayLike, references: ArrayLike) -> float:
    """The Matthews correlation coefficient, from -1 to 1; for more than two classes Gorodkin's R_K (2004)."""
    from sklearn.metrics import matthews_corrcoef  # imported here because that takes almost a second

    predictions, references = _pair(predictions, references)
    if _has_constant(predictions, references):  # scikit-learn has the same value, but warns if all entries are equal
        return 0.0
    return float(matthews_corrcoef(references, predictions))


def pearson(predictions: ArrayLike, references: ArrayLike) -> float:
    """Pearson's r, from -1 to 1; NaN if either side is constant."""
    from scipy.stats import pearsonr

    predictions, references = _pair(predictions, references)
    if _has_constant(predictions, references):
        return math.nan
    # In float64, because scipy computes in the type of its arguments, and logits are float32.
    return float(pearsonr(predictions.astype(np.float64), references.astype(np.float64)).statistic)


def spearmanr(predictions: ArrayLike, references: ArrayLike) -> float:
    """Spearman's rho, from -1 to 1; tied values share their mean rank, and it is NaN if either side is constant."""
    from scipy import stats

    predictions, references = _pair(predictions, references)
    return math.nan if _has_constant(predictions, references) else float(stats.spearmanr(predictions, references)[0])


def _has_constant(*sides: np.ndarray) -> bool:
    return any(np.all(side == side[0]) for side in sides)


def _pair(predictions: ArrayLike, references: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    predictions, references = np.asarray(predictions), np.asarray(references)
    assert predictions.shape == references.shape == (predictions.size,) and predictions.size
    for name, side in (("predictions", predictions), ("references", references)):
        if not np.isfinite(side).all():
            raise UserError(f"{name} hold NaN or infinite values; the model has diverged")
    return predictions, references


METRICS = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews_correlation": matthews_correlation,
    "pearson": pearson,
    "spearmanr": spearmanr,
}


# --- of a task ------------------------------------------------------------------------------------------------


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
    if task.labels is None:
        return dict.fromkeys(task.metrics, 0.0)
    counts = np.bincount(labels)
    most, rows = int(counts.max()), len(labels)
    f1 = 2 * most / (rows + most)  # of the class, whose recall is 1; that of all others is 0
    values = {"accuracy": most / rows, "f1": f1 * (counts.argmax() == task.positive), "matthews_correlation": 0.0}
    macro = {"f1_macro": f1 / np.count_nonzero(counts)} if with_macro_f1 else {}
    return {name: float(value) for name, value in ({name: values[name] for name in task.metrics} | macro).items()}


def detailed_scores(
    names: Sequence[str], logits: np.ndarray, labels: list, temperature: float | None
) -> dict[str, Any]:
    """The scores by class, their macro means, and whether the probabilities can be believed."""
    return scores_by_class(logits.argmax(axis=1), labels, names) | calibration_scores(logits, labels, temperature)


# --- by class -------------------------------------------------------------------------------------------------


def rates(right: int, guessed: int, true: int) -> dict[str, float]:
    """``RATES`` of a class: it was predicted for ``guessed`` rows, rightly for ``right`` of them, and has ``true``."""
    found = (right / max(guessed, 1), right / max(true, 1), 2 * right / max(guessed + true, 1))
    return dict(zip(RATES, found))


def scores_by_class(predicted: np.ndarray, labels: Sequence[int] | np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """The macro means, and below BY_CLASS the scores and the number of rows (``support``) of each class.

    Args:
        predicted, labels: for every row the number of a class.
        names: of all classes, in the order of their numbers.
    """
    labels = np.asarray(labels)
    sides = (labels[labels == predicted], predicted, labels)
    counts = [np.bincount(side, minlength=len(names)).tolist() for side in sides]
    classes = {
        name: rates(*of_class) | {"support": of_class[-1]} for name, *of_class in zip(names, *counts, strict=True)
    }
    occur = [names[number] for number in np.union1d(labels, predicted)]
    macro = {f"{rate}_macro": float(np.mean([classes[name][rate] for name in occur])) for rate in RATES}
    return {name: macro[name] for name in MACRO} | {BY_CLASS: classes}


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
