"""The metrics of GLUE as plain functions of (predictions, references).

The values equal those of scikit-learn and scipy, including the degenerate cases in which these agree: F1 and the
Matthews correlation are 0.0 if their denominator is 0, and a correlation with a constant is NaN.
``bert_training.tasks.evaluate_metrics`` offers the same metrics as ``evaluate.Metric``, for which the package evaluate
must be installed.

Every function raises ValueError unless both arguments are one-dimensional, equally long, non-empty and finite.
"""

import math

import numpy as np
from numpy.typing import ArrayLike


def accuracy(predictions: ArrayLike, references: ArrayLike) -> float:
    """The share of equal entries, from 0 to 1."""
    predictions, references = _pair(predictions, references)
    return float(np.mean(predictions == references))


def f1(predictions: ArrayLike, references: ArrayLike) -> float:
    """F1 of class 1, the positive one in MRPC and QQP."""
    predictions, references = _pair(predictions, references)
    both = np.sum((predictions == 1) & (references == 1))
    either = np.sum(predictions == 1) + np.sum(references == 1)
    return float(2 * both / either) if either else 0.0


def matthews_correlation(predictions: ArrayLike, references: ArrayLike) -> float:
    """The Matthews correlation coefficient, from -1 to 1; for more than two classes Gorodkin's R_K (2004)."""
    predictions, references = _pair(predictions, references)
    classes, coded = np.unique(np.concatenate([predictions, references]), return_inverse=True)
    # Python integers, because products of counts exceed 2**53 on data of the size of MNLI.
    predicted = [int(count) for count in np.bincount(coded[: len(predictions)], minlength=len(classes))]
    true = [int(count) for count in np.bincount(coded[len(predictions) :], minlength=len(classes))]
    total, correct = len(predictions), int(np.sum(predictions == references))
    covariance = correct * total - sum(ours * theirs for ours, theirs in zip(predicted, true))
    spread = (total**2 - sum(count**2 for count in predicted)) * (total**2 - sum(count**2 for count in true))
    return covariance / math.sqrt(spread) if spread else 0.0


def pearson(predictions: ArrayLike, references: ArrayLike) -> float:
    """Pearson's r, from -1 to 1; NaN if either side is constant."""
    sides = [side.astype(np.float64) for side in _pair(predictions, references)]
    if any(np.ptp(side) == 0 for side in sides):
        return math.nan
    # Without this division, squares of very large or very small scores would overflow or underflow.
    ours, theirs = (side / np.ptp(side) for side in sides)
    ours, theirs = ours - ours.mean(), theirs - theirs.mean()
    return float(np.clip(ours @ theirs / (np.linalg.norm(ours) * np.linalg.norm(theirs)), -1.0, 1.0))


def spearmanr(predictions: ArrayLike, references: ArrayLike) -> float:
    """Spearman's rho, from -1 to 1: Pearson's r of the ranks. Tied values share their mean rank."""
    ours, theirs = _pair(predictions, references)
    return pearson(_ranks(ours), _ranks(theirs))


def _ranks(values: np.ndarray) -> np.ndarray:
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[group]


def _pair(predictions: ArrayLike, references: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    predictions, references = np.asarray(predictions), np.asarray(references)
    if predictions.shape != references.shape or predictions.ndim != 1 or not len(predictions):
        raise ValueError(
            "expected two equally long, non-empty lists of numbers, "
            f"got shapes {predictions.shape} and {references.shape}"
        )
    for name, side in (("predictions", predictions), ("references", references)):
        if not np.isfinite(side).all():
            raise ValueError(f"{name} hold NaN or infinite values; the model has diverged")
    return predictions, references


METRICS = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews_correlation": matthews_correlation,
    "pearson": pearson,
    "spearmanr": spearmanr,
}
