"""The labels of texts: what a cell may hold, whether labels are classes or scores, and their numbers.

Files and the Hub go the same way; every cell is text, or a list of texts:

    good, 3, true            classes; numbers are scores with --problem_type regression
    2.5                      scores; classes with --problem_type single_label
    0.0, 1.0                 either, and a flag must decide: pandas writes whole numbers so if another row has none
    nan, None, NA, ...       what programs write for no value; refused unless the flag, model or data set names it
    ["a", "b"]               a list: several labels for one text; lists of one label each are one label a text
    a|b                      with --label_separator "|" several; without it one class, refused if it looks like several
    text,a,b,c / ...,1,1,0   with --label_column a b c several; each cell is 0 or 1, or false or true
    {"choices": ["a"]}       JSON that was written into a cell is refused

The number form of a row with several labels has 1.0 for each label of the text, otherwise 0.0. Names are compared in
Unicode's form NFC, in which "é" is one character and not "e" and an accent.
"""

import functools
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bert_training.inputs.rows import nfc
from bert_training.tasks.classification import multi_label_scores
from bert_training.tasks.classification.glue import ACCURACY, CORRELATIONS, Task
from bert_training.tasks.classification.labelled_texts import Examples
from bert_training.tasks.classification.trained_for import TrainedFor
from tokenization.errors import UserError

INTEGER = re.compile(r"[-+]?[0-9]{1,4000}")  # int() refuses more digits
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
# What pandas, Python, SQL, R and spreadsheets write if there is no value, in addition to "nan" in any case. Lower-case
# "none" is a word, and a usual name of a class.
NO_VALUE = ("", "None", "null", "NULL", "<NA>", "NaT", "NA", "N/A", "n/a", "#N/A", "#NA")
HIDDEN = ("", "-1", "?")  # placeholders in data to predict
OFF_ON = {"0": False, "1": True, "false": False, "true": True, "0.0": False, "1.0": True}
# As a program writes a list or an object; "[laughs]" is a word.
JSON = re.compile(r"""\[\s*(['"0-9{\[-].*)?\]|\{\s*(['"].*)?\}""", re.DOTALL)
JOINS = re.compile(r"[\s_.'’()\[\]\-‐-―]+")  # between the words of one name
Labels = str | tuple[str, ...] | None
"""The label of a text, or its labels; None if they are hidden, in data to predict."""


@functools.lru_cache
def has_no_value(text: str) -> bool:
    """Whether a cell holds what a program writes if there is no value."""
    return text in NO_VALUE or text.lower() in ("nan", "-nan")


# --- from cells to names ------------------------------------------------------------------------------------


def names_of_cells(cells: Sequence[Any], separator: str | None, labelled: bool, source: str) -> list[Labels]:
    """The label of every cell; or its labels, as a tuple, if it is a list or there is a separator.

    Args:
        cells: text, lists of texts, or None.
        labelled: whether every row must say its label; otherwise None, and placeholders in all rows, hide them.

    Raises:
        UserError: a name is none, with the number of its row.
    """
    if not labelled and all(cell is None or cell in HIDDEN for cell in cells if not isinstance(cell, list)):
        cells = [cell if isinstance(cell, list) else None for cell in cells]
    found: list[Labels] = []
    for row, cell in enumerate(cells, 1):
        if isinstance(cell, str) and separator is not None:
            cell = [part.strip() for part in cell.split(separator)] if cell.strip() else []
        found.append(tuple(map(nfc, cell)) if isinstance(cell, list) else None if cell is None else nfc(cell))
        if not _is_spelled(found[-1]):
            raise UserError(
                f"{source}, row {row}: expected a word or a number as label, without spaces around it, tabs and line "
                f"ends, or several of them, each once; got {cell!r:.60}; several labels are real lists (.jsonl), cells "
                "such as a|b with --label_separator, or columns of 0 and 1, all of them named with --label_column"
            )
    return found


@functools.lru_cache
def _is_spelled(label: Labels) -> bool:
    """Whether predictions can be written with a label, or with each of several."""
    names = (label,) if isinstance(label, str) else label or ()
    plain = all(
        name == name.strip() and not JSON.fullmatch(name) and "\t" not in name and len(name.splitlines()) < 2
        for name in names
    )
    return plain and len({*names}) == len(names) and not (isinstance(label, tuple) and "" in label)


