"""Statistics over runs that differ in their seed or their fold only, and paired differences of two series of them."""

from collections.abc import Sequence

import numpy as np
import scipy  # scipy.stats is loaded when it is first used, which takes half a second

LEVEL = 0.95  # of confidence intervals


def statistics(values: list[float | None], constant: float | Sequence[float]) -> dict:
    """Statistics of one metric over the runs of a series.

    Args:
        values: one per run; None (the correlation of constant predictions) counts as 0.
        constant: the score of constant predictions, or that of each run. A run that is not better is degenerate.

    Returns:
        n (the number of runs), mean, std (of a sample: divided by n - 1), median, max, interval (the 95 % confidence
        interval of the mean, Student's t), degenerate (the share of degenerate runs), undefined (the number of None
        values). std and interval are None for a single run.
    """
    known = np.array([0.0 if value is None else value for value in values])
    return {
        "n": len(known),
        "mean": float(known.mean()),
        "std": float(known.std(ddof=1)) if len(known) > 1 else None,
        "median": float(np.median(known)),
        "max": float(known.max()),
        "interval": mean_interval(known),
        "degenerate": float(np.mean(known <= np.asarray(constant) + 1e-9)),
        "undefined": sum(value is None for value in values),
    }


def compare(ours: list[dict], theirs: list[dict], metrics: Sequence[str]) -> dict:
    """Paired differences, ours minus theirs, of the ``pairs_of`` two series.

    Returns:
        pairs (the number of pairs), and for every metric: mean_difference, interval (its 95 % confidence interval,
        Student's t), wins, losses, sign_test_p (exact, two-sided, without ties), t_test_p (paired; None if all
        differences are equal).
    """
    pairs = [(run["results"], other["results"]) for run, other in pairs_of(ours, theirs)]
    compared: dict = {"pairs": len(pairs)}
    for name in metrics:
        differences = np.array([(run[name] or 0.0) - (other[name] or 0.0) for run, other in pairs])
        wins, losses = int(np.sum(differences > 0)), int(np.sum(differences < 0))
        compared[name] = {
            "mean_difference": float(differences.mean()),
            "interval": mean_interval(differences),
            "wins": wins,
            "losses": losses,
            "sign_test_p": sign_test(wins, losses),
            "t_test_p": t_test(differences),
        }
    return compared


def pairs_of(ours: list[dict], theirs: list[dict]) -> list[tuple[dict, dict]]:
    """The runs of two series with equal seeds or, in cross-validations, equal folds."""
    key = "fold" if all("fold" in run for run in (*ours, *theirs)) else "seed"
    partners = {run[key]: run for run in theirs}
    return [(run, partners[run[key]]) for run in ours if run[key] in partners]


def sign_test(wins: int, losses: int) -> float:
    """The two-sided p-value of the exact binomial test that wins and losses are equally likely."""
    return float(scipy.stats.binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


def mean_interval(values: Sequence[float] | np.ndarray, level: float = LEVEL) -> list[float] | None:
    """The confidence interval of the mean of independent values (Student's t); None for fewer than two values.

    With three to ten values, the intervals of the normal distribution and of the percentile bootstrap are far too
    narrow.
    """
    if len(values) < 2:
        return None
    half = scipy.stats.sem(values) * scipy.stats.t.ppf((1 + level) / 2, len(values) - 1)
    return [float(np.mean(values) - half), float(np.mean(values) + half)]


def t_test(values: Sequence[float] | np.ndarray) -> float | None:
    """The two-sided p-value of the test that the mean is 0; None for fewer than two values or if all are equal."""
    if len(values) < 2 or np.ptp(values) == 0:
        return None
    # scipy.stats.ttest_1samp computes the same, but warns of values that differ by rounding only.
    return float(2 * scipy.stats.t.sf(abs(np.mean(values)) / scipy.stats.sem(values), len(values) - 1))
