"""Student's t is that of scipy and of printed tables, and the intervals contain the mean as often as they should."""

import json
import math

import numpy as np
import pytest

from bert_training.tasks import seeds
from bert_training.tasks.student_t import incomplete_beta, mean_interval, t_test, two_sided_p, two_sided_quantile
from tests.helpers.repository import ROOT

DEGREES = (1, 2, 3, 4, 5, 7, 9, 10, 19, 29, 99, 999)
SERIES = sorted(ROOT.glob("lab/records/runs/*/summary.json"))


def test_quantiles_are_those_of_printed_tables():
    for degrees, expected in ((1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042), (120, 1.980)):
        assert two_sided_quantile(0.95, degrees) == pytest.approx(expected, abs=5e-4)


def test_closed_forms_for_one_and_two_degrees_of_freedom():
    for t in (0.0, 1e-9, 0.3, 1.0, 4.0, 1e5):
        assert two_sided_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-14)
        assert two_sided_p(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-14)
    assert (incomplete_beta(2, 3, 0.0), incomplete_beta(2, 3, 1.0)) == (0.0, 1.0)
    for level, degrees in ((0, 3), (1, 3), (0.95, 0)):
        with pytest.raises(ValueError, match="expected a level between 0 and 1 and degrees of freedom above 0"):
            two_sided_quantile(level, degrees)


def test_probabilities_and_quantiles_equal_those_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    for degrees in DEGREES:
        for t in (0, 1e-3, 0.1, 0.5, 1, 2, 3, 5, 10, 30, 100):
            assert two_sided_p(t, degrees) == pytest.approx(2 * stats.t.sf(t, degrees), rel=1e-10, abs=1e-300)
            assert two_sided_p(-t, degrees) == two_sided_p(t, degrees)
        for level in (0.01, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 0.999999):
            expected = stats.t.ppf((1 + level) / 2, degrees)
            assert two_sided_quantile(level, degrees) == pytest.approx(expected, rel=1e-9)
    rng = np.random.default_rng(0)
    for size in (2, 3, 5, 10, 30):
        values = rng.normal(0.3, size=size)
        expected = stats.ttest_1samp(values, 0)
        assert t_test(values) == pytest.approx(expected.pvalue, rel=1e-10)
        assert mean_interval(values) == pytest.approx(list(expected.confidence_interval(0.95)), rel=1e-10)


def test_values_without_spread_have_no_test():
    assert mean_interval([0.1]) is None and t_test([0.1]) is None
    assert t_test([0.1, 0.1]) is None


@pytest.mark.parametrize("n", [3, 5, 10])
def test_intervals_hold_the_mean_as_often_as_they_say(n):
    """Of 4,000 samples, the observed share is within four standard deviations of 95 %."""
    samples = np.random.default_rng(n).normal(1.5, 2.0, size=(4000, n))
    hits = np.mean([low < 1.5 < high for low, high in map(mean_interval, samples)])
    assert abs(hits - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)


@pytest.mark.parametrize("path", SERIES, ids=lambda path: path.parent.name)
def test_recorded_summaries_are_those_of_their_runs(path):
    """A record must not keep statistics that the code no longer computes."""
    summary = seeds.read_summary(path.parent)
    for run in summary["runs"]:
        results = path.parent / run["folder"] / "all_results.json"  # Of some series only the summary was kept.
        assert not results.exists() or run["results"] == json.loads(results.read_text(encoding="utf-8"))
    facts = {"splits": summary["validation"]}
    series = seeds.Series(summary["task"], facts, summary["metric"], summary["baselines"])
    expected = seeds.summarise(summary["runs"], series)
    if "comparison" in summary:
        other = ROOT / "docs" / summary["comparison"]["with"] / "summary.json"
        shared = [name for name in summary["comparison"] if name not in ("with", "pairs")]
        expected["comparison"] = {"with": summary["comparison"]["with"]}
        expected["comparison"] |= seeds.compare(summary["runs"], json.loads(other.read_text())["runs"], shared)
    found, expected = flat(summary), flat(expected)
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        assert found[path] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), path


def flat(content, path=()) -> dict:
    """Every value that is neither a list nor a dictionary, by its path."""
    if isinstance(content, dict | list):
        parts = content.items() if isinstance(content, dict) else enumerate(content)
        return {key: leaf for name, part in parts for key, leaf in flat(part, (*path, name)).items()}
    return {path: content}
