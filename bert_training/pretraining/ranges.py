"""Divide the files of a text into ranges of bytes, and read the lines of one range without reading the others.

Any division gives the same lines, because a rule that looks at the file alone says which range has which line:

- A line belongs to the range in which its first byte is, wherever the line ends. A range in a longer line is empty. The
  lines of a document that goes on in the next range are simply on both sides.
- In the output of WikiExtractor, a range goes from the first line with an opening tag in it up to that of the next one.
  In wikitext with blank lines, it goes from the first line behind a blank one.
- What can only be read from the beginning is a single range: packed files, Parquet, and rows of JSON that are wikitext.

The plan is made from the sizes of the files alone, so that all processes make the same one without asking each other.
"""

import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from bert_training.inputs.compressed_files import PACKED, decoded_lines, kind_of, open_packed
from bert_training.inputs.text_forms import Reading
from bert_training.inputs.texts import json_rows, parquet_rows, read_lines, reading_of, row_lines, text_kind

LEAST_BYTES = 1 << 20  # in a shard, and
MOST_SHARDS = 1024  # of a text of files that can be divided, unless it is smaller than as many times LEAST_BYTES
UNPACKED = 4  # times its size on the disk is about what comes out of a packed file
BLOCK = 1 << 20  # bytes read at once
_FORMS = 64  # so many files are remembered with their forms
Rule = list[str | bool | None]  # as JSON has it


class Span(NamedTuple):
    """The bytes from ``start`` up to ``stop`` of a file of ``size`` bytes, the file ``number`` of a text."""

    number: int
    path: str
    start: int
    stop: int
    size: int

    @property
    def is_last(self) -> bool:
        """Whether the file ends with it."""
        return self.stop == self.size


def is_packed(path: str | Path) -> bool:
    """Whether a file is read from its beginning only; Parquet is packed, too."""
    return Path(path).suffix in PACKED or kind_of(path) == ".parquet"


