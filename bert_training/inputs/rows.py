"""Rows of a table, a JSON file, a Parquet file or a data set of the Hub, as a ``pyarrow.Table`` of named columns.

A script says which columns it reads, and gets a table in which they have the names that it gave them:

    read_rows("mails.csv", [Column("text", ("body",)), Column("label", ("label",))])
    # a table with the columns text and label, all cells as strings

Nothing is guessed: a column has the name that a flag gives, or one of the few that the script knows. Strings stay
strings ("NA" and "007" are what they are), and no row is mended or dropped:

- ``.csv`` has a header, and cells that may be quoted; a row with too many or too few cells is an error, and so is a
  quotation mark that does not close. ``--delimiter`` names another separator than the comma.
- ``.tsv`` is never quoted, as the files of GLUE, in which a field may begin with a quotation mark that never closes.
- ``.jsonl`` has one object a line; ``.json`` has that, a list of objects, or an object with one such list.
- ``.parquet``, and a data set of the Hub, or a folder of ``datasets``, have rows already.

Every file may be packed (.gz, .xz, .bz2, .zst). pyarrow is imported when rows are read, because most commands end
before that.
"""

import codecs
import csv
import io
import json
import math
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from bert_training.files.hashing import digest, sha256
from bert_training.inputs.reading import kind_of, open_packed, parquet_file, parsed, read_text
from tokenization.errors import UserError

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset

KINDS = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
ANSWER = ("text", "answer_start")
AS_SQUAD = "answers as SQuAD has them, lists 'text' and 'answer_start' of one length"
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}  # with their names for --delimiter


class Column(NamedTuple):
    """A column that a script reads.

    Attributes:
        role: its name in the data set that is returned.
        names: what it may be called in the source; the first that is there is read.
        flag: the flag that names another; "" if there is none.
        needed: whether it must be there, with a value in every row. Otherwise a cell may be null.
        lists: whether a cell may be a list.
        answers: whether a cell has answers as SQuAD has them, {"text": [...], "answer_start": [...]}.
        filled: whether every row has a value where the column is there.
        as_json: whether a cell may be anything, and is passed on as JSON text.
        gaps: whether a cell of a needed column may be null.
    """

    role: str
    names: tuple[str, ...]
    flag: str = ""
    needed: bool = True
    lists: bool = False
    answers: bool = False
    filled: bool = False
    as_json: bool = False
    gaps: bool = False


Wanted = Sequence[Column] | Callable[[Sequence[str]], Sequence[Column]]
"""The columns that a script reads, or what names them, given the header of a source."""


def _of_header(columns: Wanted, header: Sequence[str]) -> Sequence[Column]:
    return columns([*map(nfc, header)]) if callable(columns) else columns


class Layout(NamedTuple):
    """How a file differs from others of its kind.

    Attributes:
        delimiter: what separates the cells of a .csv.
        header: the names of the columns of a .tsv without a header line (CoLA).
        broken_share: the share of rows with a wrong number of cells that may be left out (QQP).
    """

    delimiter: str = ","
    header: tuple[str, ...] = ()
    broken_share: float = 0.0


ROWS_AT_ONCE = 1 << 16  # of one Arrow array of strings, which holds at most 2 GB
AS_USUAL = Layout()
csv.field_size_limit(sys.maxsize)  # a text may be as long as a book


class Rows(NamedTuple):
    """What was read.

    Attributes:
        data: the columns, called by their roles; one that need not be there may be absent.
        names: what they are called in the source, in Unicode's form NFC.
        header: the names of all columns of the source.
        facts: for run.json: the source, what identifies its content, and the rows that were left out, by their numbers
            from 1 for the first line of the file.
    """

    data: "pyarrow.Table"
    names: dict[str, str]
    header: list[str]
    facts: dict[str, Any]


def read_rows(path: str | Path, columns: Wanted, layout: Layout = AS_USUAL) -> Rows:
    """The rows of a file.

    Raises:
        UserError: the file cannot be read, or lacks a column or a cell; the message names the file and the row.
    """
    kind, source, broken = kind_of(path).lower(), str(path), list[int]()
    if kind not in KINDS:
        raise UserError(f"{source}: expected a file named {', '.join(KINDS)}, also packed; save the table as one")
    if kind in (".jsonl", ".json"):
        return object_rows(json_rows(source), columns, source)
    with open_packed(path) as file:  # its content is let go of as soon as there is a table
        if kind == ".parquet":
            table, header = _parquet(source, file.read(), columns)
        else:
            table, header = _cells(source, file.read(), columns, layout, broken)
    facts = facts_of(source)
    if kind == ".csv" and layout.delimiter != ",":
        facts["delimiter"] = layout.delimiter
    if broken:
        facts["broken_lines_left_out"] = broken
    return _by_roles(table, header, columns, source, facts)