def names_of_columns(columns: Mapping[str, Sequence[str | None]], labelled: bool, source: str) -> list[Labels]:
    """The labels of every row of columns that hold 0 or 1; None if a test file has only placeholders."""
    if not labelled and all(cell is None or cell in HIDDEN for cells in columns.values() for cell in cells):
        return [None] * len(next(iter(columns.values())))
    found: list[Labels] = []
    for row, cells in enumerate(zip(*columns.values()), 1):
        if wrong := [cell for cell in cells if str(cell).lower() not in OFF_ON]:
            raise UserError(
                f"{source}, row {row}: expected 0 or 1, or false or true, in a column of labels, got {wrong[0]!r:.60}"
            )
        found.append(tuple(name for name, cell in zip(columns, cells) if OFF_ON[str(cell).lower()]))
    return found


# --- classes, scores or several labels -----------------------------------------------------------------------


def infer_task(
    task: Task, splits: Mapping[str, Examples], problem_type: str | None, trained: TrainedFor, training: bool
) -> Task:
    """Decide between classes, scores and several labels for the user's own data, and find the names of the classes.

    Class labels that are spelled in another way, such as 0.0 for 0, are changed in the splits to the names.

    Args:
        problem_type: the flag of this name.
        trained: what the model was trained for; without training data it decides.

    Raises:
        UserError: labels are missing, or only a flag could decide.
    """
    train = splits["train"] if training else None
    for split, part in splits.items():
        _make_kind(part, task.several_labels, split == "test")
    if task.several_labels:
        names = trained.class_names if train is None else _several_names(task, train, problem_type, trained)
        _rename(splits, names)
        return replace(task, labels=tuple(names), metrics=multi_label_scores.METRICS)
    scores = trained.scores if train is None else problem_type == "regression"
    for part in [part for name, part in splits.items() if name != "test"]:
        _refuse_no_value(part, _declared(part) or (() if training else trained.class_names), problem_type)
    if scores or (train is not None and problem_type is None and not _declared(train) and _are_scores(train)):
        return replace(task, labels=None, metrics=CORRELATIONS)
    names = trained.class_names if train is None else _class_names(train, problem_type, trained)
    if problem_type or not training:
        _rename(splits, names)
    return replace(task, labels=tuple(names), metrics=ACCURACY)


def _make_kind(part: Examples, several: bool, may_be_hidden: bool) -> None:
    """Make a list of one label that label where a text has one; refuse other lists there, and words elsewhere."""
    if not several:
        one = [label[0] if isinstance(label, tuple) and len(label) == 1 else label for label in part.labels or []]
        part.labels = part.labels and [None if may_be_hidden and label == () else label for label in one]
    for row, label in enumerate(part.labels or []):
        if label is not None and isinstance(label, tuple) != several:
            raise UserError(
                f"{part.where(row)}: expected {'a list of labels' if several else 'one label'}, as the training data, "
                f"the model or --problem_type says; got {label!r:.60}; several labels are lists (.jsonl), or cells "
                "such as a|b with --label_separator, or columns of 0 and 1, named with --label_column"
            )


def _declared(part: Examples) -> Sequence[str]:
    """The names of the classes that a data set of the Hub declares."""
    return part.facts.get("class_names", ())


def _class_names(train: Examples, problem_type: str | None, trained: TrainedFor) -> Sequence[str]:
    labels = [*(train.labels or [])]
    names = _declared(train) or names_in_order({_whole(label) for label in labels})
    if trained.names and set(names) == set(trained.names):
        return trained.names
    if problem_type is None and not _declared(train):
        _check_classes(train)
        return names_in_order({*labels})
    return names


def _several_names(task: Task, train: Examples, problem_type: str | None, trained: TrainedFor) -> Sequence[str]:
    rows = train.labels or []
    known = _declared(train) or train.columns.hot
    names = known or names_in_order({name for row in rows for name in row})
    if len(names) < 2 or (task.label_separator and all(len(row) < 2 for row in rows)):
        raise UserError(
            f"{train.facts['source']}: expected at least two labels and, with --label_separator "
            f"{task.label_separator or ''!r}, some cell with several; got one at most in each cell, such as "
            f"{max(names, key=len, default='')!r:.60}; name what stands between labels, or leave the flag out if each "
            "text has one"
        )
    _refuse_no_value(train, known, problem_type)
    return trained.names if trained.names and set(names) == set(trained.names) else names


