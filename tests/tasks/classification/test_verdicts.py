"""bert_training/tasks/classification/verdicts.py: what logits say, against probabilities worked out by hand."""

from math import exp, log

import numpy as np
import pytest
from transformers import BertConfig

from bert_training.tasks.classification.trained_for import SEVERAL_LABELS
from bert_training.tasks.classification.verdicts import is_regression, judge_of

LOGITS = np.array([log(3), 0.0, log(6)], dtype=np.float32)
NAMES = {0: "red", 1: "old", 2: "small"}


@pytest.mark.parametrize(
    ("fields", "logits", "record"),
    [
        ({}, LOGITS, {"label": "small", "probabilities": {"red": 0.3, "old": 0.1, "small": 0.6}}),
        (
            {"fine_tuning": {"temperature": 0.5}},
            LOGITS,
            {"label": "small", "probabilities": {"red": 0.195652, "old": 0.021739, "small": 0.782609}},
        ),
        (
            {"problem_type": SEVERAL_LABELS, "fine_tuning": {"thresholds": [0.75, 0.5, 0.9], "temperature": 9.0}},
            LOGITS,
            {"labels": ["red", "old"], "probabilities": {"red": 0.75, "old": 0.5, "small": 0.857143}},
        ),
        ({"problem_type": "regression"}, LOGITS[:1], {"score": round(log(3), 6)}),
        # A model may give a text its only label or not; that is no score.
        ({"problem_type": SEVERAL_LABELS}, LOGITS[:1], {"labels": ["red"], "probabilities": {"red": 0.75}}),
    ],
)
def test_what_logits_say(fields, logits, record):
    config = BertConfig(id2label={number: NAMES[number] for number in range(len(logits))}, **fields)
    said = judge_of(config)(logits)
    assert said.record() == record and is_regression(config) == ("score" in record)
    ranked, shares = said.ranked(), record.get("probabilities", {})
    assert ranked.names == (sorted(shares, key=lambda name: -shares[name]) or ["red"])
    if ranked.thresholds:
        assert dict(zip(ranked.names, ranked.given)) == {name: name in record["labels"] for name in shares}


def test_outputs_that_are_not_finite():
    with pytest.raises(ValueError, match="the outputs of the model are not finite"):
        judge_of(BertConfig(id2label=NAMES))(np.array([0.0, np.nan, exp(1)]))


def test_several_scores_are_refused():
    """They would be told apart by nothing, and all but the first were lost."""
    config = BertConfig(problem_type="regression", id2label={0: "valence", 1: "arousal"})
    with pytest.raises(ValueError, match=r"gives 2 scores \(valence, arousal\), and one is expected here"):
        judge_of(config)
