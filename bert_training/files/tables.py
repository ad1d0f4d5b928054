"""Read tables of text: TSV without quoting, CSV, JSON lines, JSON and Parquet, also as .gz and .xz.

Every error names file and line, or of Parquet the row.

GLUE's TSVs are not quoted: a field may begin with a quotation mark that never closes, and a reader with the rules of
CSV would silently merge rows. Therefore `.tsv` is split at tabs and at nothing else. Lines end at `\\n` only, because
the texts contain U+2028 and U+0085, at which `str.splitlines` would split. The reader of
pandas, which datasets uses, would read a row with too few fields as one with empty fields.

Names of columns are compared in Unicode's form NFC, in which "é" is one character and not "e" and an accent.
"""

import csv
import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert_training.files.compressed_files import kind_of, numbered_lines
from bert_training.files.harmless_output import say
from bert_training.files.json_files import parse_json
from bert_training.files.table_forms import ParquetTable, json_objects
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
    delimiter: str = ","
    """Of a .csv, what separates its cells."""

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int) -> str:
        """File and line of a row, counted from 0, for error messages: `path:line`."""
        if kind_of(self.path).lower() == ".parquet":  # which has no lines
            return f"{self.path} row {row}"
        return f"{self.path}:{self.lines[row]}"


def _tsv_rows(path: Path) -> Iterator[tuple[int, list]]:
    for number, line in numbered_lines(path):
        yield number, line.split("\t") if line else []


def _csv_rows(path: Path, delimiter: str = ",") -> Iterator[tuple[int, list]]:
    csv.field_size_limit(sys.maxsize)  # of 131,072 characters by default; a text may be longer
    reader = csv.reader((line for _, line in numbered_lines(path, keep_ends=True)), delimiter=delimiter, strict=True)
    number = 1
    try:
        for row in reader:
            yield number, row
            number = reader.line_num + 1
    except csv.Error as error:
        header = next((line for _, line in numbered_lines(path)), "")
        separator = re.match(r'"[^"]*"([,;\t|])"', header)
        if number == 1 and separator and separator[1] != delimiter:
            with_place = f"{path}:1: " + _another_separator(".csv", delimiter, header, separator[1])
            raise UserError(with_place) from None
        raise UserError(
            f'{path}:{number}: expected CSV with fields quoted by ", got: {error}; '
            "a row begins on this line and does not end properly"
        ) from None


def _jsonl_rows(path: Path) -> Iterator[tuple[int, list | dict]]:
    """Yield the names of all fields as the header, then the fields of each object.

    A field that the first object lacks may be the text or the label of all others, so the header is known at the end.
    """
    names: dict[str, str] = {}  # each name in NFC to its first spelling, which all rows share
    rows: list[tuple[int, list | dict]] = []
    for number, line in numbered_lines(path):
        if not line.strip():
            rows.append((number, {}))
            continue
        try:
            row = parse_json(line, strict=True)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{path}:{number}: expected one JSON object a line, got: {error.msg} at column {error.colno}; correct "
                "the line"
            ) from None
        rows.append((number, _object(row, names, f"{path}:{number}")))
    yield rows[0][0] if rows else 1, [*names.values()]
    yield from rows


def _json_rows(path: Path) -> Iterator[tuple[int, list | dict]]:
    """As ``_jsonl_rows``, of a .json file."""
    objects = json_objects(path)
    if objects is None:
        yield from _jsonl_rows(path)
        return
    names: dict[str, str] = {}
    rows = [(number, _object(row, names, f"{path}:{number}")) for number, row in objects]
    yield rows[0][0] if rows else 1, [*names.values()]
    yield from rows


SAID: list[str] = []


def nfc(name: str) -> str:
    """A name of a column or a label in the Unicode form in which names are compared. A change is said, once."""
    composed = unicodedata.normalize("NFC", name)
    if composed != name and not SAID:
        SAID.append(composed)
        say(f"{composed!r:.60} is there in another Unicode form; names of columns and labels are compared in NFC")
    return composed


