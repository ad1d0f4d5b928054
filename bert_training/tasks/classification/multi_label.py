"""Several labels a text: how tables spell them, which labels there are, and their numbers.

A text has any number of the labels, also none. Three spellings are read; of the last two a flag says that they are
meant, because a cell such as "a|b" may be the name of one class:

    {"text": "...", "label": ["a", "b"]}     a list, in JSON or on the Hub; [] is a text without labels
    text,label / ...,a|b                     --label_separator "|"; an empty cell is a text without labels
    text,a,b,c / ...,1,1,0                   --label_column a b c; each cell is 0 or 1, or false or true

The number form of a row, which ``Features`` hands to the network, has 1.0 for each label of the text, otherwise 0.0.
``thresholds`` decides from which probability on a label is given, and ``multi_label_scores`` has the metrics.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from bert_training.files.tables import nfc
from bert_training.tasks.classification.columns import Columns
from bert_training.tasks.classification.glue import Task
from bert_training.tasks.classification.labels import (
    HIDDEN,
    JSON,
    as_name,
    as_text,
    has_no_value,
    is_null,
    names_in_order,
)
from bert_training.tasks.classification.multi_label_scores import MARK, METRICS
from bert_training.tasks.classification.trained_for import TrainedFor
from tokenization.errors import UserError

Where = Callable[[int], str]
Labels = tuple[str, ...] | None
"""The labels of a text; None if they are hidden, in data to predict."""
OFF_ON = {"0": False, "1": True, "false": False, "true": True, "0.0": False, "1.0": True}


class LabelledRows(Protocol):
    """The rows of a split: ``Examples``."""

    labels: list | None
    facts: dict
    notes: list[str]
    columns: Columns

    @property
    def where(self) -> Where:
        """Returns the place of a row, counted from 0, for error messages."""


# --- cells ---------------------------------------------------------------------------------------------------


def is_list(cell: object) -> bool:
    """Whether a cell holds a list."""
    return isinstance(cell, list | tuple | np.ndarray)


def composed(cell: object) -> object:
    """A label, or a list of labels, with its names in NFC."""
    if is_list(cell):
        return [*map(composed, cell)]  # type: ignore[call-overload]
    return nfc(cell) if isinstance(cell, str) else cell


def without_lists(cells: list, labelled: bool) -> list:
    """The labels of a column of lists with one label each; other columns as they are.

    Args:
        labelled: whether every row must say its label; otherwise an empty list hides it.
    """
    lists = [[] if is_null(cell) and not labelled else cell for cell in cells]
    if not all(is_list(cell) and len(cell) in (1, int(labelled)) for cell in lists):
        return cells
    return [next(iter(cell), None) for cell in lists]


def has_several(labels: Sequence[object] | None) -> bool:
    """Whether the labels of a split are those of ``from_cells`` or ``from_columns``."""
    return any(isinstance(label, tuple) for label in labels or ())


def from_cells(
    cells: Sequence[object], column: str, separator: str | None, where: Where, labelled: bool
) -> list[Labels]:
    """The labels of every row of a column of lists or, with a separator, of texts.

    Args:
        labelled: whether every row must say its labels; otherwise placeholders hide them.

    Raises:
        ValueError: with the place of the row.
    """
    if not labelled and _hides(cells):
        return [None] * len(cells)
    return [_labels_of(cell, column, separator, where(row), labelled) for row, cell in enumerate(cells)]


def _hides(cells: Sequence[object]) -> bool:
    """Whether a column of data to predict has only placeholders."""
    return all(is_null(cell) or (isinstance(cell, str) and cell in HIDDEN) for cell in cells)


def _labels_of(cell: object, column: str, separator: str | None, place: str, labelled: bool) -> Labels:
    if not is_list(cell) and is_null(cell) and not labelled:
        return None
    if separator is None:
        if not is_list(cell):
            raise UserError(
                f"{place}: expected a list of labels in {column!r}, got {cell!r:.60}; if a cell has several, name what "
                "stands between them with --label_separator, or name a column of 0 and 1 for each with --label_column"
            )
        found = _listed_labels(cell, column, place)
    elif isinstance(cell, str) and not JSON.fullmatch(cell.strip()):
        found = [part.strip() for part in cell.split(separator)] if cell.strip() else []
    else:
        raise UserError(
            f"{place}: expected labels with {separator!r} between them in {column!r}, got {cell!r:.60}; lists "
            "need .jsonl and no --label_separator"
        )
    for label in found:
        if not label or label != label.strip() or "\t" in label or len(label.splitlines()) > 1:
            raise UserError(
                f"{place}: expected labels without spaces around them, tabs and line ends in {column!r}, got "
                f"{label!r:.60} in {cell!r:.60}; correct it"
            )
    if doubled := [label for label, count in Counter(found).items() if count > 1]:
        numbers = set(found) <= {"0", "1"}
        remedy = (
            "write 0 and 1 into a column for each label, and name these with --label_column"
            if numbers
            else "delete one"
        )
        raise UserError(f"{place}: the label {doubled[0]!r:.60} is twice in {cell!r:.60} of {column!r}; {remedy}")
    return tuple(found)


def _listed_labels(cell: object, column: str, place: str) -> list[str]:
    values = list(cell)  # type: ignore[call-overload]
    words, numbers = ([type(value) is kind for value in values] for kind in (str, int))
    if not all(words) and not all(numbers):
        wrong = next(value for value, word in zip(values, words) if not word)
        raise UserError(
            f"{place}: expected a list of words in {column!r}, or of the whole numbers of classes, got "
            f"{wrong!r:.40} in {cell!r:.60}; write the names of the labels"
        )
    return [as_text(value) for value in values]


def from_columns(columns: Mapping[str, Sequence[object]], where: Where, labelled: bool) -> list[Labels]:
    """The labels of every row of columns that hold 0 or 1. Arguments and errors as for ``from_cells``."""
    if not labelled and all(map(_hides, columns.values())):
        return [None] * len(next(iter(columns.values())))
    on: list[list[bool]] = []
    for name, cells in columns.items():
        on.append([])
        for row, cell in enumerate(cells):
            text = as_text(cell).lower()
            if text not in OFF_ON:
                raise UserError(
                    f"{where(row)}: expected 0 or 1, or false or true, in {name!r}, a column of labels, got "
                    f"{cell!r:.60}; correct it, or leave {name!r} out of --label_column"
                )
            on[-1].append(OFF_ON[text])
    return [tuple(name for name, there in zip(columns, row) if there) for row in zip(*on)]


# --- the labels that there are -------------------------------------------------------------------------------


def infer_several(
    task: Task, splits: Mapping[str, LabelledRows], problem_type: str | None, trained: TrainedFor, training: bool
) -> Task:
    """Find the names of the labels. Spellings such as "0" for LABEL_0 are changed in the splits to the names.

    Args:
        problem_type: the flag of this name.
        trained: what the model was trained for; without training data it decides.

    Raises:
        ValueError: the labels do not fit the model, or are none to learn from.
    """
    if training:
        names = _names_in_training(task, splits["train"], problem_type, trained)
    else:
        names = trained.class_names
        for part in splits.values():
            if part.columns.hot and set(part.columns.hot) != set(names):
                raise UserError(
                    f"{part.facts['source']}: expected a column for each label of the model ({', '.join(names)}), got "
                    f"{', '.join(part.columns.hot)}; name all of them with --label_column"
                )
            if part.labels is not None:
                part.labels = [row and tuple(as_name(label, names) for label in row) for row in part.labels]
    return replace(task, labels=tuple(names), metrics=METRICS, several_labels=True)


def _names_in_training(task: Task, train: LabelledRows, problem_type: str | None, trained: TrainedFor) -> Sequence[str]:
    rows, source = train.labels or [], train.facts["source"]
    if task.label_separator and all(len(row) < 2 for row in rows):
        example = next((row[0] for row in rows if row), "")
        raise UserError(
            f"{source}: expected {task.label_separator!r} (--label_separator) between the labels of some cell of "
            f"{train.columns.label!r}, found it in none, but {example!r:.60}; name what stands there, or leave the "
            "flag out if each text has one label"
        )
    known = train.facts.get("class_names") or train.columns.hot
    names = known or names_in_order({label for row in rows for label in row})
    if not any(rows):
        raise UserError(f"{source}: expected labels, but no text has one, so that there is nothing to learn")
    if not known and problem_type is None:
        for row, labels in enumerate(rows):
            if missing := next((label for label in labels if has_no_value(label)), None):
                raise UserError(
                    f"{train.where(row)}: expected labels, got {missing!r}, which programs write for a missing value; "
                    "leave it out or, if it is a label, give --problem_type multi_label"
                )
    if len(names) < 2:
        raise UserError(
            f"{source}: expected at least two labels, got only {names[0]!r}; with one, write yes or no for each text "
            "and train two classes"
        )
    return trained.names if trained.names and set(names) == set(trained.names) else names


# --- numbers -------------------------------------------------------------------------------------------------


def encode(examples: LabelledRows, task: Task) -> list[tuple[float, ...]]:
    """1.0 for each label of a text, otherwise 0.0, in the order of ``task.labels``. ValueError for an unknown label."""
    names, rows = task.labels or (), examples.labels or []
    for row, labels in enumerate(rows):
        for label in labels:
            if label not in names:
                raise UserError(
                    f"{examples.where(row)}: expected labels out of {', '.join(names)}; got {label!r:.60}; the "
                    "training had no such label; correct it, or train with examples of it"
                )
    if empty := sum(not labels for labels in rows):
        examples.notes.append(f"texts without labels: {empty:,} of {len(rows):,}")
    return [tuple(float(name in labels) for name in names) for labels in rows]


def known_several(examples: LabelledRows, task: Task) -> list[tuple[float, ...]] | None:
    """The numbers of the labels of data to predict; None if they are hidden, or unknown in all rows.

    Raises:
        ValueError: some rows have known labels only, and others do not.
    """
    rows, names = examples.labels or [], task.labels or ()
    if not any(rows):
        return None
    known = [labels is not None and set(labels) <= set(names) for labels in rows]
    if not any(labels and fits for labels, fits in zip(rows, known)):
        unknown = next(label for labels in rows for label in labels or () if label not in names)
        examples.notes.append(
            f"warning: the predictions are not scored, because labels of this data ({unknown!r:.40}) are not those of "
            f"the model ({', '.join(names)})"
        )
        return None
    if not all(known):
        row = known.index(False)
        has = "has no labels" if rows[row] is None else f"has the labels {', '.join(rows[row])!r:.60}"
        raise UserError(
            f"{examples.where(row)}: this row {has}; as others have labels that the model knows, expected labels "
            f"out of {', '.join(names)} in all rows: correct it, or leave out the labels, and nothing is scored"
        )
    return encode(examples, task)


def check_training(train: LabelledRows, task: Task) -> None:
    """Say which labels no text has, after ``--max_train_samples``. ValueError if all texts have the same labels."""
    rows, names = train.labels or [], task.labels or ()
    if len(set(rows)) == 1:
        same = [name for name, there in zip(names, rows[0]) if there]
        raise UserError(
            f"{train.where(0)}: this and all other training examples ({len(rows)}) have "
            f"{'the labels ' + ', '.join(same) if same else 'no label'}; shuffle the file, or raise --max_train_samples"
        )
    counts = np.sum(rows, axis=0, dtype=int).tolist()
    if absent := [name for name, count in zip(names, counts) if not count]:
        train.notes.append(
            f"warning: no text has the label {', '.join(absent)}; the model can only learn to give it to none"
        )


def refuse_mark(task: Task, source: str) -> None:
    """Refuse labels that a cell of predictions could not hold, because what stands between labels is in a name."""
    separator = task.label_separator or MARK
    for name in task.labels or ():
        if separator in name:
            raise UserError(
                f"{source}: the label {name!r:.60} has {separator!r}, which stands between the labels of a prediction; "
                "rename it, or name another mark with --label_separator"
            )
