"""lab/paper/verdicts.py judges the claims of the paper, here on numbers worked out by hand."""

import math

import pytest

from lab.paper.experiments import EXPERIMENTS
from lab.paper.published import CHECKPOINTS, Claim, Contrast, Term, better
from lab.paper.verdicts import CONTRADICTED, HOLDS, UNDECIDED, Column, judge, wide_level

PAIR, QA = Column("pair", "pair", 50.0), Column("qa", "qa", 0.0)
CLOSE = Contrast((Term(1, "a"), Term(-1, "b")), "above", -1.0)
CLAIM = Claim("a is better than b", "p. 1", (better("a", "b"),), ("pair", "qa"))


def scores(pair: list[float], qa: list[float] | None = None) -> dict:
    """The scores of the rows a and b. Those of b are always 60, so that the differences are the given numbers."""
    columns = {"pair": pair} | ({"qa": qa} if qa else {})
    by_cell = {("a", key): [60 + value for value in values] for key, values in columns.items()}
    return by_cell | {("b", key): [60.0] * len(values) for key, values in columns.items()}


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
    verdict, (alone,) = judge(CLAIM, [PAIR], scores(below))
    assert verdict == CONTRADICTED and alone.wide_interval == alone.interval
    verdict, (first, _) = judge(CLAIM, [PAIR, QA], scores(below, [2.0, 2.5, 3.0]))
    assert verdict == UNDECIDED and wide_level(2) == pytest.approx(0.975)
    half = 6.20535 * 0.9 / math.sqrt(3)
    assert first.wide_interval == pytest.approx([-2.5 - half, -2.5 + half], rel=1e-4)
    assert first.interval == alone.interval


def test_differences_within_a_margin_hold():
    same = Claim("a is like b", "p. 1", (Contrast((Term(1, "a"), Term(-1, "b")), "within", 1.0),), ("pair",))
    for differences, verdict in (
        ([0.1, -0.1, 0.05], HOLDS),
        ([0.5, -0.5, 0.9], UNDECIDED),
        ([2.0, 2.1, 2.2], CONTRADICTED),
        ([-2.0, -2.1, -2.2], CONTRADICTED),
    ):
        assert judge(same, [PAIR], scores(differences))[0] == verdict


@pytest.mark.parametrize("contrast", [Contrast((Term(1, "a"), Term(-1, "b")), "within", 1.0), CLOSE])
def test_models_that_have_learnt_nothing_are_not_equal(contrast):
    claim = Claim("a is like b", "p. 1", (contrast,), ("pair",))
    for a, b, verdict in (
        ([60.0, 60.1, 60.2], [60.0, 60.0, 60.0], HOLDS),
        ([50.0, 50.0, 50.0], [50.0, 50.0, 50.0], UNDECIDED),
        ([50.4, 50.6, 50.5], [50.4, 50.4, 50.4], UNDECIDED),  # Constant predictions of the first rows of a set.
        ([52.5, 52.6, 52.7], [51.9, 51.9, 51.9], UNDECIDED),  # b is not more than 2 above constant predictions.
        ([50.0, 50.1, 50.2], [70.0, 70.0, 70.0], CONTRADICTED),  # a has learnt nothing, and b has.
        ([40.0, 40.1, 40.2], [50.0, 50.0, 50.0], UNDECIDED),
    ):
        found, (judged,) = judge(claim, [PAIR], {("a", "pair"): a, ("b", "pair"): b})
        means = {"a[pair]": sum(a) / 3, "b[pair]": sum(b) / 3}
        assert found == verdict
        assert set(judged.not_learnt) == {name for name, mean in means.items() if mean <= 52}


def test_a_bound_may_be_below_zero():
    close = Claim("a is less than 1 behind", "p. 1", (CLOSE,), ("qa",))
    assert judge(close, [QA], scores([0.0] * 3, [-0.3, -0.4, -0.2]))[0] == HOLDS
    assert judge(close, [QA], scores([0.0] * 3, [-3.0, -3.1, -2.9]))[0] == CONTRADICTED


def test_checkpoints_are_compared_at_equal_steps():
    claim = EXPERIMENTS["figure5"].published.claims[1]
    columns = [Column("pair", "pair", 50.0, number) for number in range(1, CHECKPOINTS + 1)]
    by_cell = {("mlm", column.key): [50.0 + number * column.checkpoint for number in (4, 4.1)] for column in columns}
    by_cell |= {("ltr", column.key): [60.0 + column.checkpoint] * 2 for column in columns}
    verdict, (judged,) = judge(claim, columns, by_cell)
    assert verdict == HOLDS and judged.values == pytest.approx((4 * 4 - 4, 4 * 4.1 - 4))


def test_a_claim_without_a_column_cannot_be_told():
    assert judge(CLAIM, [Column("ppl", "ppl")], {}) == (UNDECIDED, [])


def test_claims_name_rows_of_their_table_and_a_page():
    for table in (experiment.published for experiment in EXPERIMENTS.values()):
        rows = {row.name for row in table.rows}
        assert table.reference in rows and table.claims
        for claim in table.claims:
            assert {term.row for contrast in claim.contrasts for term in contrast.terms} <= rows
            assert "p. " in claim.place
            assert all(sum(term.sign for term in contrast.terms) == 0 for contrast in claim.contrasts)


KINDS = {  # of the paper's columns
    "MNLI-m": "pair",
    "MNLI": "pair",
    "QNLI": "pair",
    "MRPC": "paraphrase",
    "SST-2": "classification",
    "SQuAD 1.1 F1": "qa",
    "LM (ppl)": "ppl",
    "CoNLL-2003 dev F1": "tags",
    "NER fine-tuned": "tags",
    "NER features": "features",
}


@pytest.mark.parametrize("table", ["5", "6", "7", "8"])
def test_the_papers_claims_are_true_of_its_own_numbers(table):
    """A wrong sign, a wrong row or a mistyped number would be seen here. One claim has an exception: on MNLI-m the
    BiLSTM changes nothing.
    """
    published = EXPERIMENTS[table].published
    columns = [Column(name, KINDS[name]) for name in published.columns]
    by_cell = {
        (row.name, name): [score]
        for row in published.rows
        for name, score in zip(published.columns, row.scores, strict=True)
    }
    for claim in published.claims:
        _, contrasts = judge(claim, columns, by_cell)
        assert contrasts
        for contrast in contrasts:
            bound = float(contrast.text.rpartition("above ")[2]) if "above" in contrast.text else None
            if contrast.text == "ltr[MNLI-m] - ltr_bilstm[MNLI-m] above 0":
                assert contrast.mean == 0
            elif bound is not None:
                assert contrast.mean > bound, contrast.text
            else:
                assert abs(contrast.mean) < 0.6 + 1e-9, contrast.text


def test_table_5_is_that_of_the_paper():
    """The numbers were typed a second time."""
    assert [row.scores for row in EXPERIMENTS["5"].published.rows] == [
        (84.4, 88.4, 86.7, 92.7, 88.5),
        (83.9, 84.9, 86.5, 92.6, 87.9),
        (82.1, 84.3, 77.5, 92.1, 77.8),
        (82.1, 84.1, 75.7, 91.6, 84.9),
    ]


def test_a_claim_about_the_last_steps_names_their_share():
    """The paper compares half of the steps with all of them; there is no checkpoint at the half."""
    claim = EXPERIMENTS["figure5"].published.claims[0]
    assert {term.checkpoint for term in claim.contrasts[0].terms} == {3, 5} and CHECKPOINTS == 5
    assert claim.text.startswith("The last two fifths of the steps")
