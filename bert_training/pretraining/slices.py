"""Divide the files of a text into slices, of which each becomes a shard of the corpus, and read the lines of one.

The slices follow from the files alone, so that every process makes the same ones without asking another. A slice is a
list of spans, ranges of bytes, and has the documents that begin in them: a document is never divided. It is read up to
its end, wherever that is, and a span in which none begins is empty.

- Plain text and rows of JSON are divided behind a blank line and between rows, the output of WikiExtractor before an
  opening tag.
- All else is read from its beginning and never divided: packed files, Parquet, wikitext (``Reading.begins``).
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from bert_training.inputs.compressed_files import PACKED, decoded_lines, kind_of
from bert_training.inputs.text_forms import Reading
from bert_training.inputs.texts import json_rows, read_lines, reading_of, row_lines, text_kind, without_empty
from tokenization.errors import UserError

SLICE_BYTES = 1 << 29  # about 120 million tokens of English
UNPACKED = 4  # times its size on the disk is about what comes out of a packed file
_BLOCK = 1 << 20


class Span(NamedTuple):
    """The bytes from ``start`` up to ``stop`` of a file of ``size`` bytes, the file ``number`` of a text."""

    number: int
    path: str
    start: int
    stop: int
    size: int

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole file."""
        return (self.start, self.stop) == (0, self.size)

    def sha256(self) -> str:
        """SHA-256 of its bytes."""
        found = hashlib.sha256()
        with open(self.path, "rb") as file:
            file.seek(self.start)
            for place in range(self.start, self.stop, _BLOCK):
                found.update(file.read(min(_BLOCK, self.stop - place)))
        return found.hexdigest()

    def described(self) -> dict[str, str | int]:
        """Place and content, as the shard records them; a file may be renamed."""
        return {"file": self.number, "start": self.start, "stop": self.stop, "sha256": self.sha256()}


def plan_slices(files: Sequence[Path], column: str = "text", size: int = SLICE_BYTES) -> list[list[Span]]:
    """The spans of each slice. All of them together, in order, are the files.

    Args:
        files: the files of the text.
        column: the field of the text.
        size: the bytes of a slice; a larger file that cannot be divided is a slice of its own.
    """
    slices: list[list[Span]] = []
    room = 0
    for number, path in enumerate(files):
        whole = path.stat().st_size
        packed = is_packed(path)
        weight = whole * UNPACKED if packed else whole
        divided = weight > room and is_divisible(path, column)
        start = 0
        while start < whole:
            if room <= 0 or (not divided and room < min(weight, size)):
                slices.append([])
                room = size
            stop = min(whole, start + room) if divided else whole
            slices[-1].append(Span(number, str(path), start, stop, whole))
            room -= stop - start if divided else weight
            start = stop
    return slices


def is_packed(path: Path) -> bool:
    """Whether more text comes out of a file than its bytes say; Parquet is packed, too."""
    return path.suffix in PACKED or kind_of(path) == ".parquet"


def is_divisible(path: Path, column: str = "text") -> bool:
    """Whether the documents of a file can be found from any byte on."""
    return not is_packed(path) and reading_of(path, column).begins is not None


def pieces_of(span: Span, size: int, column: str = "text") -> list[Span]:
    """The span in parts of ``size`` bytes, each with the documents that begin in it; one that cannot be divided."""
    if not is_divisible(Path(span.path), column):
        return [span]
    return [
        span._replace(start=start, stop=min(start + size, span.stop)) for start in range(span.start, span.stop, size)
    ]


def lines_of_span(span: Span, column: str = "text") -> Iterator[str | None]:
    """The paragraphs of the documents that begin in a span, and None at the end of each document; none is empty.

    Raises:
        ValueError: as ``read_lines`` does, with the number of the line in the whole file.
    """
    path = Path(span.path)
    if span.is_whole:
        yield from without_empty(read_lines([path], column))
        return
    reading, rows = reading_of(path, column), text_kind(path) == ".jsonl"
    try:
        with open(path, "rb") as stream:
            lines = _Lines(_lines_between(stream, span.start, span.stop, reading))
            texts = decoded_lines(path, lines, first=2 if span.start else 1)
            if rows:
                texts = json_rows(path, texts, column)
            yield from without_empty(line for _, line in row_lines(reading.read(texts), rows))
    except UserError:
        for _ in read_lines([path], column):  # which counts the lines from the beginning of the file
            pass
        raise


class _Lines:
    """What ``decoded_lines`` reads."""

    def __init__(self, lines: Iterator[bytes]):
        self._lines = lines

    def readline(self) -> bytes:
        return next(self._lines, b"")


def _lines_between(stream: IO[bytes], start: int, stop: int, reading: Reading) -> Iterator[bytes]:
    """The lines of the documents that begin in the bytes from ``start`` up to ``stop``."""

    def begins(line: bytes) -> bool:
        assert reading.begins is not None
        return reading.begins(line.decode(errors="replace").strip())

    place, inside = start, not start
    if start:
        stream.seek(start - 1)
        place += len(stream.readline()) - 1  # the first line that begins at ``start`` or behind it
    while line := stream.readline():
        if (not inside or place >= stop) and begins(line):
            if place >= stop:
                return
            inside = True
            if not reading.behind:
                yield line
        elif inside:
            yield line
        elif place >= stop:
            return
        place += len(line)
