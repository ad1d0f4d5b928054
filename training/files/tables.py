"""Tables of text with a place for every error: TSV without quoting, CSV with it, JSON lines; .gz and .xz of these.

GLUE's TSVs are not quoted: a field may begin with a quotation mark that never closes, and a reader
with CSV rules then merges rows without a word. So `.tsv` is split at tabs and nothing else. Lines end
at `\\n` only: the texts contain U+2028 and U+0085, which `str.splitlines` would break at.
"""

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tokenization.packed_files import kind_of, numbered_lines


@dataclass
class Table:
    path: Path
    columns: dict[str, list]
    """The chosen columns; strings, and from JSON also numbers and booleans."""
    lines: list[int]
    """Line of the file, from 1, on which each row begins."""
    skipped: list[int] = field(default_factory=list)
    """Lines left out because their number of fields is wrong; only with ``ragged_share``."""

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int) -> str:
        return f"{self.path}:{self.lines[row]}"


def _tsv_rows(path: Path) -> Iterator[tuple[int, list]]:
    for number, line in numbered_lines(path):
        yield number, line.split("\t") if line else []


def _csv_rows(path: Path) -> Iterator[tuple[int, list]]:
    reader = csv.reader((line + "\n" for _, line in numbered_lines(path)), strict=True)
    number = 1
    try:
        for row in reader:
            yield number, row
            number = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f'{path}:{number}: expected CSV with fields quoted by ", got: {error}; '
            "a row begins on this line and does not end properly"
        ) from None


def _jsonl_rows(path: Path) -> Iterator[tuple[int, list]]:
    """The fields of the first object as a header, then each object's values in that order (absent: None)."""
    header: list[str] = []
    for number, line in numbered_lines(path):
        if not line.strip():
            yield number, []
            continue
        try:
            row = json.loads(line, object_pairs_hook=_object, parse_constant=_constant)
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise ValueError(f"{path}:{number}: expected Unicode text, got half a surrogate pair {half!r}") from None
        except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a plain ValueError
            raise ValueError(f"{path}:{number}: expected one JSON object a line, got: {error}") from None
        if not isinstance(row, dict) or not row:
            raise ValueError(f"{path}:{number}: expected a JSON object with fields, got {line[:60]!r}")
        if not header:
            header = list(row)
            yield number, header
        yield number, [row.get(name) for name in header]


def _object(fields: list[tuple[str, object]]) -> dict:
    names = [name for name, _ in fields]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"the field {doubled[0]!r} twice in one object")
    return dict(fields)


def _constant(name: str) -> float:
    raise ValueError(f"{name}, which is no JSON")


_ROWS = {".tsv": _tsv_rows, ".csv": _csv_rows, ".jsonl": _jsonl_rows}


def read_table(
    path: str | Path,
    choose: Callable[[list[str]], list[str]],
    default_header: tuple[str, ...] = (),
    ragged_share: float = 0.0,
    may_be_null: tuple[str, ...] = (),
) -> Table:
    """Read the columns that ``choose(header)`` names; it raises ValueError if it misses one.

    ``default_header`` is for files without a header (CoLA): used when the first line lacks its last name.
    ``ragged_share`` is the share of rows with a wrong number of fields, blank lines among them, that is left out and
    listed in ``Table.skipped``; above it, the first of them is an error. Blank lines may end a file.
    ``may_be_null`` are columns in which JSON lines may have null, or nothing.
    Raises ValueError, naming file and line, for whatever is not a table.
    """
    path = Path(path)
    kind = kind_of(path)
    if kind not in _ROWS:
        raise ValueError(f"{path}: expected a file named {', '.join(_ROWS)} (or .gz, .xz of these)")
    rows = _ROWS[kind](path)
    number, first = next(rows, (1, []))
    if not first:
        raise ValueError(f"{path}:1: expected a header or a first row, got an empty file or line")
    header = list(first)
    if default_header and default_header[-1] not in first:
        header, rows = list(default_header), _with_first((number, first), rows)
    if doubled := [name for name in header if header.count(name) > 1]:
        raise ValueError(f"{path}:{number}: column {doubled[0]!r} is there twice; rename one")
    try:
        names = choose(header)
    except ValueError as error:
        raise ValueError(f"{path}:{number}: {error}") from None
    return _collect(path, rows, header, names, ragged_share, may_be_null)


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
