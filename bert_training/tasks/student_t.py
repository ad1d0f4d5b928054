"""Student's t distribution without scipy: p-value, quantile, and the confidence interval of a mean.

For the results of a few seeds this distribution is needed: with three to ten values, the intervals of the normal
distribution and of the percentile bootstrap are far too narrow.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np

LEVEL = 0.95


def two_sided_p(t: float, degrees: float) -> float:
    """The probability that a t-distributed value has at least the absolute value of t."""
    square = t * t
    if square < 1:  # with a t that is small compared with the degrees of freedom, the other form would lose digits
        return 1 - incomplete_beta(0.5, degrees / 2, square / (degrees + square))
    return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + square))


@functools.cache
def two_sided_quantile(level: float, degrees: float) -> float:
    """The t such that a t-distributed value lies between -t and t with probability ``level``.

    Raises:
        ValueError: the level is not between 0 and 1, or the degrees of freedom are not above 0.
    """
    if not 0 < level < 1 or degrees <= 0:
        raise ValueError(f"expected a level between 0 and 1 and degrees of freedom above 0; got {level}, {degrees}")
    low, high = 0.0, 1.0
    while two_sided_p(high, degrees) > 1 - level:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:  # until no float lies between the two
        low, high = (middle, high) if two_sided_p(middle, degrees) > 1 - level else (low, middle)
    return high


def mean_interval(values: Sequence[float] | np.ndarray, level: float = LEVEL) -> list[float] | None:
    """The confidence interval of the mean of independent values; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean, half = np.mean(values), np.std(values, ddof=1) / math.sqrt(len(values))
    half *= two_sided_quantile(level, len(values) - 1)
    return [float(mean - half), float(mean + half)]


def t_test(values: Sequence[float] | np.ndarray) -> float | None:
    """The two-sided p-value of the test that the mean is 0; None for fewer than two values or if all are equal."""
    if len(values) < 2 or np.ptp(values) == 0:
        return None
    return two_sided_p(float(np.mean(values) / (np.std(values, ddof=1) / math.sqrt(len(values)))), len(values) - 1)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b) for a, b above 0, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast only on the other side
        return 1 - incomplete_beta(b, a, 1 - x)
    front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(front) / a / _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """1 + d1 / (1 + d2 / (1 + ...)), by the modified method of Lentz; m and d are those of DLMF 8.17.23."""
    value = numerator = 1.0
    denominator = 0.0
    for term in range(1, 10_000):
        m = term // 2
        if term % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1 / (1 + d * denominator)
        numerator = 1 + d / numerator
        value *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-15:
            break
    return value
