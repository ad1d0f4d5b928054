"""The metrics of GLUE as plain functions of (predictions, references).

The values equal those of scikit-learn and scipy, also in the degenerate cases where these agree on a value: F1 and
the Matthews correlation are 0.0 if their denominator is 0, and a correlation with a constant is NaN.
`training.tasks.evaluate_metrics` offers the same through `evaluate.Metric`; the package evaluate is often
missing in images for GPU machines.
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
    """Matthews' phi for two classes, Gorodkin's R_K (2004) for more."""
    predictions, references = _pair(predictions, references)
    classes, coded = np.unique(np.concatenate([predictions, references]), return_inverse=True)
    # Python integers, because products of counts exceed 2**53 on data of the size of MNLI.
    predicted = [int(n) for n in np.bincount(coded[: len(predictions)], minlength=len(classes))]
    true = [int(n) for n in np.bincount(coded[len(predictions) :], minlength=len(classes))]
    total, correct = len(predictions), int(np.sum(predictions == references))
    covariance = correct * total - sum(p * t for p, t in zip(predicted, true))
    spread = (total**2 - sum(p * p for p in predicted)) * (total**2 - sum(t * t for t in true))
    return covariance / math.sqrt(spread) if spread else 0.0


def pearson(predictions: ArrayLike, references: ArrayLike) -> float:
    """Pearson's r; NaN if either side is constant."""
    x, y = (side.astype(np.float64) for side in _pair(predictions, references))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    x, y = (
        side / np.ptp(side) for side in (x, y)
    )  # otherwise squares of very large or small scores overflow or underflow
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)), -1.0, 1.0))


def spearmanr(predictions: ArrayLike, references: ArrayLike) -> float:
    """Spearman's rho: Pearson's r of the ranks; tied values share their mean rank."""
    x, y = _pair(predictions, references)
    return pearson(_ranks(x), _ranks(y))


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
