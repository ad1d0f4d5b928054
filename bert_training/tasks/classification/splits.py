"""Divide one table: --validation_split holds out a share of it, --folds every part in turn.

scikit-learn's splitters do it, by SPLIT_SEED. Classes keep their shares in both parts; rows of one --group_column
stay together, and then only folds keep the shares. Rows keep the order of the file. Every process, and every resumed
run, divides the same table in the same way; the SHA-256 of a part, by which that is checked, is that of the file and of
the numbers of its rows.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bert_training.files.hashing import digest
from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.hub_datasets import AS_FILES
from bert_training.tasks.classification.glue import Task
from bert_training.tasks.classification.labelled_texts import ClassificationData, Examples
from bert_training.tasks.task_data import SPLIT_SEED, asks_to_divide, folds_of_units, rows_of_units
from tokenization.errors import UserError

GIVE = "give --validation_file, --validation_split 0.1, or --validation_split 0 to train without an evaluation"
Parts = tuple[Sequence[int], Sequence[int]]
"""The numbers of the rows to train on, and of those that are held out."""


def check_divided(args: GlueArguments, splits: Sequence[str]) -> None:
    """Refuse training data without validation data, unless the flags say where that comes from, or that there is none.

    Args:
        splits: those that were read.

    Raises:
        ValueError: there is no validation data, or there is some and a flag would make more.
    """
    divides = asks_to_divide(args)
    validates = any(split.startswith("validation") for split in splits)
    if "train" in splits and not validates and not divides:
        give = "give --validation_file" if args.task_name else GIVE  # the splits of a task of GLUE are fixed
        give += f"; or {AS_FILES}" if args.dataset_name else ""
        raise UserError(f"there is training data but nothing to evaluate on; {give}")
    if divides and (validates or "train" not in splits):
        raise UserError(
            "--validation_split and --folds divide training data that has no validation data of its own; got "
            f"{', '.join(splits)}; leave the flag out"
        )


def check_labels_to_learn(train: Examples, task: Task) -> None:
    """Refuse rows that all have the same label, or the weight 0; of several labels a text, say which no row has.

    Args:
        train: the rows that are really trained on, with labels as numbers.
    """
    labels, names = train.labels or [], task.labels or ()
    if task.several_labels:
        counts = np.sum(labels, axis=0, dtype=int).tolist()
        if absent := [name for name, count in zip(names, counts) if not count]:
            train.notes.append(
                f"warning: no text has the label {', '.join(absent)}; the model can only learn to give it to none"
            )
    same = f"the weight 0 in {train.columns.weight!r}" if not any(train.weights or [1]) else ""
    if len(set(labels)) == 1:
        first, several = labels[0], task.several_labels
        known = ", ".join(name for number, name in enumerate(names) if (first[number] if several else first == number))
        same = f"the label {known or ('none' if several else first)!r}"
    if same:
        raise UserError(
            f"{train.where(0)}: this and all other training examples ({len(train)}) have {same}, so nothing would be "
            "learnt; shuffle the file, raise --max_train_samples, or give other rows"
        )


def divided(data: ClassificationData, args: GlueArguments) -> ClassificationData:
    """The data with a validation split: the fold that --folds names, or the part that --validation_split asks for.

    Args:
        data: with labels as numbers.

    Raises:
        ValueError: there are too few rows, or too few groups, of a class.
    """
    if args.fold:
        parts = fold_rows(data, args.num_folds, SPLIT_SEED)[args.fold - 1]
        return _with_parts(data, args, parts, f"fold {args.fold} of {args.num_folds}")
    if args.validation_split:
        rows = held_out_rows(data, args.validation_split, SPLIT_SEED)
        return _with_parts(data, args, rows, f"{args.validation_split:g} of it")
    if args.validation_split == 0:
        data.splits["train"].notes.append("no validation data: nothing will say how good the model is")
    return data


def _with_parts(data: ClassificationData, args: GlueArguments, parts: Parts, name: str) -> ClassificationData:
    whole = data.splits["train"]
    kind = ", by class" if _classes(data) is not None and (whole.groups is None or args.num_folds) else ""
    kind += f", groups of {whole.columns.group!r} together" if whole.groups is not None else ""
    described = f"{name} held out{kind}"
    train, held_out = (part_of(whole, rows, described) for rows in parts)
    held_out.notes = []
    known = set(zip(*train.texts))
    if copies := sum(row in known for row in zip(*held_out.texts)):
        have = "has" if copies == 1 else "have"
        held_out.notes.append(
            f"warning: {copies:,} of the {len(held_out):,} rows held out {have} the same text as one to train on, so "
            "the scores show in part what the model has memorised; give --group_column, or leave out copies that have "
            "the same label"
        )
    if data.task.labels and _classes(data) is not None:
        missing = set(range(len(data.task.labels))) - set(held_out.labels or [])
        names = ", ".join(data.task.labels[number] for number in sorted(missing & set(whole.labels or [])))
        if names:
            held_out.notes.append(f"warning: no row of these classes is held out: {names}; hold out a larger share")
    train, held_out = train.first(args.max_train_samples), held_out.first(args.max_eval_samples)
    check_labels_to_learn(train, data.task)
    others = {split: examples for split, examples in data.splits.items() if split != "train"}
    return replace(data, splits={"train": train, "validation": held_out} | others)


def part_of(whole: Examples, rows: Sequence[int], described: str) -> Examples:
    """Some rows of a split, with a hash of their own for run.json."""
    part = whole.select(rows)
    content = whole.facts.get("sha256") or whole.facts.get("fingerprint")
    facts = {name: value for name, value in whole.facts.items() if name not in ("sha256", "fingerprint")}
    if "sha256" in whole.facts:
        facts["file_sha256"] = content
    part.facts = facts | {"sha256": digest([content, list(rows)]), "divided": described}
    return part


# --- the rows ------------------------------------------------------------------------------------------------


def held_out_rows(data: ClassificationData, share: float, seed: int) -> Parts:
    """The rows of a training split to train on and to hold out. Raises UserError if it has too few."""
    from sklearn import model_selection  # imported here because that takes almost a second

    train, classes, flag = data.splits["train"], _classes(data), f"--validation_split {share:g}"
    if train.groups is None:
        _check_rare(data, 2, flag)
        kind = model_selection.ShuffleSplit if classes is None else model_selection.StratifiedShuffleSplit
        (parts,) = _split(kind(n_splits=1, test_size=share, random_state=seed), data, classes)
    else:
        held_out = rows_of_units(train.groups, share, seed)
        parts = (sorted({*range(len(train))}.difference(held_out)), held_out)
    _check_parts(data, parts, flag)
    return parts


def fold_rows(data: ClassificationData, folds: int, seed: int) -> list[Parts]:
    """For each fold, the rows to train on and to hold out. Raises UserError if a class or a group would be missing."""
    from sklearn import model_selection

    train, classes = data.splits["train"], _classes(data)
    _check_rare(data, folds, f"--folds {folds}")
    if classes is not None:
        in_groups = train.groups is not None
        dealer = model_selection.StratifiedGroupKFold if in_groups else model_selection.StratifiedKFold
        parts = _split(dealer(n_splits=folds, shuffle=True, random_state=seed), data, classes, train.groups)
    else:
        what = "rows" if train.groups is None else "groups"
        held_out = folds_of_units(train.groups or range(len(train)), folds, seed, what)
        parts = [(sorted({*range(len(train))}.difference(rows)), rows) for rows in held_out]
    for number, part in enumerate(parts, 1):
        _check_parts(data, part, f"--folds {folds}, fold {number}", held_out_too=True)
    return parts


def _split(
    splitter: Any, data: ClassificationData, strata: list[int] | None = None, groups: list[str] | None = None
) -> list[Parts]:
    """The parts that a splitter makes of the training data, in the order of the rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a rare class, which is checked here with its name
        parts = [*splitter.split(np.zeros(len(data.splits["train"])), strata, groups)]
    return [(np.sort(train).tolist(), np.sort(held_out).tolist()) for train, held_out in parts]


