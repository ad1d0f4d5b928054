"""The plan of an epoch is bit for bit what the first implementation made, so that old runs go on with the same data.

golden_plans.json has the hashes of its plans (tests/helpers/made_up_corpora.py: hash_of), recorded before the code was
made faster. A change that is meant to alter plans breaks every run that has begun; record it again only then.
"""

import json
from pathlib import Path

import pytest

from bert_training.pretraining.segments import PLANNERS
from tests.helpers.made_up_corpora import CORPORA, LARGE, hash_of, made_up

GOLDEN = json.loads(Path(__file__).with_name("golden_plans.json").read_text())
SLOW = ("many", "long documents", *LARGE)


def check(name: str, segments: str) -> None:
    corpus, planners, checked = made_up(*(CORPORA | LARGE)[name]), {}, 0
    for key, expected in GOLDEN.items():
        corpus_name, planner_name, *settings, variant = key.split("/")
        if (corpus_name, planner_name) != (name, segments):
            continue
        seed, length, short = int(settings[0]), int(settings[1]), float(settings[2])
        planner = planners.setdefault(tuple(settings), PLANNERS[segments](corpus, seed, 10, length - 3, short))
        assert hash_of(planner(int(variant))) == expected, key
        checked += 1
    assert checked == (2 if name in LARGE else 6)


@pytest.mark.parametrize("name", [name for name in CORPORA if name not in SLOW])
@pytest.mark.parametrize("segments", ["next_or_random", "in_order_or_swapped", "packed"])
def test_plans_are_those_of_the_first_implementation(name, segments):
    check(name, segments)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("segments", ["next_or_random", "in_order_or_swapped", "packed"])
def test_plans_of_large_corpora_are_those_of_the_first_implementation(name, segments):
    check(name, segments)


def test_every_golden_plan_is_checked():
    names = {key.split("/")[0] for key in GOLDEN}
    assert names == {*CORPORA, *LARGE} and len(GOLDEN) == len(CORPORA) * 3 * 6 + len(LARGE) * 3 * 2
