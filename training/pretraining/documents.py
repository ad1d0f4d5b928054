"""Read documents from files; malformed and damaged files raise a ValueError that names file and line."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from tokenization.compressed_files import DAMAGE, PACKED, damage_error, decoded_lines, kind_of, open_packed
from tokenization.parquet_files import text_rows
from tokenization.text_files import text_of_row
from training.files.disk_errors import explained

_KINDS = (".txt", ".jsonl", ".parquet")


def read_documents(files: Iterable[str | Path]) -> Iterator[list[str]]:
    """Yield the documents of ``files`` in order, each as the list of its paragraphs (stripped, non-empty lines).

    A .txt file has one sentence or paragraph per line, and a blank line between documents. In .jsonl and .parquet files
    the field ``text`` of each row is a document, and its lines are paragraphs. Each may be compressed (.xz, .gz). All
    text is UTF-8.

    Raises:
        ValueError: a file is missing, empty, of an unknown kind or damaged, or it has bytes that are not UTF-8 or a
            row without a string ``text``. The message names file and line.
    """
    document: list[str] = []
    for line in read_lines(files):
        if line is not None:
            document.append(line)
        elif document:
            yield document
            document = []


def read_lines(files: Iterable[str | Path]) -> Iterator[str | None]:
    """Like ``read_documents``, but as one flat stream: paragraphs, and None at the end of each document.

    Memory stays bounded even if a file is a single endless document.
    """
    for path in check_files(files):
        with open_packed(path) as stream:
            readers = {".txt": _text_lines, ".jsonl": _json_lines, ".parquet": _parquet_lines}
            empty = True
            for line in readers[kind_of(path)](path, stream):
                empty = empty and line is None
                yield line
        if empty:
            raise ValueError(f"{path}: holds no text; remove it from the list of files")


def check_files(files: Iterable[str | Path]) -> list[Path]:
    """``files`` as paths.

    Raises:
        ValueError: there are none, or one is missing, empty or of an unknown kind.
    """
    paths = [Path(file) for file in files]
    if not paths:
        raise ValueError("no input files; expected at least one .txt, .jsonl or .parquet file")
    for path in paths:
        if path.is_dir():
            raise ValueError(f"{path}: expected a file, got a folder; name the files in it")
        if not path.is_file():
            raise ValueError(f"{path}: no such file")
        if kind_of(path) not in _KINDS:
            raise ValueError(f"{path}: unknown kind; expected .txt, .jsonl or .parquet, or one of them as .xz or .gz")
        if path.stat().st_size == 0:
            raise ValueError(f"{path}: is empty; remove it from the list of files")
    return paths


def _text_lines(path: Path, stream: IO[bytes]) -> Iterator[str | None]:
    for _, line in decoded_lines(path, stream):
        yield line.strip() or None
    yield None


def _json_lines(path: Path, stream: IO[bytes]) -> Iterator[str | None]:
    for number, line in decoded_lines(path, stream):
        if line.strip():
            where = f"{path}:{number}"
            yield from _paragraphs(text_of_row(line.strip(), where), where)


def _parquet_lines(path: Path, stream: IO[bytes]) -> Iterator[str | None]:
    import pyarrow

    with tempfile.TemporaryFile() as unpacked:
        try:
            if path.suffix in PACKED:
                # Parquet is read from the end of the file, and each seek in a compressed stream unpacks it again.
                with explained(Path(tempfile.gettempdir(), path.name), "set TMPDIR to another folder"):
                    shutil.copyfileobj(stream, unpacked)
                stream = unpacked
            for number, row in enumerate(text_rows(path, stream, path.stat().st_size), 1):
                try:
                    text = row.as_py()
                except UnicodeDecodeError as error:
                    raise ValueError(f"{path}: row {number}: not UTF-8 ({error.reason}); repair the text") from error
                yield from _paragraphs(text, f"{path}: row {number}")
        except DAMAGE as error:
            raise damage_error(path, error) from error
        except (pyarrow.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path}: not a readable parquet file ({reason}); fetch the file again") from error


def _paragraphs(text: Any, where: str) -> Iterator[str | None]:
    if not isinstance(text, str):
        raise ValueError(f"{where}: expected a string in the field `text`, got {type(text).__name__}; repair the row")
    check_encodable(text, where)
    for line in text.split("\n"):
        if line := line.strip():
            yield line
    yield None


def check_encodable(text: str, where: str) -> None:
    """Refuse lone surrogates, for which the library raises a TypeError that does not name them.

    Raises:
        ValueError: ``text`` has one; the message begins with ``where``.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: lone surrogate at character {error.start}; repair the text") from error
