"""The no-answer threshold of SQuAD 2.0: how it is found, stored, read and applied.

The null odds of a question are the score of "no answer" minus the score of its best span (``answers.py``). If the null
odds are above a threshold, the answer is the empty string; otherwise it is the span. The threshold passes through four
stages:

1. Found in every evaluation, by ``Answers.score``; the one found for the weights that are finally saved is stored.
   ``find_best_threshold`` is the search of the official script and gives the reported ``best_exact``, ``best_f1`` and
   their ``..._thresh``. ``find_threshold_to_store`` is ours, for F1; its docstring names the cases in which the two
   differ. Both searches need the answers before any threshold is applied. The threshold is chosen on the questions
   that it is then measured on, so the scores with it are slightly too good.
2. Stored by ``store_threshold``, which run_squad.py calls: in the model's config,
   under the name of Google's flag, ``null_score_diff_threshold``. A model that was last fine-tuned on SQuAD 1.1 has
   none.
3. Read when the model is asked: ``stored_threshold`` for ``bert-repro ask`` and for run_squad.py without
   training data.
4. Applied by ``gives_no_answer`` to the answers of predictions.json, and by ``apply_threshold`` to scores. Training:
   the flag ``--null_score_diff_threshold``, else 0, which ``SquadArguments`` fills in. Evaluation only: the flag, else
   the stored threshold, else 0 (``threshold_of_evaluation``).

Both searches take, for each question id, a score from 0 to 1 of the answer before any threshold is applied. For a
question that has no answer, the empty answer scores 1.
"""

import itertools
import math
from collections.abc import Mapping

from transformers import PretrainedConfig

from bert_training.tasks.stored_flags import THRESHOLD

FIELD = THRESHOLD  # the evaluation reports it as eval_ + this name


def gives_no_answer(null_odds: float, threshold: float) -> bool:
    """Whether the answer to a question with these null odds is the empty string."""
    return null_odds > threshold


def apply_threshold(
    scores: Mapping[str, float],
    null_odds: Mapping[str, float] | None,
    has_answer: Mapping[str, bool],
    threshold: float | None,
) -> dict[str, float]:
    """The scores when answers with null odds above the threshold are emptied.

    Without null odds or a threshold, a copy of the scores is returned.
    """
    if null_odds is None or threshold is None:
        return dict(scores)
    return {
        id_: float(not has_answer[id_]) if gives_no_answer(null_odds[id_], threshold) else score
        for id_, score in scores.items()
    }


def find_best_threshold(
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
    has_answer: Mapping[str, bool],
) -> tuple[float, float]:
    """The search of the official script (``find_best_thresh`` of evaluate-v2.0.py), with its results.

    It starts with every answer empty and then raises the threshold: answers are admitted in rising order of null odds.
    As in the official script, a question whose score is the same with and without its answer changes nothing, and among
    questions with equal null odds the search may stop in the middle.

    Returns:
        The best average score over all thresholds, in per cent, and the lowest threshold that reaches it. If it is best
        to give no answers at all, the threshold is 0.
    """
    current = best = float(sum(not has for has in has_answer.values()))
    threshold = 0.0
    for id_ in sorted((id_ for id_ in null_odds if id_ in scores), key=null_odds.__getitem__):
        if has_answer[id_]:
            current += scores[id_]
        elif predictions[id_]:
            current -= 1
        if current > best:
            best, threshold = current, null_odds[id_]
    return 100.0 * best / len(scores), threshold


def find_threshold_to_store(
    scores: Mapping[str, float], null_odds: Mapping[str, float], has_answer: Mapping[str, bool]
) -> float:
    """The lowest threshold with which the answers reach the best average score that any threshold gives.

    The official search returns another threshold in two cases: it may stop among questions with equal null odds,
    which no threshold separates; and if it is best to give no answers at all, it returns 0. In the second case this
    function returns a threshold below all null odds.
    """
    threshold = math.nextafter(min(null_odds[id_] for id_ in scores) - 1.0, -math.inf)
    current = best = 0.0
    for odds, ids in itertools.groupby(sorted(scores, key=null_odds.__getitem__), key=null_odds.__getitem__):
        current += sum(scores[id_] - (not has_answer[id_]) for id_ in ids)
        if current > best:
            best, threshold = current, odds
    return threshold


def store_threshold(config: PretrainedConfig, version_2_with_negative: bool, results: Mapping[str, float]) -> None:
    """Write the threshold that the evaluation found to ``config``.

    For version 1.1, a threshold left by an earlier fine-tuning is removed; with it the model would refuse to answer.

    Args:
        results: the results of the kept weights, in version 2 with ``eval_null_score_diff_threshold``.
    """
    vars(config).pop(FIELD, None)
    if version_2_with_negative:
        setattr(config, FIELD, results[f"eval_{FIELD}"])


def stored_threshold(config: PretrainedConfig) -> float | None:
    """The threshold stored with a model; None for a model that answers every question."""
    return getattr(config, FIELD, None)


def threshold_of_evaluation(given: float | None, config: PretrainedConfig) -> tuple[float, str]:
    """The threshold to apply, and where it is from, in words for the user.

    Args:
        given: the value of ``--null_score_diff_threshold``; None only if a model is evaluated without this flag.
        config: the config of the model.
    """
    if given is not None:
        return given, "--null_score_diff_threshold"
    stored = stored_threshold(config)
    return (0.0, "because the model stores none") if stored is None else (stored, "stored with the model")
