"""Which documents are held out: their content decides, so that copies of one are never on both sides."""

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple


def continued(checksum: int | None, line: str) -> int:
    """The CRC-32 of a document up to ``line``, from that of the lines before it; None before the first line."""
    return zlib.crc32(line.encode() if checksum is None else f"\n{line}".encode(), checksum or 0)


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


class Side(NamedTuple):
    """Which documents of a text are meant.

    Attributes:
        share: the share of documents to hold out, from 0 to 1; None: all documents are meant.
        held_out: whether the held-out documents are meant or the others.
    """

    share: float | None = None
    held_out: bool = False

    def of(self, lines: Iterable[str | None]) -> Iterator[str | None]:
        """Those of ``lines`` (paragraphs, and None at the end of each document) that are meant.

        A document is in memory until its side is known, unless all are meant.
        """
        if self.share is None:
            yield from lines
            return
        document: list[str] = []
        for line in lines:
            if line is not None:
                document.append(line)
                continue
            if is_held_out(document, self.share) == self.held_out:
                yield from document
                yield None
            document = []


ALL = Side()
