"""Read documents from files; malformed and damaged files raise a ValueError that names file and line."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bert_training.files.arrow_files import arrow_rows
from bert_training.files.atomic import written
from bert_training.files.compressed_files import DAMAGE, PACKED, damage_error, decoded_lines, open_packed
from bert_training.files.json_files import parse_json
from bert_training.files.parquet_files import groups_within, text_rows
from bert_training.files.text_forms import Reading, reading_of_lines
from bert_training.files.text_kinds import EXPECTED, has_text, text_kind
from bert_training.files.text_paths import entries_of, files_of
from tokenization.errors import UserError

if TYPE_CHECKING:
    import pyarrow

_PARTS = re.compile(r"[^\n]+")


def read_documents(files: Iterable[str | Path], text_column: str = "text") -> Iterator[list[str]]:
    """Yield the documents of ``files`` in order, each as the list of its paragraphs (stripped, non-empty lines).

    A .txt file has one sentence or paragraph per line, and a blank line between documents. In .jsonl, .parquet and
    .arrow files the field ``text_column`` of each row is a document, and its lines are paragraphs. The output of
    WikiExtractor and wikitext are read as their articles (``form_of``). Each file but .arrow may be compressed
    (``compressed_files.py: PACKED``). All text is UTF-8. Instead of a file, an entry may be a folder, a pattern or a
    URL (``bert_training/files/text_paths.py``).

    Raises:
        ValueError: a file is missing, empty, of an unknown kind or damaged, or it has bytes that are not UTF-8 or a
            row without a string in the field of the text. The message names file and line.
    """
    document: list[str] = []
    for line in without_empty(read_lines(files, text_column)):
        if line is not None:
            document.append(line)
        else:
            yield document
            document = []


def read_lines(files: Iterable[str | Path], text_column: str = "text") -> Iterator[str | None]:
    """Like ``read_documents``, but as one flat stream: paragraphs, and None at the end of each document.

    Memory stays bounded even if a file is a single endless document.
    """
    for path in check_files(files):
        with open_packed(path) as stream:
            empty = True
            reading, texts = _read(path, stream, text_column)
            rows = text_kind(path) != ".txt" and reading.form is None
            for _, line in row_lines(reading.read(texts), rows):
                empty = empty and line is None
                yield line
        if empty:
            raise no_text(path)


def no_text(path: str | Path) -> UserError:
    """The error for a file that has no paragraph."""
    return UserError(f"{path}: holds no text; remove it from the list of files")


def form_of(path: Path, text_column: str = "text") -> str | None:
    """The form of a file if it is one of those in ``bert_training/files/text_forms.py``; None for all other files.

    Raises:
        ValueError: as ``read_documents`` does, if the mistake is at the beginning of the file.
    """
    return reading_of(path, text_column).form


def reading_of(path: Path, text_column: str = "text") -> Reading:
    """How a file is read, by its beginning. Raises ValueError as ``form_of`` does."""
    with open_packed(path) as stream:
        return _read(path, stream, text_column)[0]


def row_lines(
    texts: Iterable[tuple[int, str]], rows: bool, ends: bool = True
) -> Iterator[tuple[int, str] | tuple[int, None]]:
    """Paragraphs, each with a number, and (0, None) at the end of each document.

    Args:
        texts: (number, text), in which a blank text ends a document.
        rows: whether every text is a document of its own.
        ends: whether the last text ends a document, as the last line of a file does.
    """
    for number, text in texts:
        empty = True
        for part in _PARTS.finditer(text):  # one at a time, so that a long text is not held twice
            if line := part[0].strip():
                empty = False
                yield number + part.start(), line
        if rows or empty:
            yield 0, None
    if ends and not rows:
        yield 0, None


def check_files(files: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The paths of all files that ``files`` (paths, folders, patterns, URLs) stand for.

    Raises:
        ValueError: there are none, one is given twice, or one is missing, empty or of an unknown kind.
    """
    paths = files_of(files)
    if not paths:
        raise UserError("no input files; expected at least one .txt, .jsonl or .parquet file")
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: no such file")
        if not has_text(path):
            raise UserError(f"{path}: unknown kind; expected {EXPECTED}")
        if path.stat().st_size == 0:
            raise UserError(f"{path}: is empty; remove it from the list of files")
    return paths


def check_entries(
    given: Iterable[str | os.PathLike[str]], say: Callable[[str], object], text_column: str | None = None
) -> list[Path]:
    """``check_files``, which also says what is not read of a folder or a pattern.

    Args:
        say: is called with each sentence.
        text_column: with it, each file that is read in a form of its own is named, too.
    """
    entries = entries_of(given)
    for remark in (remark for entry in entries for remark in entry.remarks()):
        say(remark)
    files = check_files([path for entry in entries for path in entry.files])
    for path in files if text_column else ():
        if form := form_of(path, str(text_column)):
            say(f"{path}: read as {form}")
    return files


