"""Read tables of text: TSV without quoting, CSV and JSON lines, also as .gz and .xz. Every error names file and line.

GLUE's TSVs are not quoted: a field may begin with a quotation mark that never closes, and a reader with the rules of
CSV would silently merge rows. Therefore `.tsv` is split at tabs and at nothing else. Lines end at `\\n` only, because
the texts contain U+2028 and U+0085, at which `str.splitlines` would split. The reader of
pandas, which datasets uses, would read a row with too few fields as one with empty fields.
"""

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert_training.files.compressed_files import kind_of, numbered_lines
from bert_training.files.json_files import parse_json
from tokenization.errors import UserError


@dataclass
class Table:
    """Some columns of a file; `len` gives the number of rows."""

    path: Path
    columns: dict[str, list]
    """The chosen columns. The values are strings; those from JSON may be numbers and booleans, too."""
    lines: list[int]
    """Number of the line, from 1, on which each row begins."""
    skipped: list[int] = field(default_factory=list)
    """Lines that were left out because their number of fields is wrong; empty without ``ragged_share``."""

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int) -> str:
        """File and line of a row, counted from 0, for error messages: `path:line`."""
        return f"{self.path}:{self.lines[row]}"


def _tsv_rows(path: Path) -> Iterator[tuple[int, list]]:
    for number, line in numbered_lines(path):
        yield number, line.split("\t") if line else []


def _csv_rows(path: Path) -> Iterator[tuple[int, list]]:
    csv.field_size_limit(sys.maxsize)  # of 131,072 characters by default; a text may be longer
    reader = csv.reader((line for _, line in numbered_lines(path, keep_ends=True)), strict=True)
    number = 1
    try:
        for row in reader:
            yield number, row
            number = reader.line_num + 1
    except csv.Error as error:
        header = next((line for _, line in numbered_lines(path)), "")
        if number == 1 and (separator := re.match(r'"[^"]*"([;\t|])"', header)):
            with_place = f"{path}:1: " + _another_separator(".csv", header, separator[1])
            raise UserError(with_place) from None
        raise UserError(
            f'{path}:{number}: expected CSV with fields quoted by ", got: {error}; '
            "a row begins on this line and does not end properly"
        ) from None


def _jsonl_rows(path: Path) -> Iterator[tuple[int, list | dict]]:
    """Yield the names of all fields as the header, then the fields of each object.

    A field that the first object lacks may be the text or the label of all others, so the header is known at the end.
    """
    names: dict[str, str] = {}  # each name to itself, so that all rows share one
    rows: list[tuple[int, list | dict]] = []
    for number, line in numbered_lines(path):
        if not line.strip():
            rows.append((number, {}))
            continue
        try:
            row = parse_json(line, strict=True)
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise UserError(f"{path}:{number}: expected Unicode text, got half a surrogate pair {half!r}") from None
        except json.JSONDecodeError as error:
            raise UserError(
                f"{path}:{number}: expected one JSON object a line, got: {error.msg} at column {error.colno}; correct "
                "the line"
            ) from None
        if not isinstance(row, dict) or not row:
            raise UserError(f"{path}:{number}: expected a JSON object with fields, got {line[:60]!r}")
        rows.append((number, {names.setdefault(name, name): value for name, value in row.items()}))
        if len(names) > MOST_COLUMNS:
            raise UserError(f"{path}:{number}: {_too_many('fields with different names', len(names))}")
    yield rows[0][0] if rows else 1, [*names]
    yield from rows


def _too_many(what: str, count: int) -> str:
    return f"expected at most {MOST_COLUMNS:,} {what} in a table, got {count:,}; keep only those with texts and labels"


MOST_COLUMNS = 16_384  # of a spreadsheet
SEPARATORS = {".csv": ",", ".tsv": "\t"}
PLURALS = {";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas"}
_ROWS = {".tsv": _tsv_rows, ".csv": _csv_rows, ".jsonl": _jsonl_rows}