def plan_shards(files: Sequence[Path], shard_bytes: int | None = None) -> list[list[Span]]:
    """The spans of each shard. All of them together, in order, are the files.

    Args:
        files: the files of the text.
        shard_bytes: the bytes of a shard; a larger packed file is a shard of its own. Default: so many that there are
            ``MOST_SHARDS`` of them, but not fewer than ``LEAST_BYTES``.
    """
    sizes = [path.stat().st_size for path in files]
    most = shard_bytes or max(LEAST_BYTES, -(-sum(sizes) // MOST_SHARDS))
    shards: list[list[Span]] = []
    room = 0
    for number, (path, size) in enumerate(zip(files, sizes, strict=True)):
        packed = is_packed(path)
        start = 0
        while start < size:
            weight = size * UNPACKED if packed else size - start
            if room < (min(weight, most) if packed else 1):
                shards.append([])
                room = most
            stop = size if packed else min(size, start + room)
            shards[-1].append(Span(number, str(path), start, stop, size))
            room -= weight if packed else stop - start
            start = stop
    return shards


def is_stream(shard: Sequence[Span], shard_bytes: int = LEAST_BYTES) -> bool:
    """Whether a shard is a packed file that is too large for one process alone."""
    return len(shard) == 1 and is_packed(shard[0].path) and shard[0].size * UNPACKED > shard_bytes


def blocks_of(file: IO[bytes], start: int, stop: int) -> Iterator[bytes]:
    """The bytes from ``start`` up to ``stop``, or to the end of the file, in blocks."""
    file.seek(start)
    while start < stop and (block := file.read(min(BLOCK, stop - start))):
        yield block
        start += len(block)


class RangeReader:
    """The lines of a span, as ``read_lines`` yields those of whole files.

    Attributes:
        extents: after the last line, the bytes of the file on which the lines depend, as pairs (first byte, byte behind
            the last one). They may reach beyond the span, because its last line does.
        rule: after the last line, by which rule they were read (``rule_of``), which other bytes have decided.
    """

    def __init__(self, span: Span, text_column: str = "text"):
        self.span, self.column = span, text_column
        self.extents: list[tuple[int, int]] = []
        self.rule: Rule = []

    def __iter__(self) -> Iterator[tuple[int, str | None]]:
        """Yield (place, paragraph), and (0, None) at the end of each document; a place is a number below 2^64.

        Raises:
            ValueError: as ``read_lines`` does, with the number of the line in the whole file.
        """
        try:
            yield from self._lines()
        except ValueError:
            _raise_with_line(self.span, self.column)
            raise

    def _lines(self) -> Iterator[tuple[int, str | None]]:
        span, path = self.span, Path(self.span.path)
        kind, reading = read_by(path, self.column)
        self.rule = rule_of(path, self.column)
        rows = kind != ".txt" and reading.form is None
        alone = is_packed(path) or (kind != ".txt" and not rows)
        if alone and span.start:
            return
        with open_packed(path) as stream:
            texts: Iterator[tuple[int, str]]
            lines = None
            if kind == ".parquet":
                texts = ((number << 16, text) for number, text in parquet_rows(path, stream, self.column))
            else:
                lines = RangeOfLines(stream, 0 if alone else span.start, None if alone else span.stop, reading)
                texts = decoded_lines(path, lines, first=2 if span.start else 1)
                if kind == ".jsonl":
                    texts = json_rows(path, texts, self.column)
                texts = _with_places(lines, texts)
            first = span.number << 44
            for place, line in row_lines(reading.read(texts), rows, ends=alone or span.stop == span.size):
                yield first + place, line
            end = span.stop if lines is None or alone else max(span.stop, lines.next)
            self.extents = [(0 if alone else span.start, end)]


def _with_places(lines: "RangeOfLines", texts: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for _, text in texts:
        yield lines.place + 1, text  # from 1, as lines are numbered


def read_by(path: Path, column: str) -> tuple[str, Reading]:
    """The kind of a file and how it is read, by its beginning.

    Raises:
        ValueError: as ``read_lines`` does, if the mistake is at the beginning of the file.
    """
    now = os.stat(path)
    return _read_by(path, column, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)


@functools.lru_cache(_FORMS)
def _read_by(path: Path, column: str, *stamp: int) -> tuple[str, Reading]:
    return text_kind(path), reading_of(path, column)  # a changed file is looked at again


def rule_of(path: Path, column: str) -> Rule:
    """What distinguishes the rules by which files are read. The two kinds of wikitext differ in the last part."""
    kind, reading = read_by(path, column)
    return [kind, reading.form, reading.behind]


class RangeOfLines:
    """The lines that belong to a range, in order; what ``decoded_lines`` reads.

    Args:
        stream: the file.
        start: the first byte of the range.
        stop: the byte behind the range; None for the end of the stream.
        reading: how the text is read.

    Attributes:
        next: the first byte of the next line.
        place: the first byte of the line that was read last.
    """

    def __init__(self, stream: IO[bytes], start: int, stop: int | None, reading: Reading):
        self._stream, self._stop = stream, stop
        self._is_mark, self._behind = reading.is_mark, reading.behind
        self.next = self.place = 0
        self._ended = False
        if start:
            self.next = _first_line(stream, start)
            if self._is_mark is not None:
                self._ended = not self._find_mark()
                stream.seek(self.next)

    def readline(self) -> bytes:
        """The next line of the range; b"" at its end."""
        beyond = self._stop is not None and self.next >= self._stop
        if self._ended or (beyond and self._is_mark is None):
            return b""
        line = self._stream.readline()
        if beyond and line and self._marks(line):
            self._ended = True
            if not self._behind:
                return b""
        self.place = self.next
        self.next += len(line)
        return line

    def _find_mark(self) -> bool:
        """Move ``next`` to where the range begins; False if there is no mark in it, so that it is empty."""
        begins = True  # whether a part is the beginning of a line
        while self._stop is None or self.next < self._stop:
            part = self._stream.readline(BLOCK)
            if not part:
                return False
            if begins and self._marks(part):
                self.next += len(part) if self._behind else 0
                return True
            self.next += len(part)
            begins = part.endswith(b"\n")
        return False

    def _marks(self, line: bytes) -> bool:
        assert self._is_mark is not None
        return self._is_mark(line.decode(errors="replace").strip())


def _first_line(stream: IO[bytes], start: int) -> int:
    """Go to the first line that begins at the byte ``start`` or behind it, and return its first byte."""
    place = start - 1
    stream.seek(place)
    while part := stream.readline(BLOCK):
        place += len(part)
        if part.endswith(b"\n"):
            break
    return place


def _raise_with_line(span: Span, column: str) -> None:
    """Raise the error of the span with the number of its line, for which the lines before it are counted now."""
    path = Path(span.path)
    kind = text_kind(path)
    if is_packed(path) or not span.start:
        for _ in read_lines([path], column):
            pass
        return
    reading = read_by(path, column)[1]
    with open_packed(path) as stream:
        first = RangeOfLines(stream, span.start, span.stop, reading).next
        number = 1 + sum(block.count(b"\n") for block in blocks_of(stream, 0, first))
        stream.seek(first)
        texts = decoded_lines(path, stream, first=number)
        for _ in reading.read(json_rows(path, texts, column) if kind == ".jsonl" else texts):
            pass