def _read(path: Path, stream: IO[bytes], column: str) -> tuple[Reading, Iterator[tuple[int, str]]]:
    """How a file is read, and its lines or rows."""
    kind = text_kind(path)
    if kind == ".txt":
        return reading_of_lines(path, decoded_lines(path, stream))
    if kind == ".jsonl":
        return reading_of_lines(path, json_rows(path, decoded_lines(path, stream), column), rows=True)
    read_rows = parquet_rows if kind == ".parquet" else saved_rows
    return reading_of_lines(path, read_rows(path, stream, column), rows=True)


def json_rows(path: Path, lines: Iterable[tuple[int, str]], column: str) -> Iterator[tuple[int, str]]:
    """The field ``column`` of each line, with its number; ValueError if a line is no object with a string there."""
    for number, line in lines:
        if line.strip():
            yield number, text_of_row(line.strip(), f"{path}:{number}", column)


def text_of_row(line: str, where: str, column: str = "text") -> str:
    """The field ``column`` of a line of JSON; ``where`` is the file and the line for error messages.

    Raises:
        ValueError: the line is not one JSON object with a string in this field, or half a surrogate pair is in it.
    """
    try:
        row = parse_json(line)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{where}: not JSON at column {error.colno} ({error.msg}); expected one object a line"
        ) from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected one JSON object a line, got a {type(row).__name__}")
    if column not in row:
        raise UserError(
            f"{where}: expected a field `{column}`; its fields are {', '.join(map(repr, row))[:200]}; name that of the "
            "text with --text_column"
        )
    return check_string(row[column], where, column)


def parquet_rows(
    path: Path, stream: IO[bytes], column: str, within: tuple[int, int] | None = None
) -> Iterator[tuple[int, str]]:
    """(row, text) of a Parquet file; ``within`` as in ``text_rows``.

    Raises:
        ValueError: it cannot be read, or a row has no string in the field ``column``.
    """
    import pyarrow

    with tempfile.TemporaryFile() as unpacked:
        try:
            if path.suffix in PACKED:
                # Parquet is read from the end of the file, and each seek in a compressed stream unpacks it again.
                with written(Path(tempfile.gettempdir())):
                    shutil.copyfileobj(stream, unpacked)
                stream = unpacked
            first = 1 + (groups_within(stream, column, within).rows_before if within else 0)
            rows = text_rows(path, stream, column, within)
            yield from _texts_of(path, rows, column, first)
        except DAMAGE as error:
            raise damage_error(path, error) from error
        except (pyarrow.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{path}: not a readable parquet file ({reason}); fetch the file again") from error


def saved_rows(path: Path, stream: IO[bytes], column: str) -> Iterator[tuple[int, str]]:
    """(row, text) of a file of ``save_to_disk``; the errors are those of ``parquet_rows``."""
    import pyarrow

    try:
        yield from _texts_of(path, arrow_rows(path, stream, column), column)
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not a readable stream of Arrow ({reason}); save the data set again") from error


def _texts_of(path: Path, rows: Iterable["pyarrow.Scalar"], column: str, first: int = 1) -> Iterator[tuple[int, str]]:
    """(number, text) of the rows of a table; ``first`` is the number of the first one."""
    for number, row in enumerate(rows, first):
        try:
            text = row.as_py()
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: row {number}: not UTF-8 ({error.reason}); repair the text") from error
        yield number, check_string(text, f"{path}: row {number}", column)


def check_string(text: Any, where: str, column: str) -> str:
    """``text``, the value of the field ``column``.

    Raises:
        ValueError: it is no string, or has a lone surrogate; the message begins with ``where``.
    """
    if not isinstance(text, str):
        raise UserError(
            f"{where}: expected a string in the field `{column}`, got {type(text).__name__}; repair the row"
        )
    check_encodable(text, where)
    return text


def without_empty(lines: Iterable[str | None]) -> Iterator[str | None]:
    """``lines``, paragraphs with None at the end of each document, without documents that have no paragraph."""
    empty = True
    for line in lines:
        if line is not None or not empty:
            yield line
        empty = line is None


def remedy_of_few(documents: int, sentences: int) -> str:
    """What to do about a text that has too few documents or too short ones for pairs.

    Args:
        documents: the number of documents.
        sentences: the number of sentences of the longest one.
    """
    if documents > 1 and sentences == 1:
        return (
            "remove the blank lines between the sentences of a document (each document here is a single sentence; a "
            "row of a table is a document), or put each sentence on a line of its own if these are paragraphs"
        )
    return "put blank lines between documents"


def check_encodable(text: str, where: str) -> None:
    """Refuse lone surrogates, for which the library raises a TypeError that does not name them.

    Raises:
        ValueError: ``text`` has one; the message begins with ``where``.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: lone surrogate at character {error.start}; repair the text") from error