def _object(row: Any, names: dict[str, str], place: str) -> dict:
    """A row of JSON with its fields, whose names are added to ``names``. Raises ValueError if it is none."""
    try:
        spelled = json.dumps(row, ensure_ascii=False)
        spelled.encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise UserError(f"{place}: expected Unicode text, got half a surrogate pair {half!r}") from None
    if not isinstance(row, dict) or not row:
        raise UserError(f"{place}: expected a JSON object with fields, got {spelled[:60]!r}")
    row = {names.setdefault(nfc(name), name): value for name, value in row.items()}
    if len(names) > MOST_COLUMNS:
        raise UserError(f"{place}: {_too_many('fields with different names', len(names))}")
    return row


def _too_many(what: str, count: int) -> str:
    return f"expected at most {MOST_COLUMNS:,} {what} in a table, got {count:,}; keep only those with texts and labels"


MOST_COLUMNS = 16_384  # of a spreadsheet
SEPARATORS = {".csv": ",", ".tsv": "\t"}
PLURALS = {";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas"}
KINDS = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}  # for --delimiter
SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")


def read_table(
    path: str | Path,
    choose: Callable[[list[str]], list[str]],
    default_header: tuple[str, ...] = (),
    ragged_share: float = 0.0,
    may_be_null: tuple[str, ...] = (),
    delimiter: str | None = None,
    usual_delimiter: str = ",",
    has_flag: bool = True,
) -> Table:
    """Read some columns of a table.

    Args:
        choose: header -> names of the columns to read; raises ValueError if one that it needs is missing.
        default_header: for files without a header (CoLA); used if the first line lacks the last of these names.
        ragged_share: up to this share of the rows may be skipped, and listed in ``Table.skipped``, because they are
            blank or have a wrong number of fields. Blank lines at the end of the file do not count.
        may_be_null: columns in which JSON lines may have null, or no value.
        delimiter: what separates the cells of a .csv; None if no flag says so.
        usual_delimiter: what separates them then, unless only the comma finds several columns.
        has_flag: whether the script has --delimiter, which a message may recommend.

    Raises:
        ValueError: the file is not such a table; the message names file and line.
    """
    path = Path(path)
    kind = kind_of(path).lower()
    if kind not in KINDS:
        sheet = (
            "in the spreadsheet, save the sheet as 'CSV UTF-8'" if kind in SPREADSHEETS else "save it as one of these"
        )
        raise UserError(f"{path}: expected a file named {', '.join(KINDS)} (or .gz, .xz of these); {sheet}")
    if kind == ".tsv" and delimiter not in (None, "\t"):
        raise UserError(f"{path}: a .tsv is split at tabs, and --delimiter says {delimiter!r}; name the file .csv")
    if kind == ".parquet":
        return _read_parquet(path, choose, may_be_null)
    if kind == ".csv":
        delimiter = delimiter or _found_delimiter(path, usual_delimiter)
        rows: Iterator[tuple[int, list | dict]] = _csv_rows(path, delimiter)
    else:
        delimiter = "\t" if kind == ".tsv" else ","
        rows = {".tsv": _tsv_rows, ".jsonl": _jsonl_rows, ".json": _json_rows}[kind](path)
    number, first = next(rows, (1, []))
    if not first:
        raise UserError(f"{path}:1: expected a header or a first row, got an empty file or line")
    header = list(first)
    if default_header and default_header[-1] not in first:
        header, rows = list(default_header), _with_first((number, first), rows)
    try:
        if kind in SEPARATORS:
            _check_separator(kind, delimiter, header, has_flag)
        names = _chosen([*map(nfc, header)], choose)
    except ValueError as error:
        raise UserError(f"{path}:{number}: {error}") from None
    table = _collect(path, rows, header, names, ragged_share, may_be_null, delimiter if kind == ".csv" else "")
    table.delimiter = delimiter
    return table


def check_delimiter(delimiter: str | None, paths: Iterable[str | Path]) -> None:
    """Refuse --delimiter where no file has delimiters."""
    if delimiter and not any(kind_of(path).lower() in (".csv", ".tsv") for path in paths):
        raise UserError("--delimiter has no effect without a .csv file; leave it out")


def _chosen(header: list[str], choose: Callable[[list[str]], list[str]]) -> list[str]:
    """The columns to read. Raises ValueError if there are too many, two of one name, or not the right ones."""
    if len(header) > MOST_COLUMNS:
        raise UserError(_too_many("columns", len(header)))
    if doubled := [name for name, count in Counter(header).items() if count > 1]:
        remedy = "rename one" if doubled[0] else "it has no name, so delete the empty columns, or name them"
        raise UserError(f"column {doubled[0]!r} is there twice; {remedy}")
    return choose(header)


