"""Read files: lines of text, perhaps packed (.xz, .gz, .bz2 and .zst, which fsspec unpacks), JSON, and records of runs.

A packed file that ends too early, or whose checksum is wrong, is an error that names it. What the libraries cannot
notice: that a whole stream is missing at the end of a file of several.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from tokenization.errors import UserError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile
import json
from collections.abc import Callable, Iterable
from typing import Any

from bert_training.files.hashing import hashes_record

PACKED = {".xz": "xz", ".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}  # suffix: its name for fsspec


class ReadsLines(Protocol):
    """What gives one line of bytes after the other, as a binary file does."""

    def readline(self) -> bytes:
        """The next line; b"" at the end."""


def kind_of(path: str | os.PathLike[str]) -> str:
    """The suffix without that of the compression: ".jsonl" for a.jsonl and for a.jsonl.xz."""
    path = Path(path)
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


@contextlib.contextmanager
def open_packed(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file as a binary stream of its content, unpacked if its name ends in one of ``PACKED``.

    Raises:
        OSError: the file cannot be opened.
        UserError: it turns out to be damaged while it is read.
    """
    with open(path, "rb") as raw:
        if Path(path).suffix in PACKED:
            with _unpacked(Path(path), raw) as stream:
                yield stream
        else:
            yield raw


@contextlib.contextmanager
def _unpacked(path: Path, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    from fsspec.compression import compr

    try:
        with compr[PACKED[path.suffix]](raw, mode="r") as stream:
            yield stream
    except Exception as error:  # each of the libraries that unpack has types of its own
        damaged = UserError(f"{path}: damaged {path.suffix} file ({error}); download or pack it again")
        raise (error if isinstance(error, ValueError) else damaged) from error  # the former of who reads


def parquet_file(path: str | os.PathLike[str], stream: IO[bytes]) -> "ParquetFile":
    """The table in a stream. UserError, which names the file, if there is none."""
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(stream)
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a Parquet file, or damaged ({error}); fetch the file again") from error


def numbered_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end); a byte-order mark is removed.

    Raises:
        UserError: the file is damaged or not UTF-8.
    """
    with open_packed(path) as stream:
        yield from decoded_lines(path, stream)


def decoded_lines(path: str | os.PathLike[str], stream: ReadsLines, first: int = 1) -> Iterator[tuple[int, str]]:
    """Like ``numbered_lines``, for a stream that is already open.

    Args:
        path: the path, for error messages.
        first: the number of the first line that the stream will give.
    """
    for number, raw in enumerate(iter(stream.readline, b""), first):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}:{number}: expected UTF-8 text, got byte 0x{error.object[error.start]:02x} at column "
                f"{error.start + 1}; convert the file to UTF-8 (a spreadsheet saves 'CSV UTF-8'; or iconv -f latin1 -t "
                "utf-8)"
            ) from None
        yield number, text.removesuffix("\n").removesuffix("\r")


def read_text(path: str | os.PathLike[str]) -> str:
    """The lines of a file as one text. Raises as ``numbered_lines`` does."""
    return "\n".join(line for _, line in numbered_lines(path))


def without_query(entry: str) -> str:
    """An entry without the query and the fragment of an address of HTTP, which may hold a signature or a token."""
    return re.split(r"[?#]", entry, maxsplit=1)[0] if re.search(r"(^|::)https?://", entry) else entry


# --- JSON ------------------------------------------------------------------------------------------------------------

RESULTS = "all_results.json"  # marks a finished run
FORMAT = 1  # of run.json and of the state in a checkpoint


def parsed(text: str | bytes, place: object, kind: type = object) -> Any:
    """The content of a JSON text. UserError, which begins with ``place``, if it is none, or another than of a kind."""
    try:
        content = json.loads(text)
        problem = "" if isinstance(content, kind) else f"expected a JSON object, got {str(content)[:60]!r}"
    except (ValueError, RecursionError) as error:
        content, problem = None, f"not valid JSON ({error})"
    if problem:
        raise UserError(f"{place}: {problem}; correct it, or copy or download it again")
    return content


def read_json(path: str | Path) -> Any:
    """The content of a JSON file. Raises OSError if there is none, and UserError if it is no JSON."""
    return parsed(Path(path).read_bytes(), path)


def read_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that must be an object. Raises as ``read_json`` does, or UserError if it is none."""
    return parsed(path.read_bytes(), path, dict)


def fields_of(path: Path) -> dict[str, Any]:
    """The content of a JSON file that must be an object; {} if there is no such file."""
    return read_object(path) if path.is_file() else {}


# --- records of runs -------------------------------------------------------------------------------------------------


def read_record(
    path: Path,
    remedy: str,
    needs: Iterable[str] = (),
    is_whole: Callable[[dict[str, Any]], bool] = lambda content: True,
) -> dict[str, Any]:
    """The JSON object in a file that a run wrote.

    Args:
        remedy: what the user can do if the file is damaged.
        needs: keys that the object must have.
        is_whole: whether its content agrees with its own checksum.

    Raises:
        UserError: the file holds something else.
        OSError: it cannot be read.
    """
    content: dict[str, Any] = {}
    try:
        content = read_object(path)
        problem = ", ".join(f"it lacks {name}" for name in needs if name not in content)
    except UserError as error:
        problem = str(error)
    if problem or not is_whole(content):
        raise UserError(f"{path}: damaged or edited ({problem or 'its checksum is another'}); {remedy}")
    return content


def check_format(path: Path, record: dict[str, Any]) -> None:
    """Raise UserError if a record was written in another format than this version's."""
    if (found := record.get("format")) != FORMAT:
        raise UserError(
            f"{path}: expected a record of format {FORMAT}, got {'one without a format' if found is None else found}; "
            "use the version of this project that wrote it, or start anew in another folder"
        )


def finished_hashes(path: Path) -> dict[str, str]:
    """The hashes in a ``hashes.json``, by the names of the files. Raises UserError if it is damaged or edited."""
    remedy = "copy the folder again or, if you trust it as it is, delete this file"
    needs = ("sha256", "checksum")
    return read_record(path, remedy, needs, lambda record: record == hashes_record(record["sha256"]))["sha256"]


def read_events(path: Path) -> list[dict]:
    """The events of a metrics.jsonl in order; a run may append to the file meanwhile.

    Raises:
        OSError: there is no such file.
        UserError: a line is no JSON.
    """
    return [parsed(line, f"{path}:{number}", dict) for number, line in numbered_lines(path)]
