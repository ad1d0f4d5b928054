"""Open files that may be compressed: .xz, .gz, .bz2 and .zst, which fsspec unpacks.

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
        if (suffix := Path(path).suffix) not in PACKED:
            yield raw
            return
        from fsspec.compression import compr

        unpack = compr[PACKED[suffix]]
        try:
            with unpack(raw, mode="r") as stream:
                yield stream
        except Exception as error:  # each of the libraries that unpack has types of its own
            damaged = UserError(f"{path}: damaged {suffix} file ({error}); download or pack it again")
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