def object_rows(objects: Sequence[dict[str, Any]], columns: Wanted, source: str) -> Rows:
    """The rows of the objects that a JSON file, or something else that is no file, has."""
    header = [*dict.fromkeys(name for row in objects for name in row)]
    table = {name: [row.get(name) for row in objects] for name in {*chosen(header, columns, source).values()}}
    return _by_roles(table, header, columns, source, facts_of(source) if Path(source).is_file() else {})


def bar(items: Iterable[Any] | None, doing: str, unit: str, total: int | None = None) -> Any:
    """The items, with a bar from the second second on; where nobody watches, a line every half minute."""
    watched, first = sys.stderr.isatty(), os.environ.get("RANK", "0") == "0"
    every = {"delay": 1, "mininterval": 0.1} if watched else {"delay": 30, "mininterval": 30}
    return tqdm(items, doing, total, unit=f" {unit}", disable=not first, leave=False, miniters=1, **every)


def facts_of(source: str) -> dict[str, Any]:
    """The facts of a file for run.json, by which a resumed run knows it."""
    return {"source": source, "sha256": sha256(Path(source))}


def hub_rows(rows: "Dataset", columns: Wanted, source: str) -> Rows:
    """The rows of a split of the Hub. The class of a ``ClassLabel`` is its name; one that is hidden, as -1, is null."""
    table: dict[str, Any] = {}
    facts: dict[str, Any] = {"source": source, "fingerprint": rows._fingerprint}
    for role, name in chosen(rows.column_names, columns, source).items():
        feature = rows.features[name]
        classes = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
        table[name] = [_class_name(value, classes) for value in rows[name][:]] if classes else rows[name][:]
        if classes and role == "label":
            facts["class_names"] = [*map(nfc, classes)]
    facts["content_sha256"] = digest({name: [*map(str, cells)] for name, cells in table.items()})
    return _by_roles(table, rows.column_names, columns, source, facts)


def nfc(name: str) -> str:
    """A name of a column or a label in the Unicode form in which names are compared."""
    return unicodedata.normalize("NFC", name)


def chosen(header: Sequence[str], columns: Wanted, source: str) -> dict[str, str]:
    """The name, as it is spelled, of each role's column that is in a header. UserError names all that are missing."""
    columns, spelled = _of_header(columns, header), {nfc(name): name for name in header}
    found = {column.role: name for column in columns for name in reversed(column.names) if nfc(name) in spelled}
    wanted = "; ".join(
        " or ".join(map(repr, column.names)) + (f" (name another with {column.flag})" if column.flag else "")
        for column in columns
        if column.needed and column.role not in found
    )
    problem = f"expected a column {wanted}; got {', '.join(map(repr, header))[:400]}" if wanted else ""
    if twice := [name for name in found.values() if sum(nfc(name) == nfc(other) for other in header) > 1]:
        problem = f"the column {twice[0]!r} is there twice; rename one"
    if problem:
        raise UserError(f"{source}: {problem}")
    return {role: spelled[nfc(name)] for role, name in found.items()}


def _by_roles(table: Any, header: Sequence[str], columns: Wanted, source: str, facts: dict[str, Any]) -> Rows:
    """The rows as strings, or lists of strings, from columns that are lists or those of an Arrow table."""
    import pyarrow

    names = chosen(header, columns, source)
    there = [column for column in _of_header(columns, header) if column.role in names]
    found = pyarrow.table({column.role: _as_text(table[names[column.role]], column, source) for column in there})
    check_rows(found, source)
    return Rows(found, {role: nfc(name) for role, name in names.items()}, [*map(nfc, header)], facts)


def check_rows(found: Sized, source: str) -> None:
    """Raise UserError if there are none."""
    if not len(found):
        raise UserError(f"{source}: expected rows, got none")


def _of_label_studio(cells: Sequence[Any]) -> Sequence[Any]:
    """Label Studio exports several choices as {"choices": ["a", "b"]}, and one choice as a string: all become lists."""
    if not any(isinstance(cell, dict) and [*cell] == ["choices"] for cell in cells):
        return cells
    return [
        cell["choices"] if isinstance(cell, dict) and "choices" in cell else [cell] if isinstance(cell, str) else cell
        for cell in cells
    ]


