"""Whether a claim of the paper holds in our runs, by a rule that is fixed before they are made.

For each seed, a contrast of a claim is one number, computed from scores of that seed only. Student's interval is that
of the mean over the seeds.

- *holds*: the 95 % interval of every contrast of the claim lies where the claim puts it. If the claim allows equality
  ("robust", "close behind"), all models that it compares must also have learnt the task.
- *contradicted*: the interval of at least one contrast lies entirely on the other side. A claim of k contrasts has k
  chances to be contradicted by accident, so these intervals have the level 1 - 0.05/k (Bonferroni). The first rule
  needs no such correction, because there all contrasts must agree. If the claim allows equality, at least one of the
  models of that contrast must have learnt the task.
- *cannot be told at this scale*: everything else. Fewer than two seeds, or seeds that all give the same number, as
  constant predictions do, always give this verdict, because nothing can then be said about chance.

A model has learnt a task if its mean score is more than ``LEARNT`` per cent above that of constant predictions.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bert_training.tasks.statistics import LEVEL, mean_interval
from lab.paper.published import Claim, Contrast

HOLDS, CONTRADICTED, UNDECIDED = "holds", "contradicted", "cannot be told at this scale"
# A margin in per cent: Column.constant is rounded and computed on the full development set; on a subset
# (--max_eval_samples) it may be higher.
LEARNT = 2.0
SAME = 1e-9  # scores that differ by no more than this are equal
Scores = Mapping[tuple[str, str], Sequence[float]]  # (name of the row, key of the column) -> a score for each seed


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        task: the key of the task, or the name of what pre-training measures itself.
        kind: one of the kinds of ``Task.kind``, "loss" or "ppl".
        constant: the score of constant predictions in the unit of the column; None where they have none (a loss, a
            perplexity).
        checkpoint: the number of the checkpoint from which the model was fine-tuned, counted from 1; 0 stands for the
            finished pre-training.
    """

    task: str
    kind: str
    constant: float | None = None
    checkpoint: int = 0

    @property
    def key(self) -> str:
        """The name of the column in ``Scores`` and in report.json, such as "pair" or "pair@3"."""
        return f"{self.task}@{self.checkpoint}" if self.checkpoint else self.task

    @property
    def compares_rows(self) -> bool:
        """False for the held-out loss: objectives predict different words, so that it is a number of each row alone."""
        return self.kind != "loss"


class Summand(NamedTuple):
    """A term of a contrast on a column of the table."""

    sign: int
    row: str
    column: Column


@dataclass(frozen=True)
class JudgedContrast:
    """A contrast on the columns of a table.

    Attributes:
        text: the contrast in words.
        values: one number for each seed.
        interval: the 95 % interval of the mean, by which the contrast holds; None for fewer than two seeds.
        wide_interval: the interval by which it is contradicted, at the level 1 - 0.05/k for k contrasts.
        not_learnt: the models (named as in ``text``) that have not learnt their task; filled only if the claim allows
            equality.
    """

    text: str
    values: tuple[float, ...]
    mean: float
    interval: list[float] | None
    wide_interval: list[float] | None
    not_learnt: tuple[str, ...]
    verdict: str


def wide_level(number_of_contrasts: int) -> float:
    """The level of the intervals by which a claim is contradicted."""
    return 1 - (1 - LEVEL) / number_of_contrasts


def judge(claim: Claim, columns: Sequence[Column], scores: Scores) -> tuple[str, list[JudgedContrast]]:
    """The verdict on a claim, and the contrasts that it follows from.

    A claim about kinds of tasks that no column has cannot be told.
    """
    parts = [
        (contrast, summands)
        for contrast in claim.contrasts
        for summands in _summands_by_task(contrast, claim.kinds, columns)
    ]
    judged = [_judge_contrast(contrast, summands, scores, len(parts)) for contrast, summands in parts]
    verdicts = {one.verdict for one in judged}
    if CONTRADICTED in verdicts:
        return CONTRADICTED, judged
    return (HOLDS if verdicts == {HOLDS} else UNDECIDED), judged


def _summands_by_task(contrast: Contrast, kinds: Sequence[str], columns: Sequence[Column]) -> list[list[Summand]]:
    """The summands of a contrast, once for every task of these kinds that has a column for each term."""
    by_task = []
    for task in dict.fromkeys(column.task for column in columns if column.kind in kinds):
        by_checkpoint = {column.checkpoint: column for column in columns if column.task == task}
        if all(term.checkpoint in by_checkpoint for term in contrast.terms):
            by_task.append([Summand(term.sign, term.row, by_checkpoint[term.checkpoint]) for term in contrast.terms])
    return by_task


def _judge_contrast(
    contrast: Contrast, summands: list[Summand], scores: Scores, number_of_contrasts: int
) -> JudgedContrast:
    """One contrast of a claim that has ``number_of_contrasts`` of them."""
    by_summand = [scores[summand.row, summand.column.key] for summand in summands]
    values = [
        sum(summand.sign * score for summand, score in zip(summands, of_seed, strict=True))
        for of_seed in zip(*by_summand, strict=True)
    ]
    interval = mean_interval(values)
    wide_interval = mean_interval(values, wide_level(number_of_contrasts))
    not_learnt: list[Summand] = []
    if contrast.allows_equality:
        not_learnt = [summand for summand in summands if not _has_learnt(summand, scores)]
    verdict = UNDECIDED
    if interval and wide_interval and max(values) - min(values) > SAME:
        if _inside(contrast, interval) and not not_learnt:
            verdict = HOLDS
        elif _outside(contrast, wide_interval) and len(not_learnt) < len(summands):
            verdict = CONTRADICTED
    return JudgedContrast(
        text=_contrast_text(contrast, summands),
        values=tuple(values),
        mean=statistics.fmean(values),
        interval=interval,
        wide_interval=wide_interval,
        not_learnt=tuple(f"{summand.row}[{summand.column.key}]" for summand in not_learnt),
        verdict=verdict,
    )


def _has_learnt(summand: Summand, scores: Scores) -> bool:
    """Whether the models of a row are, in the mean over the seeds, better than constant predictions."""
    constant = summand.column.constant
    return constant is None or statistics.fmean(scores[summand.row, summand.column.key]) > constant + LEARNT


def _inside(contrast: Contrast, interval: Sequence[float]) -> bool:
    """Whether the whole interval lies where the claim puts the contrast."""
    low, high = interval
    if contrast.says == "within":
        return -contrast.bound < low and high < contrast.bound
    return low > contrast.bound


def _outside(contrast: Contrast, interval: Sequence[float]) -> bool:
    """Whether the whole interval lies where the claim says that the contrast is not."""
    low, high = interval
    if contrast.says == "within":
        return high < -contrast.bound or low > contrast.bound
    return high < contrast.bound


def _contrast_text(contrast: Contrast, summands: list[Summand]) -> str:
    """The contrast as text: "bert[qa] - no_nsp[qa] above 0"."""
    parts = [f"{'+' if sign > 0 else '-'} {row}[{column.key}]" for sign, row, column in summands]
    bound = f"within {contrast.bound:g} of 0" if contrast.says == "within" else f"above {contrast.bound:g}"
    return f"{' '.join(parts).removeprefix('+ ')} {bound}"
