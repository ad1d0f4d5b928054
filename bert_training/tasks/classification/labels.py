"""The labels of texts: what a cell may hold, whether labels are classes or scores, and their numbers.

Files and the Hub go the same way. A cell holds one word or number:

    good, 3, true        classes; whole numbers are scores with --problem_type regression
    2.5                  scores; classes with --problem_type single_label
    0.0, 1.0             either, and a flag must decide: pandas writes whole numbers so if another row has none
    nan, None, NA, ...   what programs write if there is no value; refused unless the flag, model or data set names it
    ["a", "b"]           several labels for one text: multi_label.py
    a|b                  one class; refused without a flag if it looks like several labels
    {"choices": ["a"]}   JSON that was written into a cell is refused

Names are compared in Unicode's form NFC, in which "é" is one character and not "e" and an accent.
"""

import functools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from bert_training.tasks.classification.glue import ACCURACY, CORRELATIONS, Task
from bert_training.tasks.classification.trained_for import TrainedFor
from tokenization.errors import UserError

INTEGER = re.compile(r"[-+]?[0-9]{1,4000}")  # int() refuses more digits
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
# What pandas, Python, SQL, R and spreadsheets write if there is no value, in addition to "nan" in any case. Lower-case
# "none" is a word, and a usual name of a class.
NO_VALUE = ("None", "null", "NULL", "<NA>", "NaT", "NA", "N/A", "n/a", "#N/A", "#NA")
HIDDEN = ("", "-1", "?")  # placeholders in data to predict
# As a program writes a list or an object; "[laughs]" is a word.
JSON = re.compile(r"""\[\s*(['"0-9{\[-].*)?\]|\{\s*(['"].*)?\}""", re.DOTALL)
JOINS = re.compile(r"[\s_.'’()\[\]\-‐-―]+")  # between the words of one name
FEW_ROWS = 10  # of so few, each may well be the only one of its class
FILL_IN = "fill it in, or leave out the row"


class Labelled(Protocol):
    """The labels of a split: ``Examples``."""

    labels: list | None
    facts: dict
    notes: list[str]

    @property
    def where(self) -> Callable[[int], str]:
        """Returns the place of a row, counted from 0, for error messages."""


def as_text(value: object) -> str:
    """A label as text: True, from JSON, becomes 'true', and 1 becomes '1'."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def has_no_value(value: object) -> bool:
    """Whether a cell is empty, null, or holds what a program writes if there is no value."""
    text = as_text(value)
    return not text or text in NO_VALUE or text.lower() in ("nan", "-nan")


def is_null(value: object) -> bool:
    """Whether a cell of JSON or of the Hub holds nothing at all."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def check_cells(labels: Sequence[object], column: str, where: Callable[[int], str], may_be_null: bool) -> None:
    """Check that every cell of a label column holds one word or number.

    Args:
        may_be_null: whether a cell may be null, as in data to predict.

    Raises:
        ValueError: with the place of the row.
    """
    for row, label in enumerate(labels):
        if is_null(label):
            if may_be_null:
                continue
            raise UserError(f"{where(row)}: expected a label in {column!r}, got {label!r}; {FILL_IN}")
        if isinstance(label, list | tuple | dict | set | np.ndarray) or (
            isinstance(label, str) and JSON.fullmatch(label.strip())
        ):
            raise UserError(
                f"{where(row)}: expected a word or a number in {column!r}, got {label!r:.60}; a text has one label "
                "here; to learn several, give lists in all rows of the training data (.jsonl) with --problem_type "
                "multi_label, or cells such as a|b with --label_separator"
            )
        text = as_text(label)
        if not isinstance(label, str | int | float):
            raise UserError(
                f"{where(row)}: expected a word or a number in {column!r}, got {label!r:.60}; name another column with "
                "--label_column, or write words or numbers"
            )
        if text != text.strip():
            raise UserError(
                f"{where(row)}: expected a word or a number in {column!r}, without spaces around it, got {label!r:.60}"
            )
        if "\t" in text or len(text.splitlines()) > 1:
            raise UserError(
                f"{where(row)}: expected a word or a number in {column!r}, without tabs and line ends, "
                f"because predictions are written in columns; got {label!r:.60}"
            )


# --- classes or scores -------------------------------------------------------------------------------------------