def _classes(data: ClassificationData) -> list[int] | None:
    """The class of each row; None for scores and for several labels a text, which have no share to keep."""
    labels = data.splits["train"].labels
    one_each = data.task.labels is not None and labels and isinstance(labels[0], int)
    return labels if one_each else None


def _check_rare(data: ClassificationData, least: int, flag: str) -> None:
    """Refuse classes with fewer rows than there are parts, in which each must be."""
    names, counts = data.task.labels or (), Counter(_classes(data) or ())
    if rare := {names[number]: count for number, count in sorted(counts.items()) if count < least}:
        told = ", ".join(f"{name!r} ({count})" for name, count in rare.items())
        raise UserError(
            f"{flag}: expected at least {least} rows of each class, got fewer of {told:.400}; add rows of it, leave it "
            "out, give fewer --folds, or give --validation_file"
        )


def _check_parts(data: ClassificationData, parts: Parts, flag: str, held_out_too: bool = False) -> None:
    """Refuse an empty part, and one that lacks a class, which could then not be learnt, or not be evaluated."""
    classes, names, groups = _classes(data), data.task.labels or (), data.splits["train"].groups
    for rows, use in zip(parts, ("train on", "hold out")):
        there = {*classes} - {classes[row] for row in rows} if classes and (held_out_too or use == "train on") else ()
        if there or not rows:
            of_class = f" of the class {names[min(there)]!r}" if there else ""
            because = ", because the rows of one --group_column stay together" if groups is not None else ""
            raise UserError(
                f"{flag}: no row{of_class} is left to {use}{because}; change the flag, add rows"
                f"{' in other groups' if groups is not None else ''}, or give --validation_file"
            )