def _as_text(values: Any, column: Column, source: str) -> Any:
    """The cells of a column as an Arrow array of strings, or of lists of strings. UserError names the row."""
    import pyarrow

    if not isinstance(values, pyarrow.ChunkedArray) or not pyarrow.types.is_string(values.type):
        rows = values.to_pylist() if isinstance(values, pyarrow.ChunkedArray) else values
        rows = _of_label_studio(rows) if column.lists else rows
        spelled = [_spelled(value, column) for value in rows]
        lists = column.lists and any(isinstance(value, list) for value in spelled)
        wanted = AS_SQUAD if column.answers else "a word, a number or a list of them" if column.lists else "text"
        told = f"a list in {column.role!r}, as in other rows" if lists else f"{wanted} as {column.role}"
        fits = dict if column.answers else list if lists else str
        for row, value in enumerate(spelled, 1):
            if value is not None and not isinstance(value, fits):
                raise UserError(
                    f"{source}, row {row}: expected {told}, got {value!r:.80}; correct it, or name another column"
                )
        try:
            values = _strings(spelled) if fits is str else _nested(spelled, column)
        except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can spell
            raise UserError(f"{source}: expected Unicode text as {column.role}: {error}") from None
    if (column.needed or column.filled) and not column.gaps and values.null_count:
        row = values.is_null().to_pylist().index(True) + 1
        raise UserError(f"{source}, row {row}: expected a {column.role}, got nothing; fill it in, or leave out the row")
    return values


def _strings(values: Sequence[str | None]) -> Any:
    """The Arrow array of them. ``pyarrow.array`` would import pandas first, which takes half a second."""
    import pyarrow

    parts = []
    for first in range(0, len(values), ROWS_AT_ONCE):
        builder = pyarrow.lib.StringBuilder(pyarrow.system_memory_pool())
        builder.append_values(values[first : first + ROWS_AT_ONCE])
        parts.append(builder.finish())
    return pyarrow.chunked_array(parts, pyarrow.string())


def _nested(values: Sequence[Any], column: Column) -> Any:
    """The Arrow array of lists of strings, or of answers."""
    import pyarrow

    of_texts = pyarrow.list_(pyarrow.string())
    of_answers = pyarrow.struct(dict(zip(ANSWER, (of_texts, pyarrow.list_(pyarrow.int64())))))
    return pyarrow.array(values, of_answers if column.answers else of_texts, memory_pool=pyarrow.system_memory_pool())


def _spelled(value: Any, column: Column) -> Any:
    """A cell as text: numbers and booleans as JSON spells them, null and NaN as None; what has no text as it is."""
    if column.answers:
        return value if value is None or _are_answers(value) else repr(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, bool | int | float) or (column.as_json and value is not None):
        return json.dumps(value)
    if isinstance(value, list) and column.lists:
        return ["" if one is None else str(_spelled(one, column)) for one in value]
    return value


def _are_answers(value: Any) -> bool:
    """Whether a cell has lists of the answers to a question and of where each begins in the context."""
    found = value if isinstance(value, dict) else {}
    texts, starts = ([None] if not isinstance(cell, list) else cell for cell in map(found.get, ANSWER))
    return len(texts) == len(starts) and not {*map(type, texts)} - {str} and not {*map(type, starts)} - {int}


def _class_name(value: Any, names: Sequence[str]) -> Any:
    """The name of a class, or of each class of a list; None for a hidden one."""
    if isinstance(value, list):
        return [_class_name(one, names) for one in value]
    return None if value is None or value < 0 else names[value]


# --- files ----------------------------------------------------------------------------------------------------


def _cells(source: str, content: bytes, columns: Wanted, layout: Layout, broken: list[int]) -> tuple[Any, list[str]]:
    """Some columns of a .csv or a .tsv, and its header; every cell is a string, also an empty one."""
    import pyarrow
    from pyarrow import csv as arrow_csv

    quoted = kind_of(source).lower() == ".csv"
    delimiter = layout.delimiter if quoted else "\t"
    header = _header(source, content, delimiter, quoted)
    own_header = list(layout.header) if layout.header and layout.header[-1] not in header else None
    header = own_header or header
    if quoted:
        _check_quotes(source, content, delimiter)
    names = [*dict.fromkeys(chosen(header, columns, source).values())]
    content += b"" if content.endswith((b"\r", b"\n")) else b"\n"
    end = len(content.rstrip(b"\r\n"))  # without the blank lines after it, which a single column would have as texts
    most = layout.broken_share * (content.count(b"\n", 0, end) + 1)

    def leave_out(row: Any) -> str:
        broken.append(row.number)
        return "skip" if len(broken) <= most else "error"

    try:
        return arrow_csv.read_csv(
            pyarrow.BufferReader(pyarrow.py_buffer(content).slice(0, end + 1)),
            # One block and one thread, so that an error has the number of its row.
            arrow_csv.ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=own_header),
            arrow_csv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if quoted else False,
                newlines_in_values=quoted,
                ignore_empty_lines=len(header) > 1,  # of a single column, it is an empty text
                invalid_row_handler=leave_out if layout.broken_share else None,
            ),
            arrow_csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pyarrow.string()),
                strings_can_be_null=False,
            ),
            pyarrow.system_memory_pool(),  # pyarrow's own keeps what it once had
        ), header
    except pyarrow.ArrowInvalid as error:
        remedy = "a cell with the separator or a line end needs quotes" if quoted else "a .tsv is never quoted"
        told = " ".join(str(error).split())[:400]  # the row is shown as it is, with its line ends
        raise UserError(f"{source}: {told}; correct it ({remedy}; the encoding is UTF-8)") from None


