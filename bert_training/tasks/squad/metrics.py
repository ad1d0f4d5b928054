"""The official SQuAD scores, 1.1 (evaluate-v1.1.py) and 2.0 (evaluate-v2.0.py), as plain functions.

Answers are compared as bags of words after lower-casing and after removing punctuation and articles; a prediction
is compared with the gold answer that gives the best score. Predictions and gold answers are keyed by question id; an
empty string means "there is no answer". They are written by hand because those two scripts define them, no library
contains them.
"""

import re
import string
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_training.inputs.reading import read_object
from bert_training.tasks.squad.threshold import apply_threshold, find_best_threshold
from tokenization.errors import UserError

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, articles and extra white space, in this order."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> float:
    """1.0 if the two are equal after normalisation, otherwise 0.0."""
    return float(normalize_answer(prediction) == normalize_answer(gold))


def f1_v1(prediction: str, gold: str) -> float:
    """Word-overlap F1 of SQuAD 1.1: 0 if either side is empty after normalisation, even if both are."""
    predicted, expected = normalize_answer(prediction).split(), normalize_answer(gold).split()
    common = sum((Counter(predicted) & Counter(expected)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(expected)
    return 2 * precision * recall / (precision + recall)


def f1_v2(prediction: str, gold: str) -> float:
    """Word-overlap F1 of SQuAD 2.0: as in 1.1, but 1 if both sides are empty after normalisation."""
    if not normalize_answer(prediction) or not normalize_answer(gold):
        return exact_match(prediction, gold)
    return f1_v1(prediction, gold)


def score(
    gold: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    version_2_with_negative: bool = False,
    null_odds: Mapping[str, float] | None = None,
    threshold: float | None = None,
) -> dict[str, float]:
    """The scores of the official script, in per cent, under its names.

    Args:
        gold: the answers of every question; in version 2 an unanswerable question has none.
        predictions: one answer per question; with ``null_odds``, the answers before any threshold is applied.
        null_odds: version 2: larger for questions that are more likely to have no answer.
        threshold: version 2: predictions whose null odds are above it count as empty.

    Returns:
        Version 1.1: exact_match, f1 over all questions. Version 2: exact, f1, total, the same with the prefixes
        HasAns_ and NoAns_ if there are such questions, and with ``null_odds`` also best_exact, best_exact_thresh,
        best_f1, best_f1_thresh.

    Raises:
        UserError: predictions or null odds are missing, or arguments of version 2 are given for version 1.1. In version
            1.1, a missing prediction scores 0 with a warning on stderr, as in the official script, unless all are
            missing.
    """
    if (threshold is not None and null_odds is None) or (null_odds is not None and not version_2_with_negative):
        raise UserError("a threshold needs null odds, and null odds belong to SQuAD 2.0: set version_2_with_negative")
    _check_ids(gold, predictions, "predictions", need_all=version_2_with_negative)
    if not version_2_with_negative:
        return _score_v1(gold, predictions)
    if null_odds is not None:
        _check_ids(gold, null_odds, "null odds", need_all=True)
    return _score_v2(gold, predictions, null_odds, threshold)


def _check_ids(gold: Mapping, given: Mapping, what: str, need_all: bool) -> None:
    missing = [id_ for id_ in gold if id_ not in given]
    if missing and (need_all or len(missing) == len(gold)):
        raise UserError(
            f"{what} of {len(missing)} of {len(gold)} questions are missing, the first is {missing[0]!r}; "
            "give one for every question id of the data"
        )
    others = len(given) - (len(gold) - len(missing))
    for count, told in (
        (len(missing), "questions have no prediction and score 0, as in the official script"),
        (others, f"{what} for questions that the data does not have are ignored"),
    ):
        if count:
            print(f"warning: {count} {told}", file=sys.stderr)


def _score_v1(gold: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    exact, f1 = 0.0, 0.0
    for id_, answers in gold.items():
        if id_ in predictions:
            exact += max(exact_match(predictions[id_], answer) for answer in answers)
            f1 += max(f1_v1(predictions[id_], answer) for answer in answers)
    return {"exact_match": 100.0 * exact / len(gold), "f1": 100.0 * f1 / len(gold)}


def _score_v2(
    gold: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None,
    threshold: float | None,
) -> dict[str, float]:
    has_answer = {id_: bool(answers) for id_, answers in gold.items()}
    exact, f1 = (
        {id_: score_answer(name, answers, predictions[id_]) for id_, answers in gold.items()}
        for name in ("exact", "f1")
    )
    exact_now = apply_threshold(exact, null_odds, has_answer, threshold)
    f1_now = apply_threshold(f1, null_odds, has_answer, threshold)
    result = _averages(exact_now, f1_now, list(gold))
    for prefix, wanted in (("HasAns", True), ("NoAns", False)):
        ids = [id_ for id_ in gold if has_answer[id_] is wanted]
        if ids:
            result |= {f"{prefix}_{name}": value for name, value in _averages(exact_now, f1_now, ids).items()}
    if null_odds is not None:
        for name, scores in (("exact", exact), ("f1", f1)):
            best, at = find_best_threshold(predictions, scores, null_odds, has_answer)
            result |= {f"best_{name}": best, f"best_{name}_thresh": at}
    return result


def score_answer(name: str, gold: Sequence[str], prediction: str) -> float:
    """ "exact" or "f1" of one answer by the rules of version 2, from 0 to 1; ``gold`` is empty if there is none."""
    measure = exact_match if name == "exact" else f1_v2
    # As in the official script, gold answers that are empty after normalisation are skipped; "" is right without any.
    answers = [answer for answer in gold if normalize_answer(answer)] or [""]
    return max(measure(prediction, answer) for answer in answers)


def _averages(exact: Mapping[str, float], f1: Mapping[str, float], ids: Sequence[str]) -> dict[str, float]:
    total = len(ids)
    return {
        "exact": 100.0 * sum(exact[id_] for id_ in ids) / total,
        "f1": 100.0 * sum(f1[id_] for id_ in ids) / total,
        "total": total,
    }


def read_predictions(path: str | Path) -> dict[str, str]:
    """Read a JSON object of question id -> answer text. Raises UserError for anything else."""
    return _read_object(path, lambda value: isinstance(value, str), "an answer text")


def read_numbers(path: str | Path) -> dict[str, float]:
    """Read a JSON object of question id -> number. Raises UserError for anything else."""
    return _read_object(
        path, lambda value: type(value) in (int, float) and abs(value) <= sys.float_info.max, "a number"
    )


def _read_object(path: str | Path, fits: Callable[[Any], bool], what: str) -> dict[str, Any]:
    content = read_object(Path(path))
    if wrong := {id_: value for id_, value in content.items() if not fits(value)}:
        raise UserError(f"{path}: expected one JSON object, question id -> {what}; got {wrong!r:.80}; correct it")
    return content