def infer_task(
    task: Task, splits: Mapping[str, Labelled], problem_type: str | None, trained: TrainedFor, training: bool
) -> Task:
    """Decide between classes and scores for the user's own data, and find the names of the classes.

    Class labels that are spelled in another way, such as 0.0 for 0, are changed in the splits to the names.

    Args:
        problem_type: the flag of this name.
        trained: what the model was trained for; without training data it decides.

    Raises:
        ValueError: labels are missing, or only a flag could decide.
    """
    split = next((name for name, part in splits.items() if part.labels is not None and name != "test"), None)
    if not training:
        _check_against_model(problem_type, trained)
    scores = trained.scores if not training else problem_type == "regression"
    if split is not None:
        examples = splits[split]
        assert examples.labels is not None
        named = examples.facts.get("class_names") or (() if training else trained.class_names)
        for part in [part for name, part in splits.items() if name != "test"]:
            _check_values(part, named, words_are_classes=training and problem_type == "single_label")
        if not scores and training and problem_type is None:
            scores = _are_scores(examples)
    if scores:
        if not training and split is not None:
            _check_numbers(splits[split])
        return replace(task, labels=None, metrics=CORRELATIONS)
    if split is None or not training:
        names: Sequence[str] = trained.class_names
    else:
        names = examples.facts.get("class_names") or _names(examples)
        if trained.names and set(names) == set(trained.names):
            names = trained.names
        elif problem_type is None and not examples.facts.get("class_names"):
            _check_classes(examples)
        if len(names) < 2:
            raise UserError(f"expected at least two labels, got only {names[0]!r} in {examples.facts['source']}")
    for part in splits.values():
        # Without the flag, labels such as 0.0 together with 0 are refused, unless the model has these classes.
        if part.labels is not None and (problem_type or not training):
            part.labels = [as_name(value, names) for value in part.labels]
    if trained.unnamed and not training:
        _check_unnamed(splits, trained)
    return replace(task, labels=tuple(names), metrics=ACCURACY)


def _check_against_model(problem_type: str | None, trained: TrainedFor) -> None:
    """Without training data, refuse a flag that contradicts the model."""
    if problem_type == "regression" and trained.class_names:
        raise UserError(
            f"--problem_type regression: the model predicts the classes {', '.join(trained.class_names)}; leave the "
            "flag out, or give training data"
        )
    if problem_type == "single_label" and trained.scores:
        raise UserError(
            "--problem_type single_label: the model predicts scores (a regression); leave the flag out, or give "
            "training data"
        )


def _check_values(part: Labelled, named: Sequence[str], words_are_classes: bool) -> None:
    """Refuse a label that stands for a missing value, unless a class is called so.

    Args:
        words_are_classes: whether a flag says that the labels are classes. Among numbers, NA remains a missing one.
    """
    values = [value for value in part.labels or [] if not has_no_value(value)]
    numbers = all(NUMBER.fullmatch(as_text(value)) for value in values) if values else False
    labels = part.labels or []
    for row, value in enumerate(labels):
        if has_no_value(value) and as_text(value) not in named:
            if words_are_classes and as_text(value) and not numbers:
                continue
            found = repr(as_text(value)) if as_text(value) else "an empty field"
            remedy = "give the class another name" if numbers else "give --problem_type single_label"
            rename = f", or, if it is a class, {remedy}" if as_text(value) else ""
            same = [other for other, label in enumerate(labels) if as_text(label) == as_text(value)]
            more = f" ({len(same)} rows have this, the last: {part.where(same[-1])})" if len(same) > 1 else ""
            raise UserError(f"{part.where(row)}: expected a label, got {found}; {FILL_IN}{rename}{more}")


def _are_scores(examples: Labelled) -> bool:
    """Whether labels are scores; ValueError if they may be either."""
    texts = [as_text(value) for value in examples.labels or []]
    decimal = [row for row, text in enumerate(texts) if NUMBER.fullmatch(text) and not INTEGER.fullmatch(text)]
    if not decimal:
        return False
    if all(NUMBER.fullmatch(text) and float(text).is_integer() for text in texts):
        row = decimal[0]
        raise UserError(
            f"{examples.where(row)}: the label {texts[row]!r} may be a class (pandas writes whole numbers so if "
            "another row has none) or a score, and so may all others; give --problem_type single_label for classes, or "
            "--problem_type regression for scores"
        )
    return True


