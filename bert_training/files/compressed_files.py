"""Open files that may be compressed: .xz, .gz, .bz2 and .zst, of one or several streams.

Every reader of the project gets its bytes or lines from here, so that a damaged file always gives the same error and
is never read as if it were shorter. One kind of damage cannot be noticed: a file that was cut exactly between two
streams is a complete file of fewer streams.

A small file from a stranger must not be able to fill the memory or the disk. Therefore these limits hold, which
BERT_REPRO_LARGEST_MIB raises (``largest``; 16 MiB unless it is set):

- After the first 16 MiB, what has been unpacked of a file may be at most ``RATIO`` times as large as what has been read
  of it. Text becomes 3 to 20 times smaller when it is packed.
- A line may have at most 16 MiB, whether the file is packed or not.
- A file of data that is read as a whole, such as the questions of SQuAD, may have at most ``WHOLE_FILE`` times 16 MiB.
  Configs, tokenizers and records have the smaller limit of ``bert_training/files/small_files.py``.
- Unpacking an .xz file may need at most ``XZ_MEMORY`` bytes, and the window of a .zst file may have at most
  2 ** ``ZST_WINDOW``; the file itself says how many. (A .bz2 file never needs more than 4 MB.)
"""

import bz2
import contextlib
import gzip
import importlib
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, cast

from tokenization.errors import UserError


class Damaged(Exception):
    """The content of a .bz2 or a .zst file cannot be unpacked."""


PACKED = (".xz", ".gz", ".bz2", ".zst")
DAMAGE = (lzma.LZMAError, zlib.error, EOFError, gzip.BadGzipFile, Damaged)
_BLOCK = 1 << 20
_PACKED_BLOCK = 1 << 16  # small compared with the 16 MiB, even when it is unpacked to RATIO times its size
LIMIT = "BERT_REPRO_LARGEST_MIB"
RATIO = 100
WHOLE_FILE = 64
XZ_MEMORY = 1 << 29  # xz -9 needs 65 MiB
ZST_WINDOW = 27  # 128 MiB, the most that the program zstd unpacks unless it is told otherwise


class ReadsLines(Protocol):
    """What gives one line of bytes after the other, as a binary file does."""

    def readline(self, size: int, /) -> bytes:
        """The next line, or the next ``size`` bytes of it; b"" at the end."""


def kind_of(path: str | os.PathLike[str]) -> str:
    """The suffix without that of the compression: ".jsonl" for a.jsonl and for a.jsonl.xz."""
    path = Path(path)
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


def largest() -> int:
    """The largest number of bytes of a line, and those that anything packed may be unpacked to.

    Raises:
        ValueError: BERT_REPRO_LARGEST_MIB is not a positive whole number.
    """
    text = os.environ.get(LIMIT, "16")
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UserError(f"{LIMIT} is {text!r}; expected a positive whole number of MiB, such as 16")
    return int(text) << 20


def largest_file() -> int:
    """The largest number of bytes of a file that is read as a whole. Raises ValueError as ``largest`` does."""
    return WHOLE_FILE * largest()