def _found_delimiter(path: Path, usual: str) -> str:
    """The usual delimiter, or the comma if only that finds several names in the first row of a .csv."""
    if usual == ",":
        return usual
    several = {}
    for delimiter in (usual, ","):
        try:
            _, first = next(_csv_rows(path, delimiter), (1, []))
        except ValueError:
            first = []
        several[delimiter] = len(first) > 1
    return "," if several[","] and not several[usual] else usual


def _read_parquet(path: Path, choose: Callable[[list[str]], list[str]], may_be_null: tuple[str, ...]) -> Table:
    file = ParquetTable(path)
    try:
        names = _chosen([*map(nfc, file.names)], choose)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    spelled = {nfc(name): name for name in file.names}
    table = Table(path, {name: file.values(spelled[name]) for name in names}, [])
    table.lines = list(range(len(next(iter(table.columns.values()), []))))
    if not table.lines:
        raise UserError(f"{path}: expected rows, got none")
    for name, column in table.columns.items():
        if name not in may_be_null and None in column:
            raise UserError(f"{table.where(column.index(None))}: field {name!r} is missing or null; fill it in")
    return table


def _check_separator(kind: str, delimiter: str, header: list[str], has_flag: bool) -> None:
    """Raise ValueError if the only name in a header is several names, with a separator of another kind of file."""
    if header[0].lower().startswith("sep=") and not any(header[1:]):
        raise UserError(f"expected the names of the columns, got {header[0]!r}, a line for spreadsheets; delete it")
    if len(header) != 1:
        return
    for separator in PLURALS:
        names = header[0].split(separator)
        # A longer part is no name: the first line is then an example, in whose text the character occurs.
        if separator == delimiter or len(names) < 2 or any(len(name.split()) > 3 for name in names):
            continue
        raise UserError(_another_separator(kind, delimiter, header[0], separator, has_flag))


def _another_separator(kind: str, delimiter: str, header: str, separator: str, has_flag: bool = True) -> str:
    ours = PLURALS[delimiter]
    if kind == ".csv" and has_flag:
        return (
            f"expected names of columns separated by {ours}, got {header!r:.60}, which has {PLURALS[separator]}; give "
            f"--delimiter {NAMES[separator]} (a flag of run_glue.py and run_swag.py), or save it with {ours}"
        )
    remedy = f"save it with {ours} (a spreadsheet asks for the separator)"
    if kind != ".csv" and (has_flag or separator == ","):
        remedy += ", or name it .csv" + ("" if separator == "," else " and give --delimiter")
    return (
        f"expected names of columns separated by {ours}, got {header!r:.60}, which has {PLURALS[separator]}; {remedy}"
    )


def _with_first(first: tuple[int, Any], rest: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    yield first
    yield from rest


def _why_ragged(path: Path, csv_delimiter: str, too_many: bool) -> str:
    if csv_delimiter and too_many:
        return f' (a cell in which {PLURALS[csv_delimiter]} occur needs quotation marks, "like this")'
    return " (quotation marks join nothing in a .tsv)" if "tsv" in path.name else ""


def _collect(
    path: Path,
    rows: Iterator[tuple[int, list | dict]],
    header: list[str],
    names: list[str],
    ragged_share: float,
    may_be_null: tuple[str, ...],
    csv_delimiter: str,
) -> Table:
    table, positions = Table(path, {name: [] for name in names}, []), [*map(nfc, header)]
    kept = [(table.columns[name], place, header[place]) for name in names for place in [positions.index(name)]]
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
                "fix this line" + _why_ragged(path, csv_delimiter, len(row) > len(header))
            )
            continue
        for column, position, name in kept:
            value = row.get(name) if isinstance(row, dict) else row[position]
            if value is None and nfc(name) not in may_be_null:
                raise UserError(f"{path}:{number}: field {name!r} is missing or null; fill it in")
            column.append(value)
        table.lines.append(number)
    if len(table.skipped) > ragged_share * len(table):
        raise UserError(ragged)
    if not table.lines:
        raise UserError(f"{path}: expected rows below the header, got none")
    return table