def _rename(splits: Mapping[str, Examples], names: Sequence[str]) -> None:
    """Give labels such as 0.0, for 0, the names of the classes."""
    for part in splits.values():
        part.labels = part.labels and [_as_name(label, names) for label in part.labels]


def _as_name(label: Any, names: Sequence[str]) -> Any:
    """The name that a label stands for: itself, that of a whole number, or that of a class without a name."""
    if isinstance(label, tuple):
        return tuple(_as_name(one, names) for one in label)
    spellings = () if label is None else (label, _whole(label), f"LABEL_{_whole(label)}")
    return next((name for name in spellings if name in names), label)


def in_known_case(label: Any, names: Collection[str]) -> Any:
    """The name from which a label differs in case alone, if that is only one; of several labels each; or the label."""
    if isinstance(label, tuple):
        return tuple(in_known_case(one, names) for one in label)
    if not isinstance(label, str) or label in names:
        return label
    alike = [name for name in names if name.lower() == label.lower()]
    return alike[0] if len(alike) == 1 else label


def _refuse_no_value(part: Examples, named: Sequence[str], problem_type: str | None) -> None:
    """Refuse a label that stands for a missing value, unless a class is called so, or the flag makes it one."""
    kind = "multi_label" if part.labels and isinstance(part.labels[0], tuple) else "single_label"
    for row, label in enumerate(part.labels or []):
        for name in label if isinstance(label, tuple) else (label,):
            missing = name is None or (has_no_value(name) and name not in named)
            if missing and (not name or problem_type != kind):
                raise UserError(
                    f"{part.where(row)}: expected a label, got {repr(name) if name else 'nothing'}; fill it in, or "
                    f"leave out the row" + (f", or, if it is a class, give --problem_type {kind}" if name else "")
                )


def _are_scores(train: Examples) -> bool:
    """Whether labels are scores: all are numbers, and one has decimals. UserError if only a flag can say it."""
    texts: list[str] = [*(train.labels or [])]
    decimal = [text for text in texts if NUMBER.fullmatch(text) and not INTEGER.fullmatch(text)]
    words = [text for text in texts if not NUMBER.fullmatch(text)]
    if decimal and (words or all(float(text).is_integer() for text in decimal)):
        unclear = (words or decimal)[0]
        raise UserError(
            f"{train.where(texts.index(unclear))}: the label {unclear!r:.60} may be a class or, as {decimal[0]!r}, a "
            "score (pandas writes whole numbers so if another row has none); correct it, or give --problem_type "
            "single_label for classes, or --problem_type regression for scores"
        )
    return bool(decimal)


def _check_classes(train: Examples) -> None:
    """Refuse classes that are probably several labels each, or one class in two spellings."""
    cells, spelled = {*(train.labels or [])}, dict[str, str]()
    for cell in sorted(cells):
        other = spelled.setdefault(str(int(cell)) if INTEGER.fullmatch(cell) else cell.lower(), cell)
        dividing = [mark for mark in _marks(cell) if _divides(mark, cell, cells)]
        if dividing or other != cell:
            mark = min(dividing, key=lambda mark: (len({*_parts(cell, mark)} - cells), len(mark)), default="")
            same = f"the labels {' and '.join(_parts(cell, mark))!r:.60}" if mark else f"{other!r:.60} of another row"
            give = f"give --label_separator {mark!r} for several labels a text" if mark else "write them alike"
            raise UserError(
                f"{train.facts['source']}: the label {cell!r:.60} may be one class or {same}; {give}, or give "
                "--problem_type single_label for one class"
            )


def _divides(mark: str, cell: str, cells: Collection[str]) -> bool:
    """Whether a mark seems to stand between labels in a cell, because a part is a label of its own.

    Beside a, this holds for a#b, but beside Arts also for Arts & Culture. There are fewer labels than sets of them,
    though: a mark stands between labels only if the classes have no more different parts than there are classes. And if
    it may as well join the words of one name (not_funny beside funny), all parts must be classes.
    """
    parts = _parts(cell, mark)
    known = [part in cells for part in parts]
    return (all(known) if JOINS.fullmatch(mark) else all(parts) and any(known)) and len(cells) >= len(
        {part for one in cells for part in _parts(one, mark)}
    )


