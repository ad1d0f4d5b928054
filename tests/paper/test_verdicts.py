"""training/paper/verdicts.py judges the claims of the paper, here on numbers worked out by hand."""

import math

import pytest

from training.paper.published import CHECKPOINTS, PUBLISHED, Claim, Contrast, better
from training.paper.verdicts import CONTRADICTED, HOLDS, UNDECIDED, Column, judge

PAIR, QA = Column("pair", "pair", 50.0), Column("qa", "qa", 0.0)
CLAIM = Claim("a is better than b", "p. 1", (better("a", "b"),), ("pair", "qa"))


def scores(pair: list[float], qa: list[float] | None = None) -> dict:
    """The scores of the rows a and b. Those of b are always 60, so that the differences are the given numbers."""
    columns = {"pair": pair} | ({"qa": qa} if qa else {})
    found = {("a", key): [60 + value for value in values] for key, values in columns.items()}
    return found | {("b", key): [60.0] * len(values) for key, values in columns.items()}


def test_the_interval_is_that_of_students_t():
    """The differences 1, 2 and 3 have the mean 2 and the deviation 1. With two degrees of freedom t is 4.3027, so the
    interval is 2 +- 4.3027 / sqrt(3).
    """
    _, (judged,) = judge(CLAIM, [PAIR], scores([1.0, 2.0, 3.0]))
    assert judged.values == (1.0, 2.0, 3.0) and judged.mean == 2
    assert judged.interval == pytest.approx([2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)], rel=1e-5)
    assert judged.verdict == UNDECIDED  # The interval begins at -0.48.


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([2.0, 2.5, 3.0], HOLDS),  # The interval is 2.5 +- 1.24.
        ([-2.0, -2.5, -3.0], CONTRADICTED),
        ([1.0, 2.0, 3.0], UNDECIDED),
        ([5.0, 6.0], UNDECIDED),  # With two seeds the interval is 5.5 +- 12.7062 / 2.
        ([5.5, 5.6], HOLDS),  # The interval is 5.55 +- 0.64.
        ([0.0, 0.0, 0.0], UNDECIDED),
        ([5.0, 5.0, 5.0], UNDECIDED),  # Equal scores have no interval; the predictions are constant.
    ],
)
def test_the_interval_of_a_contrast_decides(differences, verdict):
    assert judge(CLAIM, [PAIR], scores(differences))[0] == verdict


def test_one_seed_never_gives_a_verdict():
    for difference in (50.0, -50.0):
        verdict, (judged,) = judge(CLAIM, [PAIR], scores([difference]))
        assert verdict == judged.verdict == UNDECIDED and judged.interval is None


def test_all_contrasts_must_agree():
    yes, unsure, no = [2.0, 2.5, 3.0], [1.0, 2.0, 3.0], [-2.0, -2.2, -2.4]
    for pair, qa, verdict in ((yes, yes, HOLDS), (yes, unsure, UNDECIDED), (yes, no, CONTRADICTED)):
        assert judge(CLAIM, [PAIR, QA], scores(pair, qa))[0] == verdict


def test_many_contrasts_are_not_contradicted_by_accident():
    """The interval -2.5 +- 4.3027 * 0.9 / sqrt(3) ends at -0.26. With two contrasts the level is 1 - 0.05/2, so t is
    6.2053 and the interval ends at +0.72.
    """
    below = [-2.5 - 0.9, -2.5, -2.5 + 0.9]
    assert judge(CLAIM, [PAIR], scores(below))[0] == CONTRADICTED
    assert judge(CLAIM, [PAIR, QA], scores(below, [2.0, 2.5, 3.0]))[0] == UNDECIDED


def test_differences_within_a_margin_hold():
    same = Claim("a is like b", "p. 1", (Contrast(((1, "a", "*"), (-1, "b", "*")), "within", 1.0),), ("pair",))
    for differences, verdict in (
        ([0.1, -0.1, 0.05], HOLDS),
        ([0.5, -0.5, 0.9], UNDECIDED),
        ([2.0, 2.1, 2.2], CONTRADICTED),
        ([-2.0, -2.1, -2.2], CONTRADICTED),
    ):
        assert judge(same, [PAIR], scores(differences))[0] == verdict
    nothing = {("a", "pair"): [50.0, 50.0, 50.0], ("b", "pair"): [50.0, 50.0, 50.0]}
    assert judge(same, [PAIR], nothing)[0] == UNDECIDED  # They are equal because neither has learnt anything.


def test_a_bound_may_be_below_zero():
    close = Claim("a is less than 1 behind", "p. 1", (Contrast(((1, "a", "*"), (-1, "b", "*")), bound=-1.0),), ("qa",))
    assert judge(close, [QA], scores([0.0] * 3, [-0.3, -0.4, -0.2]))[0] == HOLDS
    assert judge(close, [QA], scores([0.0] * 3, [-3.0, -3.1, -2.9]))[0] == CONTRADICTED


def test_checkpoints_are_compared_at_equal_steps():
    claim = PUBLISHED["figure5"].claims[1]
    columns = [Column(f"pair@{number}", "pair", 50.0, number) for number in range(1, CHECKPOINTS + 1)]
    found = {("mlm", column.key): [50.0 + number * column.checkpoint for number in (4, 4.1)] for column in columns}
    found |= {("ltr", column.key): [60.0 + column.checkpoint] * 2 for column in columns}
    verdict, (judged,) = judge(claim, columns, found)
    assert verdict == HOLDS and judged.values == pytest.approx((4 * 4 - 4, 4 * 4.1 - 4))


def test_a_claim_without_a_column_cannot_be_told():
    assert judge(CLAIM, [Column("ppl", "ppl")], {}) == (UNDECIDED, [])


def test_claims_name_rows_of_their_table_and_a_page():
    for table in PUBLISHED.values():
        rows = {row.name for row in table.rows}
        assert table.reference in rows and table.claims
        for claim in table.claims:
            assert {row for contrast in claim.contrasts for _, row, _ in contrast.terms} <= rows
            assert "p. " in claim.place
            assert all(sum(factor for factor, _, _ in contrast.terms) == 0 for contrast in claim.contrasts)
