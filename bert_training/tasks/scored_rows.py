"""``scored_<split>.jsonl``: what is right and what a finished model answers, row by row, and two models compared by it.

A line is {"true": ..., "answer": ...}: the class of a text, its score, or the number of an ending; a list of the labels
of a text, or of the names in a sentence with their places, ["LOC", 3, 5]. Of a question it holds the official scores,
{"id": "q7", "exact_match": 100.0, "f1": 100.0}.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # scipy.stats is loaded when it is first used, which takes half a second

from bert_training.inputs.reading import numbered_lines
from bert_training.tasks.classification.scores import METRICS
from bert_training.tasks.statistics import LEVEL, sign_test

RESAMPLES = 1000  # of the bootstrap
WHOLE = ("accuracy", "subset_accuracy", "exact_match")  # metrics by which a row is right or wrong
Metric = Callable[[np.ndarray], float]


def read_rows(folder: Path, split: str) -> list[dict[str, Any]]:
    """The rows of a split; [] if the run has written none."""
    path = folder / f"scored_{split}.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for _, line in numbered_lines(path)]


def compare_rows(ours: Metric, theirs: Metric, rows: int, right_or_wrong: bool) -> str:
    """The difference of a metric on the same rows, ours minus theirs, as cells of a table.

    They are the difference; its 95 % interval, by a paired bootstrap; and, if a row is right or wrong, how many rows
    one model alone has right, and the p-value of McNemar's exact test.
    """

    def difference(chosen: np.ndarray) -> float:
        return ours(chosen) - theirs(chosen)

    options: dict[str, Any] = {"vectorized": False, "confidence_level": LEVEL, "n_resamples": RESAMPLES}
    options |= {"method": "percentile", "rng": np.random.default_rng(0)}
    everything = np.arange(rows)
    low, high = scipy.stats.bootstrap((everything,), difference, **options).confidence_interval
    cells = f"{difference(everything):+.1f} | {low:+.1f} to {high:+.1f}"
    if not right_or_wrong:
        return f"{cells} |  | "
    each = np.array([difference(everything[[row]]) for row in everything])
    wins, losses = int((each > 0).sum()), int((each < 0).sum())
    return f"{cells} | {wins:,} : {losses:,} | {sign_test(wins, losses):.2g}"


def metric_of(rows: Sequence[dict[str, Any]], name: str, positive: str | None = None) -> Metric | None:
    """A metric in per cent as a function of the numbers of rows; None if the rows do not say it.

    Args:
        positive: the class of a F1 of two classes.
    """
    if name in rows[0]:
        scores = np.array([row[name] for row in rows])
        return lambda chosen: float(scores[chosen].mean())
    if name in ("pearson", "spearmanr", "matthews_correlation"):
        sides = np.array([[row[side] for row in rows] for side in ("answer", "true")])
        if sides.dtype.kind == "U":  # names of classes
            sides = np.unique(sides, return_inverse=True)[1].reshape(sides.shape)
        return lambda chosen: 100 * METRICS[name](*sides[:, chosen])
    answers, truth = ([_items(row.get(side)) for row in rows] for side in ("answer", "true"))
    if name in WHOLE:
        right = np.array([answer == true for answer, true in zip(answers, truth)])
        return lambda chosen: 100 * float(right[chosen].mean())
    if name not in ("f1", "f1_micro", "f1_macro"):
        return None
    kinds = sorted({kind for items in (*answers, *truth) for kind, _ in items})
    kinds = [positive] if name == "f1" and positive else kinds
    numbers = {kind: number if name == "f1_macro" else 0 for number, kind in enumerate(kinds)}
    shared, some = np.zeros((2, len(rows), max(numbers.values(), default=0) + 1))
    for row, (answer, true) in enumerate(zip(answers, truth)):
        for counts, items in ((shared, answer & true), (some, answer), (some, true)):
            for kind, _ in items:
                if kind in numbers:
                    counts[row, numbers[kind]] += 1

    def f1(chosen: np.ndarray) -> float:
        up, down = 2 * shared[chosen].sum(0), some[chosen].sum(0)
        return 100 * float(np.mean(up[down > 0] / down[down > 0])) if down.any() else 0.0

    return f1


def _items(value: Any) -> set[tuple[str, str]]:
    """The kind of every item of a row, and the item."""
    return {
        (str(one[0] if isinstance(one, list) else one), str(one))
        for one in (value if isinstance(value, list) else [value])
    }
