"""``scored_<split>.jsonl``: what is right and what a finished model answers, row by row, and two models compared by it.

A line is {"true": ..., "answer": ...}: the class of a text, its score, or the number of an ending; a list of the labels
of a text, or of the names in a sentence with their places, ["LOC", 3, 5]. Of a question it holds the official scores,
{"id": "q7", "exact_match": 100.0, "f1": 100.0}.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy  # scipy.stats is loaded when it is first used, which takes half a second

from bert_training.files.atomic import whole_file
from bert_training.files.compressed_files import numbered_lines
from bert_training.files.json_files import parse_json
from bert_training.tasks.classification.by_class import scores_by_class
from bert_training.tasks.classification.metrics import METRICS
from bert_training.tasks.seeds import LEVEL, sign_test

RESAMPLES = 1000  # of the bootstrap
Metric = Callable[[np.ndarray], float]


class Paired(NamedTuple):
    """What the same rows say of two models.

    Attributes:
        interval: the 95 % interval of the difference, by a paired bootstrap over the rows.
        wins, losses: how many rows one model alone has right; None unless a row is right or wrong.
        p: of the exact test of McNemar.
    """

    interval: tuple[float, float]
    wins: int | None = None
    losses: int | None = None
    p: float | None = None


def write_rows(folder: Path, split: str, rows: Iterable[dict[str, Any]]) -> None:
    """Write the rows of a labelled split."""
    with whole_file(folder / f"scored_{split}.jsonl") as draft, open(draft, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def read_rows(folder: Path, split: str) -> list[dict[str, Any]]:
    """The rows of a split; [] if the run has written none. Raises ValueError if the file is damaged."""
    path = folder / f"scored_{split}.jsonl"
    return [parse_json(line) for _, line in numbered_lines(path)] if path.is_file() else []


def compare_rows(ours: Metric, theirs: Metric, rows: int, right_or_wrong: bool) -> Paired:
    """The difference of a metric, ours minus theirs, on the same rows."""

    def difference(chosen: np.ndarray) -> float:
        return ours(chosen) - theirs(chosen)

    options: dict[str, Any] = {"vectorized": False, "confidence_level": LEVEL, "n_resamples": RESAMPLES}
    options |= {"method": "percentile", "rng": np.random.default_rng(0)}
    low, high = scipy.stats.bootstrap((np.arange(rows),), difference, **options).confidence_interval
    if not right_or_wrong:
        return Paired((low, high))
    each = np.array([difference(np.array([row])) for row in range(rows)])
    wins, losses = int((each > 0).sum()), int((each < 0).sum())
    return Paired((low, high), wins, losses, sign_test(wins, losses))


def metric_of(rows: Sequence[dict[str, Any]], name: str, positive: str | None = None) -> Metric | None:
    """A metric in per cent as a function of the numbers of rows; None if the rows do not say it.

    Args:
        positive: the class of a F1 of two classes.
    """
    if name in rows[0]:
        scores = np.array([row[name] for row in rows])
        return lambda chosen: float(scores[chosen].mean())
    answers, truth = ([row.get(side) for row in rows] for side in ("answer", "true"))
    if isinstance(truth[0], list):
        return _metric_of_lists(answers, truth, name)
    sides, names = np.array([answers, truth]), np.array([""])
    if isinstance(truth[0], str):
        names, numbers = np.unique(sides, return_inverse=True)
        sides = (sides == positive).astype(int) if name == "f1" else numbers.reshape(2, -1)
    if name == "f1_macro":
        return lambda chosen: 100 * float(scores_by_class(sides[0, chosen], sides[1, chosen], names.tolist())[name])
    return (lambda chosen: 100 * METRICS[name](*sides[:, chosen])) if name in METRICS else None


def _metric_of_lists(answers: Sequence[Any], truth: Sequence[Any], name: str) -> Metric | None:
    """The share of equal lists, or F1 of their items, over all of them or as the mean over their kinds."""
    sides = [
        [{(str(np.atleast_1d(item)[0]), str(item)) for item in items} for items in side] for side in (answers, truth)
    ]
    shared = [answer & true for answer, true in zip(*sides, strict=True)]
    if name == "subset_accuracy":
        equal = np.array([answer == true for answer, true in zip(*sides, strict=True)])
        return lambda chosen: 100 * float(equal[chosen].mean())
    kinds = sorted({kind for side in sides for items in side for kind, _ in items}) if name == "f1_macro" else [None]
    right, answered, true = (
        np.array([[sum(wanted in (None, kind) for kind, _ in items) for wanted in kinds] for items in side])
        for side in (shared, *sides)
    )

    def f1(chosen: np.ndarray) -> float:
        up, down = 2 * right[chosen].sum(0), (answered + true)[chosen].sum(0)
        return 100 * float(np.mean(up[down > 0] / down[down > 0])) if down.any() else 0.0

    return f1 if name in ("f1", "f1_micro", "f1_macro") else None