def _check_quotes(source: str, content: bytes, delimiter: str) -> None:
    """Raise UserError for a quotation mark that never closes, or closes before its cell ends; Arrow would read on."""
    if b'"' not in content:
        return
    reader, line = csv.reader(_decoded(content), delimiter=delimiter, strict=True), 1
    try:
        for _ in reader:
            line = reader.line_num + 1
    except csv.Error:
        raise UserError(
            f"{source}, the row from line {line}: expected quoted cells that end where their quotation mark closes, "
            'got one that goes on or never closes; correct it (within quotes, a mark is written twice, "", not as \\")'
        ) from None


def _decoded(content: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", errors="replace", newline="")


def _header(source: str, content: bytes, delimiter: str, quoted: bool) -> list[str]:
    """The names of the columns; UserError if there are none, or the only name is several with another separator."""
    reader = csv.reader(_decoded(content), delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
    utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    header = [] if utf_16 else next(reader, [])
    other = next((mark for mark in SEPARATORS if len(header) == 1 and mark != delimiter and mark in header[0]), None)
    if not header or other:
        found = f"{header[0]!r:.80}" if header else "UTF-16" if utf_16 else "an empty file or line"
        named = f", or as a .csv for which run_glue.py and run_swag.py get --delimiter {SEPARATORS[other or ',']}"
        raise UserError(
            f"{source}: expected a header line in UTF-8 with columns separated by {SEPARATORS[delimiter]}s, got "
            f"{found}; save the table so{named if other else ''}"
        )
    return header


def _parquet(source: str, content: bytes, columns: Wanted) -> tuple[Any, list[str]]:
    file = parquet_file(source, io.BytesIO(content))
    header = file.schema_arrow.names
    return file.read([*dict.fromkeys(chosen(header, columns, source).values())]), header


def header_of(path: str | Path, delimiter: str) -> list[str]:
    """The names of the columns of a .csv or a .tsv, read from its beginning; of other files, nothing."""
    kind = kind_of(path).lower()
    with open_packed(path) as file:
        if kind not in (".csv", ".tsv"):
            return []
        return _header(str(path), file.read(1 << 16), "\t" if kind == ".tsv" else delimiter, kind == ".csv")


def own_files(args: Any) -> dict[str, str]:
    """The user's own files by split: those that --train_file, --validation_file and --test_file name."""
    test_file = getattr(args, "test_file", None)  # a flag of each script, but not of their common class
    named = {"train": args.train_file, "validation": args.validation_file, "test": test_file}
    return {split: path for split, path in named.items() if path}


def check_files(args: Any) -> None:
    """Open each of the user's own files; UserError if one cannot be opened."""
    for path in own_files(args).values():
        with open_packed(path):
            pass


def json_rows(source: str) -> list[dict[str, Any]]:
    """The objects of a .json or .jsonl: a list of them, an object with one such list, or one object a line.

    Raises:
        UserError: it is none of these; with the line.
    """
    text = read_text(source)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = []
        for number, line in enumerate(bar(text.split("\n"), "reading", "rows"), 1):
            found += [parsed(line, f"{source}:{number}")] if line.strip() else []
    if isinstance(found, dict) and kind_of(source).lower() == ".json":  # a .jsonl may have one line, and lists in it
        lists = [value for value in found.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
        found = lists[0] if len(lists) == 1 else [found]
    rows = found if isinstance(found, list) else [found]
    if wrong := [number for number, row in enumerate(rows, 1) if not isinstance(row, dict)]:
        raise UserError(f"{source}, row {wrong[0]}: expected an object with fields, got {rows[wrong[0] - 1]!r:.80}")
    return rows
