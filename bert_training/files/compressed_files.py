"""Open files that may be compressed: .xz, .gz, .bz2 and .zst, of one or several streams.

Every reader of the project gets its bytes or lines from here, so that a damaged file always gives the same error and
is never read as if it were shorter. One kind of damage cannot be noticed: a file that was cut exactly between two
streams is a complete file of fewer streams. How much a file may unpack to is not limited.
"""

import bz2
import contextlib
import gzip
import importlib
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol, cast

from tokenization.errors import UserError


class Damaged(Exception):
    """The content of a packed file cannot be unpacked."""


PACKED = (".xz", ".gz", ".bz2", ".zst")
DAMAGE = (Damaged, zlib.error, EOFError, gzip.BadGzipFile)
_BLOCK = 1 << 20
_PACKED_BLOCK = 1 << 16


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
        ValueError: the file cannot be opened, is a pipe or a device, or turns out to be damaged while it is read.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            # It is read more than once, for its hash and for its content.
            raise UserError(f"{path}: expected a file, got a pipe or a device; write its content to a file first")
        raw = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; check the path") from None
    with raw:
        try:
            yield unpack(path, raw)
        except DAMAGE as error:
            raise damage_error(path, error) from error


def unpack(path: str | os.PathLike[str], raw: IO[bytes]) -> IO[bytes]:
    """The unpacked content of ``raw``, the opened file ``path``. Reading raises one of ``DAMAGE`` if it is damaged.

    Raises:
        ValueError: the package that unpacks such files is not installed.
    """
    suffix = Path(path).suffix
    if suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw, mode="rb"))
    if suffix not in PACKED:
        return raw
    decoders: dict[str, Callable[[], Any]] = {".xz": partial(lzma.LZMADecompressor, lzma.FORMAT_XZ)}
    decoders |= {".bz2": bz2.BZ2Decompressor}
    new = decoders[suffix] if suffix in decoders else _zst(path)
    return io.BufferedReader(_Streams(raw, new, padding=b"\0" if suffix == ".xz" else b""), _BLOCK)


def damage_error(path: str | os.PathLike[str], error: Exception, line: int | None = None) -> UserError:
    """The ValueError for an ``error`` of DAMAGE; ``line`` is the first line that could not be unpacked, from 1."""
    where = f"{path}:{line}" if line else f"{path}"
    return UserError(f"{where}: damaged {Path(path).suffix} file ({error}); download or pack it again")


def numbered_lines(path: str | os.PathLike[str], keep_ends: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end); a byte-order mark is removed.

    Args:
        keep_ends: leave the line ends in the text.

    Raises:
        ValueError: the file is missing, damaged or not UTF-8, it has a NUL byte, or its lines end in a carriage return
            alone.
    """
    with open_packed(path) as stream:
        yield from decoded_lines(path, stream, keep_ends)


def decoded_lines(
    path: str | os.PathLike[str], stream: "ReadsLines", keep_ends: bool = False, first: int = 1
) -> Iterator[tuple[int, str]]:
    """Like ``numbered_lines``, for a stream that is already open.

    Args:
        path: the path, for error messages.
        first: the number of the first line that the stream will give.
    """
    number = first - 1
    try:
        for number, raw in enumerate(iter(stream.readline, b""), first):
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise _not_utf8(f"{path}:{number}", error, error.start + 1) from None
            if "\0" in text:
                raise UserError(f"{path}:{number}: holds a NUL byte: a binary file, or UTF-16; convert it to UTF-8")
            if number == 1 and "\n" not in text and "\r" in text.rstrip("\r"):
                raise UserError(
                    f"{path}:1: expected lines that end in \\n, got a file in which they end in \\r, as on old "
                    "Macintoshes; convert it"
                )
            yield number, text if keep_ends else text.removesuffix("\n").removesuffix("\r")
    except DAMAGE as error:
        raise damage_error(path, error, number + 1) from error


def read_text(path: str | os.PathLike[str]) -> str:
    """The whole content as text, without a byte-order mark.

    Raises:
        ValueError: the file is missing, damaged or not UTF-8.
    """
    with open_packed(path) as stream:
        return decoded(path, stream.read())


def decoded(path: str | os.PathLike[str], content: bytes) -> str:
    """The text of a file without a byte-order mark. Raises ValueError with the place if it is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        column = error.start - error.object.rfind(b"\n", 0, error.start)
        raise _not_utf8(f"{path}:{line}", error, column) from None


def _not_utf8(where: str, error: UnicodeDecodeError, column: int) -> UserError:
    return UserError(
        f"{where}: expected UTF-8 text, got byte 0x{error.object[error.start]:02x} at column {column}; "
        "convert the file to UTF-8 (a spreadsheet saves 'CSV UTF-8'; or iconv -f latin1 -t utf-8)"
    )


def _zst(path: str | os.PathLike[str]) -> Callable[[], Any]:
    try:
        zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    except ImportError:
        raise UserError(
            f"{path}: to read .zst files, Python before 3.14 needs the package backports.zstd: pip install "
            "backports.zstd, or unpack the file with the program zstd"
        ) from None
    return cast(Callable[[], Any], zstd.ZstdDecompressor)


class _Streams(io.RawIOBase):
    """The content of all streams of a file: of an .xz or a .bz2 file, or the frames of a .zst file.

    ``lzma.open`` and ``bz2.open`` are not used because they treat a damaged second stream as the end of the file.
    ``lzma.open`` also accepts the older .lzma format, which has no checksum, so that a flipped byte could turn a stream
    of one format into the other.

    Args:
        new: makes the object that unpacks one stream, with the interface of ``lzma.LZMADecompressor``.
        padding: the byte that may be repeated between two streams; b"" if there may be none.
    """

    def __init__(self, raw: IO[bytes], new: Callable[[], Any], padding: bytes):
        self.raw, self.new, self.padding = raw, new, padding
        self.decoder = new()

    def readable(self) -> bool:
        """True, as io.BufferedReader requires."""
        return True

    def readinto(self, buffer: Any) -> int:  # a memoryview; the declared type, Buffer, came with Python 3.12
        """Fill ``buffer`` from the unpacked content and return the number of bytes, 0 at the end; may raise DAMAGE."""
        while True:
            block = b""
            if self.decoder.eof:
                block = self._without_padding(self.decoder.unused_data)
                while not block and (more := self.raw.read(_PACKED_BLOCK)):
                    block = self._without_padding(more)
                if not block:
                    return 0
                self.decoder = self.new()
            elif self.decoder.needs_input:
                block = self.raw.read(_PACKED_BLOCK)
                if not block:
                    raise EOFError("it ends in the middle of a stream")
            try:
                data = self.decoder.decompress(block, len(buffer))
            except Exception as error:  # LZMAError, OSError of bz2, ZstdError
                raise Damaged(str(error)) from error
            if data:
                buffer[: len(data)] = data
                return len(data)

    def _without_padding(self, block: bytes) -> bytes:
        return block.lstrip(self.padding) if self.padding else block