def _parts(cell: str, mark: str) -> list[str]:
    return [part.strip() for part in cell.split(mark)]


def _marks(cell: str) -> list[str]:
    """The runs of punctuation, symbols and spaces in a label, as they are and without spaces, and their characters."""
    marks = "".join(one if unicodedata.category(one)[0] in "PSZ" else "\n" for one in cell)
    return [mark for run in marks.split("\n") for mark in (run, run.strip(), *run) if mark]


def names_in_order(names: set[str]) -> list[str]:
    """Names of classes, sorted; whole numbers by their values."""
    whole = all(INTEGER.fullmatch(name) for name in names)
    return sorted(names, key=lambda name: (int(name), name) if whole else name)  # 1 and 01 in the same order everywhere


@functools.lru_cache
def _whole(text: str) -> str:
    """0.0 as 0; other texts as they are."""
    if INTEGER.fullmatch(text) or not NUMBER.fullmatch(text) or not float(text).is_integer():
        return text
    return str(int(float(text)))


# --- numbers -------------------------------------------------------------------------------------------------


def encode_labels(examples: Examples, task: Task) -> list:
    """Class numbers, scores for regression, or a tuple of 0.0 and 1.0. UserError names all unknown labels at once."""
    labels = examples.labels or []
    if task.labels is None:
        wrong = [row for row, label in enumerate(labels) if not _is_score(label, task)]
        expected = "a number" + (" from {} to {}".format(*task.score_range) if np.isfinite(task.score_range[0]) else "")
        remedy = "correct it" + ("" if task.files else ", or give --problem_type single_label for classes")
    else:
        known = class_numbers(task)
        wrong = [row for row, label in enumerate(labels) if not _is_known(label, known)]
        expected = f"a label out of {', '.join(known)}"
        remedy = "correct it, or train with examples of it"
        first = _whole(str(labels[wrong[0]])) if wrong else ""
        if wrong and first in known:
            remedy = f"write {first}, or give --problem_type single_label to read it so"
    if wrong:
        more = f", and so in {len(wrong):,} rows" if len(wrong) > 1 else ""
        raise UserError(
            f"{examples.where(wrong[0])}: expected {expected}; got {labels[wrong[0]]!r:.80}{more}; {remedy}"
        )
    if task.labels is None:
        return [float(label) for label in labels]
    if not task.several_labels:
        return [known[label] for label in labels]
    if empty := sum(not row for row in labels):
        examples.notes.append(f"texts without labels: {empty:,} of {len(labels):,}")
    return [tuple(float(name in row) for name in task.labels) for row in labels]


def class_numbers(task: Task) -> dict[str, int]:
    """The number of each class, by its name and by its spelling in the task's files."""
    known = {name: number for number, name in enumerate(task.labels or ())}
    return known | {spelling: number for number, spelling in enumerate(task.spellings)}


def _is_known(label: Labels, known: Mapping[str, int]) -> bool:
    return label is not None and (set(label) <= known.keys() if isinstance(label, tuple) else label in known)


def _is_score(text: Labels, task: Task) -> bool:
    low, high = task.score_range
    number = float(text) if isinstance(text, str) and NUMBER.fullmatch(text) else np.nan
    return bool(np.isfinite(number)) and low <= number <= high


def encode_test_labels(examples: Examples, task: Task) -> list | None:
    """The numbers of the labels of data to predict; None if they are placeholders, or none that the task knows.

    In the layout of GLUE, one label in all rows is a placeholder. Labels that differ from each other may be real ones
    in another spelling, so a note says that nothing is scored.

    Raises:
        UserError: some rows have a known label, and others do not.
    """
    known, labels = class_numbers(task), examples.labels or []
    found = [label != () and (_is_known(label, known) if task.labels else _is_score(label, task)) for label in labels]
    different = {label for label in labels if label and label not in HIDDEN}
    if task.files and len({*labels}) == 1:
        return None
    if any(found):
        return encode_labels(examples, task)
    if different:
        listed = ", ".join(f"{label!r:.40}" for label in sorted(map(str, different))[:3])
        expected = f"the classes of the model ({', '.join(known)})" if task.labels else "numbers, as scores are"
        examples.notes.append(
            "warning: the predictions are not scored, because the labels of this data "
            f"({listed}{', ...' if len(different) > 3 else ''}) are not {expected}; write them so for a score"
        )
    return None
