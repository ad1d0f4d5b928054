"""The metrics of GLUE as functions of (predictions, references), which scikit-learn and scipy compute.

Where these libraries warn or disagree, the value is fixed here: F1 and the Matthews correlation are 0.0 if their
denominator is 0, and a correlation with a constant is NaN.

Every function raises UserError unless both arguments, one-dimensional and equally long, are finite.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from tokenization.errors import UserError


def accuracy(predictions: ArrayLike, references: ArrayLike) -> float:
    """The share of equal entries, from 0 to 1."""
    predictions, references = _pair(predictions, references)
    return float(np.mean(predictions == references))


def f1(predictions: ArrayLike, references: ArrayLike) -> float:
    """F1 of class 1, the positive one in MRPC and QQP."""
    from sklearn.metrics import f1_score  # imported here because that takes almost a second

    predictions, references = _pair(predictions, references)
    return float(f1_score(references == 1, predictions == 1, zero_division=0.0))


def matthews_correlation(predictions: ArrayLike, references: ArrayLike) -> float:
    """The Matthews correlation coefficient, from -1 to 1; for more than two classes Gorodkin's R_K (2004)."""
    from sklearn.metrics import matthews_corrcoef

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
