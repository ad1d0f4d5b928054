"""Tables that are no lines of fields: a .json file with a list of objects, and .parquet; both also packed.

[{"text": "a", "label": "x"}, ...]              a list of objects
{"version": "1", "data": [{"text": ...}, ...]}  an object with one list of objects, whatever its name is
{"text": "a", "label": "x"}                     an object a line, as in a .jsonl
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_training.files.compressed_files import PACKED, open_packed, read_text
from bert_training.files.json_files import not_json, value_at
from tokenization.errors import UserError

FORM = 'a list of objects such as [{"text": "...", "label": "..."}], or an object with one such list'
SPACE = re.compile(r"[ \t\r\n]*")


def json_objects(path: Path) -> Iterator[tuple[int, Any]] | None:
    """(line, value) of each item of the list in a .json file; None if the file has an object a line.

    Raises:
        ValueError: with the line: it is no JSON, or has no list of objects.
    """
    text = read_text(path)
    begin = _skip(text, 0)
    if text[begin : begin + 1] == "[":
        return _numbered(path, text, begin, whole=True)
    if text[begin : begin + 1] != "{":
        raise UserError(f"{path}:1: expected {FORM}, got {text[:60]!r}; save the table in this form")
    _, end = value_at(path, text, begin)
    if text[_skip(text, end) : _skip(text, end) + 1] == "{":
        return None
    lists, fields = {}, {}
    for name, start, value in _members(path, text, begin):
        fields[name] = value
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lists[name] = start
    if len(lists) == 1:
        return _numbered(path, text, next(iter(lists.values())))
    of_lines = "\n" not in text[begin:end] and _skip(text, end) == len(text)
    nested = (list, dict) if not of_lines or lists else dict  # a row may have lists, of words and tags for example
    if not any(isinstance(value, nested) for value in fields.values()):
        return None  # one row
    found = f"the lists {', '.join(lists)}" if lists else f"the fields {', '.join(map(repr, fields))}"[:200]
    raise UserError(
        f"{path}:1: expected {FORM}, got an object with {found}; save the table in this form (pandas: "
        'to_json(path, orient="records"))'
    )


def _numbered(path: Path, text: str, begin: int, whole: bool = False) -> Iterator[tuple[int, Any]]:
    """(line, value) of each item of the list that begins there; ``whole``: nothing may follow the list."""
    line, counted, place = 1, 0, _skip(text, begin + 1)
    while text[place : place + 1] != "]":
        value, end = value_at(path, text, place)
        line, counted = line + text.count("\n", counted, place), place
        yield line, value
        place = _skip(text, end)
        if text[place : place + 1] == ",":
            place = _skip(text, place + 1)
        elif text[place : place + 1] != "]":
            raise not_json(path, text, place, "expected a comma or the end of the list")
    if whole and _skip(text, place + 1) < len(text):
        raise not_json(path, text, _skip(text, place + 1), "something follows the list")


def _members(path: Path, text: str, begin: int) -> Iterator[tuple[str, int, Any]]:
    """(name, place of the value, value) of each field of the object that begins there, which is known to be right."""
    place = _skip(text, begin + 1)
    while text[place] != "}":
        name, end = value_at(path, text, place)
        start = _skip(text, _skip(text, end) + 1)
        value, end = value_at(path, text, start)
        yield name, start, value
        place = _skip(text, end)
        place = _skip(text, place + 1) if text[place] == "," else place


def _skip(text: str, place: int) -> int:
    """The place of the next character that is no white space."""
    found = SPACE.match(text, place)
    return found.end() if found else place


# --- Parquet -------------------------------------------------------------------------------------------------


class ParquetTable:
    """The columns of a .parquet file.

    Raises:
        ValueError: it is no such file, or damaged.
    """

    def __init__(self, path: Path):
        self.path = path
        self.names = self._with_file(lambda table: table.schema_arrow.names)

    def values(self, column: str) -> list:
        """The values of a column as Python's objects."""
        return self._with_file(lambda table: table.read([column]).column(0).to_pylist())

    def _with_file(self, read: Any) -> list:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise UserError(f"{self.path}: parquet files need pyarrow: pip install pyarrow") from None
        try:
            with open_packed(self.path) as stream:
                # Parquet is read from the end of the file, and each seek in a packed stream unpacks it again.
                file = io.BytesIO(stream.read()) if self.path.suffix in PACKED else stream
                return list(read(pyarrow.parquet.ParquetFile(file)))
        except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{self.path}: not a parquet file, or damaged: {reason}; write it again") from None