@contextlib.contextmanager
def open_packed(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file as a binary stream of its content, unpacked if its name ends in one of ``PACKED``.

    Raises:
        ValueError: the file cannot be opened, is a pipe or a device, turns out to be damaged while it is read, or is
            over a limit (see above).
    """
    try:
        raw = open_regular(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; check the path") from None
    with raw:
        try:
            yield unpack(path, raw)
        except DAMAGE as error:
            raise damage_error(path, error) from error


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a file for reading, in binary, if it is one that has an end.

    Raises:
        ValueError: it is a pipe or a device, or a file of the system, such as some below /proc, which have no size.
        OSError: it cannot be opened.
    """
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # To open a pipe may take for ever; a device may not end.
        raise UserError(f"{path}: expected a file, got a pipe or a device; write its content to a file first")
    file = open(path, "rb")  # noqa: SIM115 - closed by the caller
    if os.fstat(file.fileno()).st_size == 0 and file.peek(1):
        file.close()
        raise UserError(f"{path}: expected a file on a disk, got one of the system, which has no size; copy it first")
    return file


def unpack(path: str | os.PathLike[str], raw: IO[bytes]) -> IO[bytes]:
    """The unpacked content of ``raw``, the opened file ``path``.

    Reading raises one of ``DAMAGE`` if the file is damaged, and ValueError if too much comes out of it.

    Raises:
        ValueError: the package that unpacks such files is not installed.
    """
    suffix = Path(path).suffix
    if suffix not in PACKED:
        return raw
    if suffix == ".gz":
        source = cast("io.RawIOBase", gzip.GzipFile(fileobj=raw, mode="rb"))
    else:
        source = _Streams(raw, _zst(path) if suffix == ".zst" else {".xz": _XZ, ".bz2": _BZ2}[suffix])
    return io.BufferedReader(_Limited(path, source, raw), _BLOCK)


def damage_error(path: str | os.PathLike[str], error: Exception, line: int | None = None) -> UserError:
    """The ValueError for an ``error`` of DAMAGE; ``line`` is the first line that could not be unpacked, from 1."""
    where = f"{path}:{line}" if line else f"{path}"
    return UserError(f"{where}: damaged {Path(path).suffix} file ({error}); download or pack it again")


def numbered_lines(path: str | os.PathLike[str], keep_ends: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end); a byte-order mark is removed.

    Args:
        keep_ends: leave the line ends in the text.

    Raises:
        ValueError: the file is missing, damaged, over a limit (see above) or not UTF-8, it has a NUL byte, or its lines
            end in a carriage return alone.
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
    number, most = first - 1, largest()
    try:
        for number, raw in enumerate(iter(lambda: stream.readline(most + 1), b""), first):
            if len(raw) > most:
                raise UserError(
                    f"{path}:{number}: expected lines of at most {most:,} bytes, got a longer one; break it, or set "
                    f"{LIMIT} to more than {most >> 20}"
                )
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
        ValueError: as ``numbered_lines`` does.
    """
    with open_packed(path) as stream:
        most, blocks, size = largest_file(), [], 0
        while block := stream.read(_BLOCK):  # to ask for more at once would allocate it
            blocks.append(block)
            size += len(block)
            if size > most:
                raise UserError(
                    f"{path}: expected at most {most:,} bytes of text, got more; if they are what you want, set "
                    f"{LIMIT} to more than {most // WHOLE_FILE >> 20}"
                )
    return decoded(path, b"".join(blocks))


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


class _Limited(io.RawIOBase):
    """The unpacked content of a file, which must not be far larger than what was read of the file."""

    def __init__(self, path: str | os.PathLike[str], source: io.RawIOBase, raw: IO[bytes]):
        self.path, self.source, self.raw = path, source, raw
        self.most, self.count = largest(), 0

    def readable(self) -> bool:
        """True, as io.BufferedReader requires."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` and return the number of bytes, 0 at the end; ValueError beyond the limit."""
        count = self.source.readinto(buffer) or 0
        self.count += count
        if self.count > self.most and self.count > RATIO * self.raw.tell():
            raise UserError(
                f"{self.path}: {self.count:,} bytes came out of the first {self.raw.tell():,}; text is never packed so "
                f"densely, so nothing more is unpacked. If you trust the file, unpack it yourself, or set {LIMIT} to "
                f"more than {self.most >> 20}"
            )
        return count


class _Format(NamedTuple):
    """How a stream is unpacked.

    Attributes:
        new: makes the object that unpacks one stream, with the interface of ``lzma.LZMADecompressor``.
        error: what it raises.
        padding: the byte that may be repeated between two streams; b"" if there may be none.
    """

    new: Callable[[], Any]
    error: type[Exception]
    padding: bytes = b""


_XZ = _Format(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY), lzma.LZMAError, b"\0")
_BZ2 = _Format(bz2.BZ2Decompressor, OSError)


def _zst(path: str | os.PathLike[str]) -> _Format:
    try:
        zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    except ImportError:
        raise UserError(
            f"{path}: to read .zst files, Python before 3.14 needs the package backports.zstd: pip install "
            "backports.zstd, or unpack the file with the program zstd"
        ) from None
    options = {zstd.DecompressionParameter.window_log_max: ZST_WINDOW}
    return _Format(lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError)


class _Streams(io.RawIOBase):
    """The content of all streams of a file: of an .xz or a .bz2 file, or the frames of a .zst file.

    ``lzma.open`` and ``bz2.open`` are not used because they treat a damaged second stream as the end of the file.
    ``lzma.open`` also accepts the older .lzma format, which has no checksum, so that a flipped byte could turn a stream
    of one format into the other.
    """

    def __init__(self, raw: IO[bytes], form: _Format):
        self.raw, self.form = raw, form
        self.decoder = form.new()

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
                self.decoder = self.form.new()
            elif self.decoder.needs_input:
                block = self.raw.read(_PACKED_BLOCK)
                if not block:
                    raise EOFError("it ends in the middle of a stream")
            try:
                data = self.decoder.decompress(block, len(buffer))
            except self.form.error as error:
                if isinstance(error, DAMAGE):
                    raise
                raise Damaged(str(error)) from error
            if data:
                buffer[: len(data)] = data
                return len(data)

    def _without_padding(self, block: bytes) -> bytes:
        return block.lstrip(self.form.padding) if self.form.padding else block
