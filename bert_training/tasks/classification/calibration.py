"""Whether the probabilities of classes can be believed, and the temperature that makes them more believable.

The expected calibration error (ECE; Guo et al. 2017, arXiv:1706.04599) compares the probability of the predicted class
with the share of rows whose prediction is right. Rows are put into 15 bins of equal width by that probability: the
first holds those from 0 to 1/15, the next those above 1/15 up to 2/15, and so on. The ECE is the mean over the rows of
the distance, in their bin, between the share of right predictions and the mean probability. An example with 2 rows:

    probability 0.9, right     bin 14   |1 - 0.9| = 0.1
    probability 0.6, wrong     bin  9   |0 - 0.6| = 0.6      ECE = (0.1 + 0.6) / 2 = 0.35

The temperature T is one number by which all logits are divided before the softmax. It is found on validation data, by
minimising the mean negative log-likelihood of the labels. It changes no prediction, because the order of the logits
stays the same.
"""

from collections.abc import Sequence

import numpy as np

BINS = 15
LOWEST, HIGHEST = 0.05, 20.0
"""The bounds of T. Without a wrong prediction the likelihood would let T fall to 0, and without a right one rise."""


def probabilities(logits: np.ndarray, temperature: float | None = None) -> np.ndarray:
    """The softmax (rows, classes) of logits over a temperature, in float64; None stands for 1."""
    scaled = np.asarray(logits, dtype=np.float64) / (temperature or 1.0)
    powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def expected_calibration_error(shares: np.ndarray, labels: Sequence[int] | np.ndarray, bins: int = BINS) -> float:
    """The ECE of probabilities (rows, classes), from 0 to 1."""
    confidence, right = shares.max(axis=1), shares.argmax(axis=1) == np.asarray(labels)
    numbers = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(numbers, weights=right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


def find_temperature(logits: np.ndarray, labels: Sequence[int] | np.ndarray) -> float:
    """The temperature, from LOWEST to HIGHEST, with the smallest mean negative log-likelihood of the labels."""
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    logits, rows = np.asarray(logits, dtype=np.float64), np.arange(len(labels))

    def loss(temperature: float) -> float:
        return float(-log_softmax(logits / temperature, axis=1)[rows, np.asarray(labels)].mean())

    # It is convex in 1 / T, so that there is one minimum, also over log T. The search stops short of its bounds.
    bounds = (np.log(LOWEST), np.log(HIGHEST))
    options = {"xatol": 1e-7}
    found = minimize_scalar(lambda power: loss(np.exp(power)), bounds=bounds, method="bounded", options=options)
    return min((LOWEST, HIGHEST, float(np.exp(found.x))), key=loss)


def calibration_scores(
    logits: np.ndarray, labels: Sequence[int] | np.ndarray, temperature: float | None
) -> dict[str, float]:
    """``ece``, that of the probabilities which the model gives, and with a temperature also without it."""
    values = {"ece": expected_calibration_error(probabilities(logits, temperature), labels)}
    if temperature is not None:
        values["ece_uncalibrated"] = expected_calibration_error(probabilities(logits), labels)
    return values


def remark(temperature: float) -> str:
    """A line for the user about a temperature that was found."""
    line = f"temperature {temperature:.4g}: logits are divided by it, and the labels stay the same"
    if temperature in (LOWEST, HIGHEST):
        line += "; warning: the search ends there; give more validation data, or do not rely on the probabilities"
    return line
