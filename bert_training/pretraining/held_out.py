"""Which documents are held out: their content decides, so that copies of one are never on both sides.

A document is read line by line. Its side is known only at its end, and until then its lines wait: in memory, or in a
temporary file when they have become too many, so that memory does not grow with the document.
"""

import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from bert_training.files.atomic import written

_IN_MEMORY = 1 << 22  # bytes
_POLYNOMIAL = 0xEDB88320  # of CRC-32, with the lowest power in the highest bit
_X_TO_THE_8TH = 1 << 23


def continued(checksum: int | None, line: str) -> int:
    """The CRC-32 of a document up to ``line``, from that of the lines before it; None before the first line."""
    return zlib.crc32(line.encode() if checksum is None else f"\n{line}".encode(), checksum or 0)


class Piece:
    """The CRC-32 (``continued``) of some consecutive lines of a document, from which that of the whole can be made.

    Attributes:
        lines: the number of lines.
        checksum: their CRC-32.
        size: their bytes in UTF-8, and one byte between two lines.
    """

    __slots__ = ("checksum", "lines", "size")

    def __init__(self, lines: int = 0, checksum: int = 0, size: int = 0):
        self.lines, self.checksum, self.size = lines, checksum, size

    def add(self, line: str) -> None:
        """Add the next line."""
        data = line.encode() if not self.lines else f"\n{line}".encode()
        self.checksum = zlib.crc32(data, self.checksum)
        self.size += len(data)
        self.lines += 1

    def then(self, other: "Piece") -> "Piece":
        """This piece and the one behind it as one piece."""
        if not self.lines or not other.lines:
            return self if self.lines else other
        begun = zlib.crc32(b"\n", self.checksum)
        checksum = _behind_zeros(begun, other.size) ^ other.checksum
        return Piece(self.lines + other.lines, checksum, self.size + 1 + other.size)

    def facts(self) -> list[int]:
        """The arguments that make the piece again."""
        return [self.lines, self.checksum, self.size]


def _behind_zeros(checksum: int, count: int) -> int:
    """What the CRC-32 of some bytes adds to that of ``count`` bytes behind them: checksum times x^(8 count)."""
    power, factor = _X_TO_THE_8TH, checksum
    while count:
        if count & 1:
            factor = _product(factor, power)
        power, count = _product(power, power), count >> 1
    return factor


def _product(one: int, other: int) -> int:
    """The product of two polynomials over GF(2) modulo that of CRC-32; the highest bit is that of x^0."""
    found = 0
    for place in range(31, -1, -1):
        if one >> place & 1:
            found ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return found


def in_share(checksum: int | None, share: float) -> bool:
    """Whether a document with this CRC-32 (``continued``; None for an empty one) is held out.

    Args:
        checksum: that of its last line.
        share: the proportion of documents to hold out, from 0 to 1.
    """
    return (checksum or 0) < share * 2**32


def is_held_out(document: Iterable[str], share: float) -> bool:
    """Whether a document, as its paragraphs, is held out; ``share`` as in ``in_share``."""
    checksum = None
    for line in document:
        checksum = continued(checksum, line)
    return in_share(checksum, share)


def lines_of_side(lines: Iterable[str | None], share: float, held_out: bool) -> Iterator[str | None]:
    """Those of ``lines`` (paragraphs, and None at the end of each document) whose documents are on one side.

    Args:
        lines: the lines of all documents.
        share: the proportion of documents to hold out, from 0 to 1.
        held_out: whether to yield the held-out documents or the others.
    """
    checksum: int | None = None
    waiting = _empty_file()
    try:
        for line in lines:
            if line is not None:
                checksum = continued(checksum, line)
                _append(waiting, line)
                continue
            if in_share(checksum, share) == held_out:
                waiting.seek(0)
                for kept in waiting:
                    yield kept[:-1].decode()
                yield None
            waiting.close()
            waiting, checksum = _empty_file(), None
    finally:
        with suppress(OSError):  # the first error says what is wrong
            waiting.close()


def _empty_file() -> IO[bytes]:
    """A file in memory, which moves to the disk when it grows."""
    return tempfile.SpooledTemporaryFile(_IN_MEMORY)


def _append(file: IO[bytes], line: str) -> None:
    with written(Path(tempfile.gettempdir())):
        file.write(f"{line}\n".encode())
