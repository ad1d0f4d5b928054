"""None of these: the threshold and its effects against what is counted by hand."""

import numpy as np
import pytest
from transformers import BertConfig

from bert_training.tasks.classification.abstention import abstention, find_threshold
from bert_training.tasks.classification.verdicts import judge_of

HIGHEST, RIGHT, OTHERS = (0.9, 0.7, 0.6, 0.4), (True, True, False, True), (0.8, 0.3)


def shares(highest) -> np.ndarray:
    """Of four classes, of which the first is the most probable."""
    return np.array([[one, *[(1 - one) / 3] * 3] for one in highest])


LABELS = [0 if right else 1 for right in RIGHT]


def test_the_example_of_the_module():
    found = abstention(shares(HIGHEST), LABELS, 0.5, shares(OTHERS))
    table = found.pop("risk_coverage")
    assert found == {
        "threshold": 0.5,
        "coverage": 0.75,
        "accuracy": pytest.approx(2 / 3),
        "right": 0.5,
        "other_recall": 0.5,
    }
    assert table[0] == {"threshold": 0.4, "coverage": 1.0, "accuracy": 0.75, "right": 0.75, "other_recall": 0.5}
    assert table[-1] == {"threshold": 0.7, "coverage": 0.5, "accuracy": 1.0, "right": 0.5, "other_recall": 0.5}
    assert "other_recall" not in abstention(shares(HIGHEST), LABELS, 0.5)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_threshold_treats_more_rows_rightly(seed):
    random = np.random.default_rng(seed)
    rows, others = random.dirichlet(np.ones(3), 60).round(1), random.dirichlet(3 * np.ones(3), 20).round(1)
    labels = random.integers(0, 3, 60)

    def treated(below: float) -> int:
        right = (rows.argmax(1) == labels) & (rows.max(1) >= below)
        return int(right.sum() + (others.max(1) < below).sum())

    found = find_threshold(rows, labels, others)
    assert treated(found) == max(treated(below) for below in np.linspace(0, 1, 201)) and 0 <= found <= 1


def test_without_other_texts_nineteen_of_twenty_right_answers_reach_the_threshold():
    highest = np.linspace(0.5, 0.99, 101)
    below = find_threshold(shares(highest), [0] * 101)
    assert (highest >= below).sum() == 96
    assert find_threshold(shares([0.9]), [1]) == 0.0  # no answer is right


def test_a_model_with_a_threshold_may_say_none():
    judge = judge_of(BertConfig(id2label={0: "red", 1: "old"}, fine_tuning={"abstain_below": 0.75}))
    assert judge(np.log([3.0, 1.0])).record()["label"] == "red"
    said = judge(np.log([1.0, 2.9])).record()
    assert said["label"] is None and said["abstain_below"] == 0.75 and said["probabilities"]["old"] > 0.74
