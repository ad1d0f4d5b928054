"""bert_training/tasks/squad/threshold.py: the official search for the no-answer threshold, and the threshold to
store.
"""

import numpy as np
import pytest

from bert_training.tasks.squad.metrics import score
from bert_training.tasks.squad.threshold import find_best_threshold, find_threshold_to_store


def random_case(rng, count: int):
    words = ["cat", "dog", "the", "black cat", "two dogs"]
    gold = {f"q{i}": list(rng.choice(words, rng.integers(0, 3))) for i in range(count)}
    predictions = {id_: str(rng.choice(["", *words])) for id_ in gold}
    odds = dict(zip(gold, rng.permutation(count).astype(float) - count / 2))
    return gold, predictions, odds


@pytest.mark.parametrize("measure", ["exact", "f1"])
def test_threshold_search_is_brute_force(measure):
    """The odds are all different. Every threshold is tried by scoring the predictions that it leaves."""
    rng = np.random.default_rng(0)
    for count in [*range(1, 12), 60]:
        gold, predictions, odds = random_case(rng, count)
        found = score(gold, predictions, True, odds)
        tried = {t: score(gold, predictions, True, odds, t)[measure] for t in [min(odds.values()) - 1, *odds.values()]}
        assert found[f"best_{measure}"] == pytest.approx(max(tried.values()), abs=1e-9)
        nothing_answered = tried[min(odds.values()) - 1]
        at = found[f"best_{measure}_thresh"]
        if found[f"best_{measure}"] > nothing_answered + 1e-9:
            assert tried[at] == pytest.approx(found[f"best_{measure}"], abs=1e-9)
            assert all(x < tried[at] - 1e-9 for t, x in tried.items() if t < at)
        else:
            assert at == 0.0


def test_threshold_search_stops_inside_equal_odds_as_officially():
    """find_best_thresh considers the questions one by one, so that it may stop between two with equal odds."""
    predictions, odds = {"a": "cat", "b": "bird"}, {"a": 1.0, "b": 1.0}
    best, at = find_best_threshold(predictions, {"a": 1.0, "b": 0.0}, odds, {"a": True, "b": False})
    assert (best, at) == (100.0, 1.0)


def test_threshold_empties_the_same_answers_as_the_post_processing():
    rng = np.random.default_rng(1)
    gold, predictions, odds = random_case(rng, 300)
    gold = {id_: [a for a in answers if a != "the"] for id_, answers in gold.items()}
    for threshold in (-100.0, -3.0, 0.0, 50.5, 1000.0):
        emptied = {id_: "" if odds[id_] > threshold else text for id_, text in predictions.items()}
        expected = score(gold, emptied, True)
        found = score(gold, predictions, True, odds, threshold)
        assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("scores", "odds", "answerable", "threshold", "official"),
    [
        ([1, 1, 0], [2, 1, 4], [True, True, False], 2, 2),
        ([1, 0, 0], [2, 1, 4], [True, True, False], 2, 2),
        ([0, 0, 1], [2, 1, 4], [True, False, False], None, 0),  # No answer at all is best.
        ([1, 0], [3, 3], [True, False], None, 3),  # Equal odds give both answers or none; the search ends between.
        ([1, 1, 0], [3, 1, 3], [True, True, False], 1, 3),
    ],
)
def test_the_threshold_to_store_gives_the_best_score_that_a_threshold_gives(
    scores, odds, answerable, threshold, official
):
    scores, odds, answerable = (dict(zip("abc", values)) for values in (scores, odds, answerable))
    found = find_threshold_to_store(scores, odds, answerable)
    assert found < min(odds.values()) if threshold is None else found == threshold

    def total(at):
        return sum(scores[i] if odds[i] <= at else not answerable[i] for i in scores)

    assert total(found) == pytest.approx(max(map(total, [-1e9, *odds.values()])))
    spans = {i: "some" if scores[i] or not answerable[i] else "" for i in scores}
    assert find_best_threshold(spans, scores, odds, answerable)[1] == official
