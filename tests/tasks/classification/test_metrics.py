"""The metrics of GLUE are those of scikit-learn and scipy, and those worked by hand."""

import math

import numpy as np
import pytest

from bert_training.tasks.classification.metrics import METRICS, accuracy, f1, matthews_correlation, pearson, spearmanr


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


@pytest.mark.filterwarnings("ignore:A single label was found")
@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_classification_equals_scikit_learn(classes, size):
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng([classes, size])
    for _ in range(20):
        references = rng.integers(0, classes, size)
        predictions = np.where(rng.random(size) < 0.5, references, rng.integers(0, classes, size))
        assert accuracy(predictions, references) == sklearn.accuracy_score(references, predictions)
        expected = sklearn.matthews_corrcoef(references, predictions)
        assert matthews_correlation(predictions, references) == pytest.approx(expected, abs=1e-12)
        if classes == 2:
            expected = sklearn.f1_score(references, predictions, zero_division=0.0)
            assert f1(predictions, references) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("size", [3, 10, 1500])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_correlations_equal_scipy(size, scale):
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(size)
    for _ in range(10):
        references = np.round(rng.uniform(0, 5, size), 1)  # Many labels of STS-B are equal.
        predictions = references + rng.normal(size=size)
        expected = stats.pearsonr(predictions, references).statistic
        assert pearson(scale * predictions, references) == pytest.approx(expected, abs=1e-12)
        expected = stats.spearmanr(predictions, references).statistic
        assert spearmanr(scale * predictions, references) == pytest.approx(expected, abs=1e-12)


def test_large_counts_do_not_overflow():
    # The product under the root is 1.6e23 * 1.6e23, which needs more than 64 bits; its factors are above 2**53.
    references = np.arange(400_000) % 2
    predictions = references.copy()
    predictions[:40_000] = 1 - predictions[:40_000]
    assert matthews_correlation(predictions, references) == pytest.approx(0.8, abs=1e-12)


def test_metrics_of_constant_predictions():
    always_one = np.ones(10, dtype=int)
    references = np.arange(10) % 2
    assert matthews_correlation(always_one, references) == 0.0
    assert f1(1 - always_one, 1 - always_one) == 0.0
    assert f1(1 - always_one, references) == 0.0
    assert math.isnan(pearson(always_one, references))
    assert math.isnan(spearmanr(references, always_one))
    assert pearson([0.1, 0.2, 0.3], [1.1, 1.2, 1.3]) <= 1.0


@pytest.mark.parametrize("name", METRICS)
def test_unfit_input_is_refused(name):
    for predictions, references in (([1, 0], [1]), ([], []), ([[1]], [[1]])):
        with pytest.raises(ValueError, match="equally long, non-empty"):
            METRICS[name](predictions, references)
    with pytest.raises(ValueError, match="predictions hold NaN"):
        METRICS[name]([math.nan, 1.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="references hold NaN"):
        METRICS[name]([0.0, 1.0], [math.inf, 1.0])


def test_evaluate_metrics_work_offline(tmp_path):
    evaluate = pytest.importorskip("evaluate")
    from bert_training.tasks import evaluate_metrics as wrapped

    predictions, references = [1, 1, 1, 0, 0, 0, 1, 0], [1, 1, 0, 0, 0, 1, 1, 1]
    metric = wrapped.GlueMetric("mrpc", cache_dir=str(tmp_path))
    assert isinstance(metric, evaluate.Metric)
    assert metric.compute(predictions=predictions, references=references) == {
        "accuracy": accuracy(predictions, references),
        "f1": f1(predictions, references),
    }
    metric.add(prediction=1, reference=1)
    metric.add_batch(predictions=[0, 0], references=[0, 1])
    assert metric.compute() == {"accuracy": 2 / 3, "f1": 2 / 3}
    classes = {
        wrapped.Accuracy: "accuracy",
        wrapped.F1: "f1",
        wrapped.MatthewsCorrelation: "matthews_correlation",
        wrapped.Pearson: "pearson",
        wrapped.Spearman: "spearmanr",
    }
    for cls, name in classes.items():
        value = cls(cache_dir=str(tmp_path)).compute(predictions=predictions, references=references)
        assert value == {name: METRICS[name](predictions, references)}
    with pytest.raises(ValueError, match=r"expected a task out of cola.*got 'glue'"):
        wrapped.GlueMetric("glue", cache_dir=str(tmp_path))
