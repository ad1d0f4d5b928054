"""Read tables of text: TSV without quoting, CSV and JSON lines, also as .gz and .xz. Every error names file and line.

GLUE's TSVs are not quoted: a field may begin with a quotation mark that never closes, and a reader with the rules of
CSV would silently merge rows. Therefore `.tsv` is split at tabs and at nothing else. Lines end at `\\n` only, because
the texts contain U+2028 and U+0085, at which `str.splitlines` would split.
"""

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tokenization.compressed_files import kind_of, numbered_lines
from tokenization.json_text import parse_json


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
            raise ValueError(with_place) from None
        raise ValueError(
            f'{path}:{number}: expected CSV with fields quoted by ", got: {error}; '
            "a row begins on this line and does not end properly"
        ) from None


def _jsonl_rows(path: Path) -> Iterator[tuple[int, list]]:
    """Yield the names of all fields as the header, then the values of each object; None for absent fields.

    A field that the first object lacks may be the text or the label of all others, so the header is known at the end.
    """
    positions: dict[str, int] = {}
    rows: list[tuple[int, list]] = []
    for number, line in numbered_lines(path):
        if not line.strip():
            rows.append((number, []))
            continue
        try:
            row = parse_json(line, strict=True)
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise ValueError(f"{path}:{number}: expected Unicode text, got half a surrogate pair {half!r}") from None
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{path}:{number}: expected one JSON object a line, got: {error.msg} at column {error.colno}; correct "
                "the line"
            ) from None
        if not isinstance(row, dict) or not row:
            raise ValueError(f"{path}:{number}: expected a JSON object with fields, got {line[:60]!r}")
        values = [None] * len(positions)
        for name, value in row.items():
            if name in positions:
                values[positions[name]] = value
            else:
                positions[name] = len(values)
                values.append(value)
        rows.append((number, values))
    yield rows[0][0] if rows else 1, [*positions]
    for number, values in rows:
        yield number, values + [None] * (len(positions) - len(values)) if values else []


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
        raise ValueError(f"{path}: expected a file named {', '.join(_ROWS)} (or .gz, .xz of these)")
    rows = _ROWS[kind](path)
    number, first = next(rows, (1, []))
    if not first:
        raise ValueError(f"{path}:1: expected a header or a first row, got an empty file or line")
    header = list(first)
    if default_header and default_header[-1] not in first:
        header, rows = list(default_header), _with_first((number, first), rows)
    if doubled := [name for name, count in Counter(header).items() if count > 1]:
        remedy = "rename one" if doubled[0] else "it has no name, so delete the empty columns, or name them"
        raise ValueError(f"{path}:{number}: column {doubled[0]!r} is there twice; {remedy}")
    try:
        _check_separator(kind, header)
        names = choose(header)
    except ValueError as error:
        raise ValueError(f"{path}:{number}: {error}") from None
    return _collect(path, rows, header, names, ragged_share, may_be_null)


def _check_separator(kind: str, header: list[str]) -> None:
    """Raise ValueError if the only name in a header is several names, with a separator of another kind of file."""
    if len(header) != 1 or kind == ".jsonl":
        return
    if header[0].lower().startswith("sep="):
        raise ValueError(f"expected the names of the columns, got {header[0]!r}, a line for spreadsheets; delete it")
    for separator in PLURALS:
        names = header[0].split(separator)
        # A longer part is no name: the first line is then an example, in whose text the character stands.
        if separator == SEPARATORS[kind] or len(names) < 2 or any(len(name.split()) > 3 for name in names):
            continue
        raise ValueError(_another_separator(kind, header[0], separator))


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


def _with_first(first: tuple[int, list], rest: Iterator[tuple[int, list]]) -> Iterator[tuple[int, list]]:
    yield first
    yield from rest


def _collect(
    path: Path,
    rows: Iterator[tuple[int, list]],
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
        if len(row) != len(header):
            table.skipped.append(number)
            ragged = ragged or (
                f"{path}:{number}: expected {len(header)} columns ({', '.join(header)}), got {len(row)}; "
                "fix this line" + (" (quotation marks join nothing in a .tsv)" if "tsv" in path.name else "")
            )
            continue
        for column, position, name in kept:
            if row[position] is None and name not in may_be_null:
                raise ValueError(f"{path}:{number}: field {name!r} is missing or null; fill it in")
            column.append(row[position])
        table.lines.append(number)
    if len(table.skipped) > ragged_share * len(table):
        raise ValueError(ragged)
    if not table.lines:
        raise ValueError(f"{path}: expected rows below the header, got none")
    return table
