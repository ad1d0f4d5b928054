"""What the columns of files with predictions can hold, checked before the training that would make them.

A line of such a file has an id or a word, and what was predicted for it, separated by tabs. An id with a tab or a line
end would change the columns or the number of lines, and two rows with one id could not be told apart.
"""

import re
from collections.abc import Callable, Iterable

from tokenization.errors import UserError

SEPARATORS = re.compile("[\t\n\r\0]")
# What else ends a line in some readers, such as str.splitlines. An id has no use for them; a word may have one.
OTHER_LINE_ENDS = re.compile("[\v\f\x1c-\x1e\x85\u2028\u2029]")


def as_ids(values: Iterable[object]) -> list[str]:
    """The ids of a table as text; "" for null and NaN."""
    return ["" if value is None or value != value else str(value) for value in values]


def check_ids(ids: list[str], where: Callable[[int], str], column: str | None, in_columns: bool = True) -> None:
    """Refuse ids that would make a file of predictions ambiguous.

    Args:
        where: the place of a row, counted from 0.
        column: the name of the column of the ids; None if rows are numbered, so that nothing can be wrong.
        in_columns: whether the file is split at tabs and line ends. Quoted CSV and JSON are not.

    Raises:
        ValueError: with the place of the row: an id is empty, has a tab or a line end, or occurs twice; 1 and 1.0 are
            the same, because readers of tables take both for a number.
    """
    if column is None:
        return
    name = f"the column {column!r}" if column else "the column without a name"
    first: dict[str, int] = {}
    for row, id_ in enumerate(ids):
        same = re.sub(r"^(-?[0-9]+)\.0+$", r"\1", id_)
        odd = in_columns and (SEPARATORS.search(id_) or OTHER_LINE_ENDS.search(id_))
        if odd or not id_.strip() or same in first:
            too = f", which {where(first[same])} has as well" if same in first else ""
            raise UserError(
                f"{where(row)}: expected an id of its own in {name}{', without tabs and line ends' if odd else ''}, by "
                f"which predictions are told apart; got {id_[:60]!r}{too}; correct it, or remove {name}, so that "
                "predictions are numbered by row"
            )
        first[same] = row


def check_cell(text: str, where: str, what: str, mark: str = "") -> None:
    """Refuse a word or a label that would change the columns of a file. Raises UserError that names it and its place.

    U+2028 and the like are allowed, because files are read line by line at \\n, and words of real texts have them.

    Args:
        mark: what stands between the labels of a cell.
    """
    if SEPARATORS.search(text) or (mark and mark in text):
        raise UserError(
            f"{where}: expected {what} without tabs and line ends{f' and {mark!r}' if mark else ''}, because "
            f"predictions are written in columns; got {text[:60]!r}; correct it"
            + (", or name another mark with --label_separator" if mark else "")
        )