def _check_classes(examples: Labelled) -> None:
    """Refuse classes that are probably none: several labels, scores, dates or texts, or one class in two spellings."""
    _refuse_look_alike(examples)
    rows = Counter(as_text(value) for value in examples.labels or [])
    single = [row for row, value in enumerate(examples.labels or []) if rows[as_text(value)] == 1]
    count = sum(rows.values())
    if count >= FEW_ROWS and len(single) > count / 2:
        value = as_text((examples.labels or [])[single[0]])
        raise UserError(
            f"{examples.where(single[0])}: the label {value!r:.60} is in no other row, as {len(single)} of {count} "
            "labels, so these are probably no classes; name the label with --label_column, or give --problem_type "
            "regression for scores, or --problem_type single_label for classes"
        )
    spelled: dict[str, str] = {}
    for row, value in enumerate(examples.labels or []):
        text = as_text(value)
        other = spelled.setdefault(str(int(text)) if INTEGER.fullmatch(text) else text.lower(), text)
        if other != text:
            raise UserError(
                f"{examples.where(row)}: the label {text!r:.60} is {other!r:.60} in another row; write them alike, or "
                "give --problem_type single_label if these are two classes"
            )


def _refuse_look_alike(examples: Labelled) -> None:
    """Refuse classes that may be several labels each, because a part of one of them is a class of its own.

    Beside a, this holds for a#b, but beside Arts also for Arts & Culture. There are fewer labels than sets of them,
    though: a mark stands between labels only if the classes have no more different parts than there are classes. And if
    it may as well join the words of one name (not_funny beside funny), all parts must be classes.
    """
    cells = {as_text(label): row for row, label in reversed([*enumerate(examples.labels or [])])}

    @functools.cache
    def few(mark: str) -> bool:
        return len({part for cell in cells for part in _parts(cell, mark)}) <= len(cells)

    for cell, row in sorted(cells.items(), key=lambda found: found[1]):
        found = [(mark, _parts(cell, mark)) for mark in dict.fromkeys(_marks(cell))]
        for mark, parts in sorted(found, key=lambda one: (sum(part not in cells for part in one[1]), len(one[0]))):
            known = [part in cells for part in parts]
            if (all(known) if JOINS.fullmatch(mark) else all(parts) and any(known)) and few(mark):
                raise UserError(
                    f"{examples.where(row)}: the label {cell!r:.60} may be one class or the labels "
                    f"{parts[0]!r:.40} and {parts[1]!r:.40}; give --label_separator "
                    f"{mark!r} for several labels a text, or --problem_type single_label for one class"
                )


def _marks(cell: str) -> list[str]:
    """The runs of punctuation, symbols and spaces in a label, as they are and without spaces, and their characters."""
    marks = "".join(one if unicodedata.category(one)[0] in "PSZ" else "\n" for one in cell)
    return [mark for run in marks.split("\n") for mark in (run, run.strip(), *run) if mark]


def _parts(cell: str, mark: str) -> list[str]:
    return [part.strip() for part in cell.split(mark)]


def _check_numbers(part: Labelled) -> None:
    for row, value in enumerate(part.labels or []):
        if not NUMBER.fullmatch(as_text(value)):
            raise UserError(
                f"{part.where(row)}: the model predicts scores (a regression), expected a number as label, got "
                f"{as_text(value)[:60]!r}; give a model that was trained on these classes, or training data"
            )


def _check_unnamed(splits: Mapping[str, Labelled], trained: TrainedFor) -> None:
    names = trained.class_names
    for split, part in splits.items():
        for row, value in enumerate(part.labels or []):
            if split != "test" and as_text(value) not in names:
                raise UserError(
                    f"{part.where(row)}: the model's classes have no names of their own, so expected a label from 0 to "
                    f"{len(names) - 1} or from {names[0]} to {names[-1]}, got {as_text(value)[:60]!r}; write these, or "
                    "name the classes in id2label of its config.json"
                )


def _names(examples: Labelled) -> list[str]:
    """The classes that occur, in order; whole numbers in that of their values."""
    texts = {as_text(value) for value in examples.labels or []}
    if all(NUMBER.fullmatch(text) for text in texts):
        texts = {_whole(text) for text in texts}
    return names_in_order(texts)


def names_in_order(texts: set[str]) -> list[str]:
    """Names of classes, sorted; whole numbers by their values."""
    whole = all(INTEGER.fullmatch(text) for text in texts)
    return sorted(texts, key=lambda text: (int(text), text) if whole else text)  # 1 and 01 in the same order everywhere


def _whole(text: str) -> str:
    """0.0 as 0; other texts as they are."""
    if INTEGER.fullmatch(text) or not NUMBER.fullmatch(text) or not float(text).is_integer():
        return text
    return str(int(float(text)))


def as_name(value: Any, names: Sequence[str]) -> Any:
    """The name that a label stands for: itself, that of a whole number, or that of a class without a name.

    Null, a label that is not told, stays what it is, also where a class is called "None".
    """
    if is_null(value):
        return value
    whole = _whole(as_text(value))
    spellings = (as_text(value), whole, f"LABEL_{whole}")
    return next((name for name in spellings if name in names), value)


