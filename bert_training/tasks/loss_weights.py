"""Weights of classes and rows in the training loss (docs/classify.md, "Rare classes").

A row of class y with a weight r of its own counts r w[y] times; the loss of a step is the weighted mean over all its
rows, on all processes. Evaluations know nothing of this: their loss is the plain mean, whatever a model was trained
with, so that runs with different weights can be compared.
"""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bert_training.engine.batches import IGNORED, Features
from bert_training.files.hashing import digest
from bert_training.inputs.flags.fine_tuning import ClassArguments
from bert_training.inputs.reading import read_object
from bert_training.inputs.rows import nfc
from tokenization.errors import UserError

FACT = "weights_of_classes"  # in the facts of the data
LABELS_SHOWN = 10


def class_weights_of(
    args: ClassArguments,
    names: Sequence[str],
    counts: Sequence[int],
    things: str,
    may_be_absent: bool = False,
    several_of: int | None = None,
) -> dict[str, float] | None:
    """The weight of every class that ``--class_weights`` asks for; None without the flag.

    Balanced weights are n / (C n_c), with n labels, n_c of them of class c, and C classes: scikit-learn's rule. If a
    text may have several labels, the weight of a label counts where a text has it (torch's ``pos_weight``), and
    balanced is the number of texts without it divided by the number of those with it.

    Args:
        names: the classes, in the order of their numbers.
        counts: how many of the training labels are of each class.
        things: what has a label, for messages, such as "row".
        may_be_absent: classes that do not occur count for nothing, and their weight is 1; otherwise they are an error.
        several_of: the number of texts, if each may have several labels; otherwise None.

    Raises:
        ValueError: a class does not occur; or the file lacks a class, has another, or a weight that is none.
    """
    if args.class_weights is None:
        return None
    if args.class_weights != "balanced":
        return _read_weights(Path(args.class_weights), names)
    absent = [name for name, count in zip(names, counts, strict=True) if not count]
    everywhere = [name for name, count in zip(names, counts, strict=True) if count == several_of]
    if wrong := everywhere + absent * (not may_be_absent):
        raise UserError(
            f"--class_weights balanced: {'every' if wrong == everywhere else 'no'} training {things} has the label "
            f"{_list(wrong)}, so there is nothing to balance; add {things}s, or give the weights in a JSON file"
        )
    if several_of is not None:
        return {name: (several_of - n) / n for name, n in zip(names, counts, strict=True)}
    present = len(names) - len(absent)
    return {name: sum(counts) / (present * n) if n else 1.0 for name, n in zip(names, counts, strict=True)}


def _read_weights(path: Path, names: Sequence[str]) -> dict[str, float]:
    """The weights in a JSON object ``{label: weight}``, in the order of ``names``."""
    given = {nfc(name): weight for name, weight in read_object(path).items()}
    fits = {name for name, weight in given.items() if type(weight) in (int, float) and 0 < weight < math.inf}
    if wrong := [name for name in {**given, **dict.fromkeys(names)} if name not in fits & {*names}]:
        raise UserError(
            f'{path}: expected {{"label": weight}}, a number above 0 for each of {_list(names)} and no others; got '
            + ", ".join(f"{name!r}: {given.get(name, 'no weight')}" for name in wrong)[:400]
            + "; correct it"
        )
    return {name: float(given[name]) for name in names}


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - LABELS_SHOWN} more" if len(names) > LABELS_SHOWN else ""
    return ", ".join(map(repr, names[:LABELS_SHOWN])) + more


def count_labels(labels: Sequence[Any], classes: int) -> list[int]:
    """How many labels are of each class; IGNORED ones are not counted.

    Args:
        labels: one number a row, or an array of numbers for each.
    """
    found = Counter(np.concatenate([np.atleast_1d(label) for label in labels]).tolist())
    return [found[number] for number in range(classes)]


def with_loss_weights(
    rows: Features, class_weights: dict[str, float] | None, row_weights: Sequence[float] | None = None
) -> Features:
    """The same rows with the column ``loss_weights``, if there are weights.

    Args:
        class_weights: in the order of the numbers of the classes.
        row_weights: one for each row.
    """
    if class_weights is None and row_weights is None:
        return rows
    labels, weights = rows.columns["labels"], [1.0] * len(rows) if row_weights is None else [*row_weights]
    if class_weights is not None:
        of_class = np.array([*class_weights.values()])
        known = [np.not_equal(label, IGNORED) for label in labels]
        classes = [np.where(one, label, 0) for one, label in zip(known, labels)]
        weights = [(one * of_class[each] * w)[()] for one, each, w in zip(known, classes, weights, strict=True)]
    return type(rows)(rows.columns | {"loss_weights": weights}, rows.pad_token_id)


def loss_arguments(class_weights: dict[str, float] | None, several_labels: bool = False) -> dict[str, Any]:
    """The further arguments of the model in training (heads.py), besides the column ``loss_weights``."""
    if class_weights is None or not several_labels:
        return {}
    return {"class_weights": torch.tensor([*class_weights.values()])}


def facts_of(class_weights: dict[str, float] | None) -> dict[str, Any]:
    """The part of the facts of the data, by which a resumed run recognises the weights; {} without any."""
    if class_weights is None:
        return {}
    return {FACT: {"weights": class_weights, "sha256": digest(class_weights)}}


def summary_of(class_weights: dict[str, float] | None) -> list[str]:
    """A line for the user; none without weights."""
    if class_weights is None:
        return []
    return ["class weights: " + ", ".join(f"{name} {weight:.4g}" for name, weight in class_weights.items())]