def read_table(
    path: str | Path,
    choose: Callable[[list[str]], list[str]],
    default_header: tuple[str, ...] = (),
    ragged_share: float = 0.0,
    may_be_null: tuple[str, ...] = (),
    kind: str | None = None,
) -> Table:
    """Read some columns of a table.

    Args:
        choose: header -> names of the columns to read; raises ValueError if one that it needs is missing.
        default_header: for files without a header (CoLA); used if the first line lacks the last of these names.
        ragged_share: up to this share of the rows may be skipped, and listed in ``Table.skipped``, because they are
            blank or have a wrong number of fields. Blank lines at the end of the file do not count.
        may_be_null: columns in which JSON lines may have null, or no value.
        kind: the kind of the file, such as ".jsonl"; its name says it by default.

    Raises:
        ValueError: the file is not such a table; the message names file and line.
    """
    path = Path(path)
    kind = kind or kind_of(path)
    if kind not in _ROWS:
        raise UserError(f"{path}: expected a file named {', '.join(_ROWS)} (or .gz, .xz of these)")
    rows = _ROWS[kind](path)
    number, first = next(rows, (1, []))
    if not first:
        raise UserError(f"{path}:1: expected a header or a first row, got an empty file or line")
    header = list(first)
    if default_header and default_header[-1] not in first:
        header, rows = list(default_header), _with_first((number, first), rows)
    if len(header) > MOST_COLUMNS:
        raise UserError(f"{path}:{number}: {_too_many('columns', len(header))}")
    if doubled := [name for name, count in Counter(header).items() if count > 1]:
        remedy = "rename one" if doubled[0] else "it has no name, so delete the empty columns, or name them"
        raise UserError(f"{path}:{number}: column {doubled[0]!r} is there twice; {remedy}")
    try:
        _check_separator(kind, header)
        names = choose(header)
    except ValueError as error:
        raise UserError(f"{path}:{number}: {error}") from None
    return _collect(path, rows, header, names, ragged_share, may_be_null)


def _check_separator(kind: str, header: list[str]) -> None:
    """Raise ValueError if the only name in a header is several names, with a separator of another kind of file."""
    if len(header) != 1 or kind == ".jsonl":
        return
    if header[0].lower().startswith("sep="):
        raise UserError(f"expected the names of the columns, got {header[0]!r}, a line for spreadsheets; delete it")
    for separator in PLURALS:
        names = header[0].split(separator)
        # A longer part is no name: the first line is then an example, in whose text the character occurs.
        if separator == SEPARATORS[kind] or len(names) < 2 or any(len(name.split()) > 3 for name in names):
            continue
        raise UserError(_another_separator(kind, header[0], separator))


def _another_separator(kind: str, header: str, separator: str) -> str:
    ours = PLURALS[SEPARATORS[kind]]
    remedy = f"save it with {ours} (a spreadsheet asks for the separator)"
    if separator == "\t":
        remedy += ", or name it .tsv if no cell is quoted"
    if separator == ",":
        remedy += ", or name it .csv"
    return (
        f"expected names of columns separated by {ours}, got {header!r:.60}, which has {PLURALS[separator]}; {remedy}"
    )


def _with_first(first: tuple[int, Any], rest: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    yield first
    yield from rest


def _collect(
    path: Path,
    rows: Iterator[tuple[int, list | dict]],
    header: list[str],
    names: list[str],
    ragged_share: float,
    may_be_null: tuple[str, ...],
) -> Table:
    table = Table(path, {name: [] for name in names}, [])
    kept = [(table.columns[name], header.index(name), name) for name in names]
    blank: list[int] = []
    ragged = ""
    for number, row in rows:
        if not row:
            blank.append(number)
            continue
        if blank:
            table.skipped += blank
            ragged = ragged or f"{path}:{blank[0]}: expected a row, got a blank line; delete it or fill it in"
            blank = []
        if isinstance(row, list) and len(row) != len(header):
            table.skipped.append(number)
            ragged = ragged or (
                f"{path}:{number}: expected {len(header)} columns ({', '.join(header)[:800]}), got {len(row)}; "
                "fix this line" + (" (quotation marks join nothing in a .tsv)" if "tsv" in path.name else "")
            )
            continue
        for column, position, name in kept:
            value = row.get(name) if isinstance(row, dict) else row[position]
            if value is None and name not in may_be_null:
                raise UserError(f"{path}:{number}: field {name!r} is missing or null; fill it in")
            column.append(value)
        table.lines.append(number)
    if len(table.skipped) > ragged_share * len(table):
        raise UserError(ragged)
    if not table.lines:
        raise UserError(f"{path}: expected rows below the header, got none")
    return table