def in_known_case(label: Any, names: Collection[str]) -> Any:
    """The name from which a label differs in case alone, if that is only one; of several labels each; or the label."""
    if isinstance(label, tuple):
        return tuple(in_known_case(one, names) for one in label)
    if is_null(label) or as_text(label) in names:
        return label
    alike = [name for name in names if name.lower() == as_text(label).lower()]
    return alike[0] if len(alike) == 1 else label


# --- numbers -----------------------------------------------------------------------------------------------------


def encode_labels(examples: Labelled, task: Task) -> list[int] | list[float]:
    """Class numbers, or scores for regression. Raises ValueError with the row of an unknown label."""
    assert examples.labels is not None
    numbers: list = []
    if task.labels is None:
        low, high = task.score_range
        for row, value in enumerate(examples.labels):
            text = as_text(value)
            if not _is_score(text, task):
                bounds = f" from {low} to {high}" if np.isfinite(low) else ""
                classes = "" if task.files else ", or give --problem_type single_label if the labels are classes"
                raise UserError(
                    f"{examples.where(row)}: expected a number{bounds} as label, got {text[:60]!r}; correct the line"
                    f"{classes}"
                )
            numbers.append(float(text))
        return numbers
    known = class_numbers(task)
    for row, value in enumerate(examples.labels):
        text = as_text(value)
        if text not in known:
            remedy = "correct the line, or choose another task"
            if not task.files:
                remedy = "the training had no such class; correct the line, or train with examples of it"
            if text == "-1" and examples.facts.get("class_names"):
                remedy = "-1 stands for a hidden label, so save the rows with labels as files, and give these"
            elif not task.files and _whole(text) in known:
                remedy = f"write {_whole(text)}, or give --problem_type single_label to read it so"
            raise UserError(
                f"{examples.where(row)}: expected a label out of {', '.join(known)}; got {text!r}; {remedy}"
            )
        numbers.append(known[text])
    return numbers


def class_numbers(task: Task) -> dict[str, int]:
    """The number of each class, by its name and by its spelling in the task's files."""
    known = {name: number for number, name in enumerate(task.labels or ())}
    return known | {spelling: number for number, spelling in enumerate(task.spellings)}


def _not_scored(labels: list[str], task: Task) -> str:
    listed = ", ".join(f"{label!r:.40}" for label in labels[:3]) + (", ..." if len(labels) > 3 else "")
    expected = (
        f"the classes of the model ({', '.join(class_numbers(task))})" if task.labels else "numbers, as scores are"
    )
    return (
        f"warning: the predictions are not scored, because the labels of this data ({listed}) are not {expected}; "
        "write them so for a score"
    )


def _is_score(text: str, task: Task) -> bool:
    low, high = task.score_range
    return bool(NUMBER.fullmatch(text)) and low <= float(text) <= high and bool(np.isfinite(float(text)))


def known_test_labels(examples: Labelled, task: Task) -> list[int] | list[float] | None:
    """The numbers of the labels of data to predict; None if they are placeholders.

    They are if no row has a label that the task knows; or, in the layout of GLUE, if all rows have the same. Labels
    that differ from each other may be real ones in another spelling, so a note says that nothing is scored. Of the
    user's own data, one known label in all rows is scored, and a note says so.

    Raises:
        ValueError: some rows have a known label, and others do not.
    """
    known, values = class_numbers(task), [None if is_null(value) else as_text(value) for value in examples.labels or []]
    found = [value is not None and (value in known if task.labels else _is_score(value, task)) for value in values]
    placeholders = {None, *HIDDEN} - known.keys()
    different = set(values) - placeholders
    if not different or (len(set(values)) == 1 and (task.files or not any(found))):
        return None
    if not any(found):
        examples.notes.append(_not_scored(sorted(map(str, different)), task))
        return None
    if not all(found):
        row, other = found.index(False), found.index(True)
        has = f"has the label {values[row]!r:.60}" if values[row] else "has no label"
        expected = f"a label out of {', '.join(known)}" if task.labels else "a number"
        raise UserError(
            f"{examples.where(row)}: this row {has}, but {examples.where(other)} has {values[other]!r:.60}; expected "
            f"{expected} in all rows: correct it, or leave out the column of the labels, and nothing is scored"
        )
    if len(values) > 1 and len(set(values)) == 1:
        examples.notes.append(
            f"all {len(values):,} rows have the label {values[0]!r:.60}, by which they are scored; if it is a "
            "placeholder, leave out the column of the labels, and nothing is scored"
        )
    return encode_labels(examples, task)
