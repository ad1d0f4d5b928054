"""Open files that may be compressed: .xz and .gz, of one or several streams.

Every reader of the project gets its bytes or lines from here, so that a damaged file always gives the same error and
is never read as if it were shorter. One kind of damage cannot be noticed: a file that was cut exactly between two
streams is a complete file of fewer streams.
"""

import contextlib
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

PACKED = (".xz", ".gz")
DAMAGE = (lzma.LZMAError, zlib.error, EOFError, gzip.BadGzipFile)
_BLOCK = 1 << 20


def kind_of(path: str | os.PathLike[str]) -> str:
    """The suffix without that of the compression: ".jsonl" for a.jsonl and for a.jsonl.xz."""
    path = Path(path)
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


@contextlib.contextmanager
def open_packed(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file as a binary stream of its content, unpacked if its name ends in .xz or .gz.

    Raises:
        ValueError: the file cannot be opened, or it turns out to be damaged while it is read.
    """
    try:
        raw = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}; check the path") from None
    with raw:
        try:
            yield unpacked(path, raw)
        except DAMAGE as error:
            raise damaged(path, error) from error


def unpacked(path: str | os.PathLike[str], raw: IO[bytes]) -> IO[bytes]:
    """The unpacked content of ``raw``, the opened file ``path``. If it is damaged, reading raises one of ``DAMAGE``."""
    suffix = Path(path).suffix
    if suffix == ".xz":
        return io.BufferedReader(_Xz(raw), _BLOCK)
    if suffix == ".gz":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw, mode="rb"))  # it is a stream, but its type does not say so
    return raw


def damaged(path: str | os.PathLike[str], error: Exception, line: int | None = None) -> ValueError:
    """The ValueError for an ``error`` of DAMAGE; ``line`` is the first line that could not be unpacked, from 1."""
    place = f"{path}:{line}" if line else f"{path}"
    return ValueError(f"{place}: damaged {Path(path).suffix} file ({error}); download or pack it again")


def numbered_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end); a byte-order mark is removed.

    Raises:
        ValueError: the file is missing, damaged or not UTF-8.
    """
    with open_packed(path) as stream:
        yield from decoded_lines(path, stream)


def decoded_lines(path: str | os.PathLike[str], stream: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Like ``numbered_lines``, for a stream that is already open; ``path`` is used in error messages."""
    number = 0
    try:
        for number, raw in enumerate(stream, 1):
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise _not_utf8(f"{path}:{number}", error, error.start + 1) from None
            yield number, text.removesuffix("\n").removesuffix("\r")
    except DAMAGE as error:
        raise damaged(path, error, number + 1) from error


def read_text(path: str | os.PathLike[str]) -> str:
    """The whole content as text, without a byte-order mark.

    Raises:
        ValueError: as ``numbered_lines`` does.
    """
    with open_packed(path) as stream:
        content = stream.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        column = error.start - error.object.rfind(b"\n", 0, error.start)
        raise _not_utf8(f"{path}:{line}", error, column) from None


def _not_utf8(place: str, error: UnicodeDecodeError, column: int) -> ValueError:
    return ValueError(
        f"{place}: expected UTF-8 text, got byte 0x{error.object[error.start]:02x} at column {column}; "
        "convert the file to UTF-8"
    )


class _Xz(io.RawIOBase):
    """The content of all streams of an .xz file.

    ``lzma.open`` is not used because it treats a damaged second stream as the end of the file. It also accepts the
    older .lzma format, which has no checksum, so that a flipped byte could turn a stream of one format into the other.
    """

    def __init__(self, raw: IO[bytes]):
        self.raw = raw
        self.decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)

    def readable(self) -> bool:
        """True, as io.BufferedReader requires."""
        return True

    def readinto(self, buffer: Any) -> int:  # a memoryview; the declared type, Buffer, came with Python 3.12
        """Fill ``buffer`` from the unpacked content and return the number of bytes, 0 at the end; may raise DAMAGE."""
        while True:
            block = b""
            if self.decoder.eof:
                block = self.decoder.unused_data.lstrip(b"\0")  # there may be padding after a stream
                while not block and (more := self.raw.read(_BLOCK)):
                    block = more.lstrip(b"\0")
                if not block:
                    return 0
                self.decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            elif self.decoder.needs_input:
                block = self.raw.read(_BLOCK)
                if not block:
                    raise EOFError("it ends in the middle of a stream")
            data = self.decoder.decompress(block, len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
