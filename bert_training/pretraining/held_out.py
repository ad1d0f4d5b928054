"""Which documents are held out: their content decides, so that copies of one are never on both sides.

A document is read line by line. Its side is known only at its end, and until then its lines wait: a few million
characters of them in memory, the others in a temporary file, so that memory does not grow with the document.
"""

import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from bert_training.files.disk_errors import explained

_IN_MEMORY = 1 << 22  # characters
_OVERHEAD = 50  # bytes that Python needs for a string besides its characters


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


def lines_of_side(lines: Iterable[str | None], share: float, held_out: bool) -> Iterator[str | None]:
    """Those of ``lines`` (paragraphs, and None at the end of each document) whose documents are on one side.

    Args:
        lines: the lines of all documents.
        share: the proportion of documents to hold out, from 0 to 1.
        held_out: whether to yield the held-out documents or the others.
    """
    checksum: int | None = None
    with _Waiting() as waiting:
        for line in lines:
            if line is not None:
                checksum = continued(checksum, line)
                waiting.append(line)
                continue
            if in_share(checksum, share) == held_out:
                yield from waiting.lines()
                yield None
            waiting.clear()
            checksum = None


class _Waiting:
    """The lines of a document, none of which has a line break in it."""

    def __init__(self) -> None:
        self.file: IO[bytes] | None = None
        self.clear()

    def __enter__(self) -> "_Waiting":
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()

    def clear(self) -> None:
        """Forget all lines; the file is used again, and keeps its size until then."""
        self.recent: list[str] = []
        self.size, self.filed = 0, False

    def append(self, line: str) -> None:
        """Add a line at the end."""
        self.recent.append(line)
        self.size += len(line) + _OVERHEAD
        if self.size > _IN_MEMORY:
            with explained(Path(tempfile.gettempdir(), "a long document"), "set TMPDIR to another folder"):
                if self.file is None:
                    self.file = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
                if not self.filed:
                    self.file.seek(0)
                    self.file.truncate()
                self.file.writelines(f"{line}\n".encode() for line in self.recent)
            self.recent, self.size, self.filed = [], 0, True

    def lines(self) -> Iterator[str]:
        """Yield the lines in their order."""
        if self.filed and self.file is not None:
            self.file.seek(0)
            for line in self.file:
                yield line[:-1].decode()
        yield from self.recent
