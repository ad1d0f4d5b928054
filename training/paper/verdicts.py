"""Whether a claim of the paper holds in our runs, by a rule that is fixed before they are made.

Every seed gives each contrast of a claim one number, because all its scores come from runs of the same seed. The seeds'
numbers have Student's interval of their mean.

- *holds*: the 95 % interval of every contrast of the claim lies where the claim puts it.
- *contradicted*: the interval of at least one lies entirely on the other side. A claim of k contrasts has k chances to
  be contradicted by accident, so these intervals have the level 1 - 0.05/k (Bonferroni). The first rule needs no such
  correction, because there all contrasts must agree.
- *cannot be told at this scale*: everything else; always with fewer than two seeds or where all seeds give the same
  number (constant predictions do), because nothing can be said about chance then; and where no model has learnt the
  task, so that "the same" would be two times nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from training.paper.published import Claim, Contrast
from training.tasks.student_t import LEVEL, mean_interval

HOLDS, CONTRADICTED, UNDECIDED = "holds", "contradicted", "cannot be told at this scale"
Scores = Mapping[tuple[str, str], Sequence[float]]  # (row, column) -> one score for each seed


@dataclass(frozen=True)
class Column:
    """A column of a table: its key in ``Scores``, its kind and, in its unit, the score of constant predictions.

    Attributes:
        checkpoint: number of the checkpoint along the way, from 1; 0 for the finished model.
        constant: None where no constant prediction has a score (a loss, a perplexity).
    """

    key: str
    kind: str
    constant: float | None = None
    checkpoint: int = 0


@dataclass(frozen=True)
class Judged:
    """A contrast on real columns. ``interval`` is that of 95 %; None for fewer than two seeds."""

    text: str
    values: tuple[float, ...]
    mean: float
    interval: list[float] | None
    verdict: str


def judge(claim: Claim, columns: Sequence[Column], scores: Scores) -> tuple[str, list[Judged]]:
    """The verdict on a claim, and the contrasts that it follows from.

    A claim about kinds of tasks that no column has cannot be told.
    """
    parts = [
        (contrast, kind_columns)
        for contrast in claim.contrasts
        for kind_columns in _choices(contrast, claim.kinds, columns)
    ]
    judged = [judge_contrast(contrast, found, scores, len(parts)) for contrast, found in parts]
    verdicts = {one.verdict for one in judged}
    if CONTRADICTED in verdicts:
        return CONTRADICTED, judged
    return (HOLDS if verdicts == {HOLDS} else UNDECIDED), judged


def judge_contrast(contrast: Contrast, columns: Sequence[Column], scores: Scores, of: int = 1) -> Judged:
    """One contrast.

    Args:
        columns: of each term of the contrast.
        of: the number of contrasts of the claim.
    """
    terms = [(factor, row, column) for (factor, row, _), column in zip(contrast.terms, columns, strict=True)]
    values = [
        sum(factor * score for (factor, _, _), score in zip(terms, of_seed, strict=True))
        for of_seed in zip(*(scores[row, column.key] for _, row, column in terms), strict=True)
    ]
    mean = sum(values) / len(values)
    interval = mean_interval(values)
    strict_interval = mean_interval(values, 1 - (1 - LEVEL) / of)
    verdict = UNDECIDED
    varied = max(values) - min(values) > 1e-9
    if interval and strict_interval and varied and _learnt(contrast, terms, scores):
        if _inside(contrast, interval):
            verdict = HOLDS
        elif _outside(contrast, strict_interval):
            verdict = CONTRADICTED
    return Judged(_in_words(contrast, terms), tuple(values), mean, interval, verdict)


def _choices(contrast: Contrast, kinds: Sequence[str], columns: Sequence[Column]) -> list[list[Column]]:
    """The columns of the terms of a contrast, once for every task that the claim is about."""
    found = []
    for task in dict.fromkeys(column.key.partition("@")[0] for column in columns if column.kind in kinds):
        own = {column.checkpoint: column for column in columns if column.key.partition("@")[0] == task}
        numbers = [int(name.partition("@")[2] or 0) for _, _, name in contrast.terms]
        if all(number in own for number in numbers):
            found.append([own[number] for number in numbers])
    return found


def _inside(contrast: Contrast, interval: Sequence[float]) -> bool:
    low, high = interval
    if contrast.says == "within":
        return -contrast.bound < low and high < contrast.bound
    return low > contrast.bound


def _outside(contrast: Contrast, interval: Sequence[float]) -> bool:
    low, high = interval
    if contrast.says == "within":
        return high < -contrast.bound or low > contrast.bound
    return high < contrast.bound


def _learnt(contrast: Contrast, terms: list[tuple[float, str, Column]], scores: Scores) -> bool:
    """For "within" only: whether the models of each row are, in the mean, better than constant predictions."""
    return contrast.says != "within" or all(
        column.constant is None or sum(scores[row, column.key]) / len(scores[row, column.key]) > column.constant + 1e-9
        for _, row, column in terms
    )


def _in_words(contrast: Contrast, terms: list[tuple[float, str, Column]]) -> str:
    signs: dict[float, str] = {1: "+", -1: "-"}
    text = " ".join(f"{signs.get(factor, f'{factor:+g} x')} {row}[{column.key}]" for factor, row, column in terms)
    bound = f"within {contrast.bound:g} of 0" if contrast.says == "within" else f"above {contrast.bound:g}"
    return f"{text.removeprefix('+ ')} {bound}"
