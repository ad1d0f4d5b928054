"""bert_training/cards/metrics.py: which scores are recorded in per cent."""

from bert_training.cards.metrics import metrics_of, percent_factor


def test_only_scores_of_squad_are_recorded_in_per_cent():
    assert percent_factor(["eval_exact_match", "eval_f1"]) == 1 and percent_factor(["eval_f1"]) == 100
    assert metrics_of(["eval_exact_match", "eval_f1"])["eval_f1"].card_name == "F1, per cent"
    assert metrics_of(["eval_f1"])["eval_f1"].card_name == "F1"
