"""The expected calibration error by hand, and the temperature against torch's loss."""

import numpy as np
import pytest
import torch
from transformers import BertConfig

from bert_training.tasks.classification.calibration import (
    HIGHEST,
    LOWEST,
    calibration_scores,
    expected_calibration_error,
    find_temperature,
    probabilities,
    remark,
)
from bert_training.tasks.classification.trained_for import store_facts, stored_temperature


def test_the_error_is_that_of_a_sum_by_hand():
    """The example of the module, and one in which three rows share a bin, the last of them on its upper edge."""
    shares = np.array([[0.9, 0.1], [0.4, 0.6]])
    assert expected_calibration_error(shares, [0, 0]) == pytest.approx((0.1 + 0.6) / 2)
    # 0.74, 0.76 and 0.8 are in the bin above 11/15 up to 12/15; 0.81 is in the next one.
    shares = np.array([[0.74, 0.26], [0.76, 0.24], [0.8, 0.2], [0.81, 0.19]])
    by_bin = 3 * abs(2 / 3 - (0.74 + 0.76 + 0.8) / 3) + abs(1 - 0.81)
    assert expected_calibration_error(shares, [0, 1, 0, 0]) == pytest.approx(by_bin / 4)
    assert expected_calibration_error(np.array([[1.0, 0.0], [1.0, 0.0]]), [0, 0]) == 0.0


def test_the_temperature_minimises_the_loss_and_changes_no_label():
    random = np.random.default_rng(0)
    true = random.normal(size=(4000, 3))
    labels = [int(random.choice(3, p=row)) for row in probabilities(true)]
    logits = (2.5 * true).astype(np.float32)  # a model that is too sure by a known factor
    found = find_temperature(logits, labels)
    assert found == pytest.approx(2.5, rel=0.08)

    def loss(temperature: float) -> float:
        scaled = torch.tensor(logits, dtype=torch.float64) / temperature
        return float(torch.nn.functional.cross_entropy(scaled, torch.tensor(labels)))

    assert loss(found) < min(loss(found * 0.99), loss(found * 1.01), loss(1.0))
    torch_shares = (torch.tensor(logits, dtype=torch.float64) / found).softmax(1)
    assert np.allclose(probabilities(logits, found), torch_shares, atol=1e-14)
    assert (probabilities(logits, found).argmax(1) == logits.argmax(1)).all()
    values = calibration_scores(logits, labels, found)
    assert values["ece"] < 0.02 < 0.1 < values["ece_uncalibrated"]
    assert set(calibration_scores(logits, labels, None)) == {"ece"}
    assert np.isfinite(probabilities(np.array([[1e4, -1e4]]), LOWEST)).all()


@pytest.mark.parametrize(("label", "bound"), [(0, LOWEST), (1, HIGHEST)])
def test_without_a_mistake_or_without_a_right_answer_it_stops_at_its_bound(label, bound):
    found = find_temperature(np.array([[1.0, 0.0]] * 5), [label] * 5)
    assert found == bound
    assert "warning: the search ends there" in remark(found)
    assert "warning" not in remark(1.5)


def test_the_temperature_is_stored_with_the_model():
    config = BertConfig()
    assert stored_temperature(config) is None
    store_facts(config, temperature=1.5)
    assert stored_temperature(config) == 1.5
