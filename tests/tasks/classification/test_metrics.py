"""The metrics of GLUE are those worked by hand, also where scikit-learn and scipy warn or have no value."""

import math

import numpy as np
import pytest

from bert_training.tasks.classification.scores import METRICS, accuracy, f1, matthews_correlation, pearson, spearmanr


def test_two_classes_worked_by_hand():
    predictions, references = [1, 1, 1, 0, 0, 0, 1, 0], [1, 1, 0, 0, 0, 1, 1, 1]
    # There are 3 true positives, 1 false positive, 2 false negatives and 2 true negatives.
    assert accuracy(predictions, references) == 5 / 8
    assert f1(predictions, references) == pytest.approx(2 * 3 / (2 * 3 + 1 + 2), abs=1e-15)
    expected = (3 * 2 - 1 * 2) / math.sqrt((3 + 1) * (3 + 2) * (2 + 1) * (2 + 2))
    assert matthews_correlation(predictions, references) == pytest.approx(expected, abs=1e-15)


def test_correlations_worked_by_hand():
    x, y = [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 5.0]
    # The deviations are -1.5 -0.5 0.5 1.5 and -1.75 0.25 -0.75 2.25. Their products add up to 5.5, their squares to 5
    # and 8.75.
    assert pearson(x, y) == pytest.approx(5.5 / math.sqrt(5 * 8.75), abs=1e-15)
    # The ranks are 1 2 3 4 and 1 3 2 4, so that rho = 1 - 6 * 2 / (4 * 15).
    assert spearmanr(x, y) == pytest.approx(0.8, abs=1e-15)
    # Equal values share their mean rank: 1 2.5 2.5 4 and 1 2 3 4. The products of the deviations add up to 4.5, the
    # squares to 4.5 and 5.
    assert spearmanr([0, 7, 7, 9], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5), abs=1e-15)


def test_logits_are_correlated_in_double_precision():
    """The scores of a model that has hardly learnt differ by less than float32 can tell from their mean."""
    rng = np.random.default_rng(0)
    predictions = (1000 + rng.normal(scale=0.01, size=1000)).astype(np.float32)
    references = rng.uniform(0, 5, 1000).astype(np.float32)
    expected = np.corrcoef(predictions.astype(np.float64), references.astype(np.float64))[0, 1]
    assert pearson(predictions, references) == pytest.approx(expected, abs=1e-12)


def test_metrics_of_constant_predictions():
    always_one = np.ones(10, dtype=int)
    references = np.arange(10) % 2
    assert matthews_correlation(always_one, references) == 0.0
    assert f1(1 - always_one, 1 - always_one) == 0.0
    assert f1(1 - always_one, references) == 0.0
    assert math.isnan(pearson(always_one, references))
    assert math.isnan(spearmanr(references, always_one))
    assert matthews_correlation([1], [1]) == 0.0 and math.isnan(pearson([1.0], [2.0]))
    assert pearson([0.1, 0.2, 0.3], [1.1, 1.2, 1.3]) <= 1.0


@pytest.mark.parametrize("name", METRICS)
def test_unfit_input_is_refused(name):
    with pytest.raises(ValueError, match="predictions hold NaN"):
        METRICS[name]([math.nan, 1.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="references hold NaN"):
        METRICS[name]([0.0, 1.0], [math.inf, 1.0])
