"""bert_training/cards/metrics.py: no result of a task is missing from the card, the curves or the report by
oversight.
"""

import numpy as np
import pytest

from bert_training.cards.metrics import METRICS, metrics_of, percent_factor
from bert_training.inputs.flags.objectives import OBJECTIVES
from bert_training.tasks.classification import multi_label_scores
from bert_training.tasks.classification import scores as classification
from bert_training.tasks.classification.glue import BUILTIN_TASKS, GLUE_TASKS
from bert_training.tasks.classification.scores import detailed_scores, metric_prefix
from bert_training.tasks.ner.metrics import span_scores, word_scores
from bert_training.tasks.squad.answers import Answers
from bert_training.tasks.squad.questions import Question

PAIR_TASKS = [objective.pairs for objective in OBJECTIVES.values() if objective.pairs]
# The results that neither cards nor pictures nor reports have: the losses of pairs in pre-training; and of SQuAD 2.0
# the exact scores, the counts, the thresholds and the scores at two of them. The scores of one type of entities are
# not listed, because their names depend on the data.
OTHER_RESULTS = frozenset({
    *(f"eval_{task.name}_loss" for task in PAIR_TASKS),
    "eval_exact", "eval_HasAns_exact", "eval_NoAns_exact", "eval_best_exact",
    "eval_total", "eval_HasAns_total", "eval_NoAns_total",
    "eval_by_class", "eval_ece_uncalibrated", "eval_temperature",
    "eval_best_exact_thresh", "eval_best_f1_thresh", "eval_null_score_diff_threshold",
    "eval_at_0_exact", "eval_at_0_f1", "eval_at_best_exact", "eval_at_best_f1",
})  # fmt: skip


def glue_results() -> set[str]:
    keys = set()
    for task in (GLUE_TASKS | BUILTIN_TASKS).values():
        splits = [split for split in task.files if split.startswith("validation")]
        keys |= {metric_prefix(split) + metric for split in splits for metric in task.metrics}
    own = {f"eval_{name}" for name in detailed_scores("ab", np.eye(2), [0, 1], 2.0)}
    return (
        keys
        | {f"eval_{name}" for name in (*classification.METRICS, *multi_label_scores.METRICS)}
        | own
        | {"eval_loss", "eval_temperature"}
    )


def squad_results() -> set[str]:
    questions = [Question("a", "q", "It is here.", (("here", 6),)), Question("b", "q", "It is here.", ())]
    first = Answers({"a": "here"}, {"a": "here"})
    second = Answers(dict.fromkeys("ab", "here"), dict.fromkeys("ab", "here"), null_odds={"a": -1.0, "b": 1.0})
    return {f"eval_{name}" for name in {*first.score(questions[:1]), *second.score(questions)}}


def ner_results() -> set[str]:
    scores = span_scores([["B-PER", "O"]], [["B-PER", "O"]]) | word_scores([["NN"]], [["NN"]])
    return {f"eval_{name}" for name in scores if name != "types"} | {"eval_loss"}


def swag_results() -> set[str]:
    return {"eval_accuracy", "eval_loss"}


def pretraining_results() -> set[str]:
    masked = {"eval_loss", "eval_mlm_loss", "eval_mlm_accuracy", "eval_perplexity"}
    return masked | {f"eval_{task.name}_{kind}" for task in PAIR_TASKS for kind in ("loss", "accuracy")}


RESULTS = {
    "run_glue.py": glue_results,
    "run_squad.py": squad_results,
    "run_ner.py": ner_results,
    "run_swag.py": swag_results,
    "run_pretraining.py": pretraining_results,
}


@pytest.mark.parametrize("script", RESULTS)
def test_every_result_of_a_task_is_in_the_table_or_left_out_on_purpose(script):
    keys = RESULTS[script]()
    assert keys and keys - set(METRICS) - OTHER_RESULTS == set()


def test_no_row_is_about_a_result_that_no_task_has():
    keys = {key for results in RESULTS.values() for key in results()}
    assert (set(METRICS) | OTHER_RESULTS) - keys == set()
    assert set(METRICS) & OTHER_RESULTS == set()


def test_only_scores_of_squad_are_recorded_in_per_cent():
    assert percent_factor(["eval_exact_match", "eval_f1"]) == 1 and percent_factor(["eval_f1"]) == 100
    assert metrics_of(["eval_exact_match", "eval_f1"])["eval_f1"].card_name == "F1, per cent"
    assert metrics_of(["eval_f1"])["eval_f1"].card_name == "F1"
