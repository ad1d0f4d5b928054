"""Documents and lines that occur again and are left out of the training text (``--deduplicate``).

- **documents:** a document that equals an earlier one in all its lines is left out.
- **lines:** a line that occurs in at least ``BOILERPLATE`` documents, such as a menu or a licence, is left out
  everywhere but at its first place. A document of which no line is left is left out.
- **both:** first documents; then the lines of those that are left are counted.

Lines are compared as they are read: without white space around them, all else exactly. Of equal ones the first in the
order of the files is kept.

This takes a pass of its own through the text, which writes a hash of each line. From the hashes follows for each
document and each line, by its number in the text, whether it is kept: one bit. These bits are a small sealed folder;
whoever reads the text afterwards needs only them and the number at which he begins. Therefore the corpus is the same
for any number of processes, and a text can be divided wherever a document ends: ``write_hashes`` of its parts, one
after the other, writes the same bytes as of the whole.

    repeated-lines-1f0c9a2b/documents.bits    a bit for each document: 1 is left out (the lowest bit of a byte first)
    repeated-lines-1f0c9a2b/lines.bits        a bit for each line
    repeated-lines-1f0c9a2b/facts.json        how many there are, where each file begins, and how many are left out
    repeated-lines-1f0c9a2b/manifest.json     the SHA-256 of these files

Two different lines have the same hash of 128 bits with a probability of n * n / 2 ** 129 for n lines: 1.5e-19 for ten
thousand millions. Only then would a line be left out that did not occur before. Memory stays bounded
(``repeated_hashes.py``); on the disk, a line takes 16 bytes while the text is read and up to 32 more while hashes are
compared.
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from bert_training.files.atomic import damage, make_folder, remove_folder, sealed_folder, write_json
from bert_training.files.repeated_hashes import HASH, Block, repeated_places
from bert_training.inputs.json_files import read_object
from bert_training.inputs.texts import without_empty
from tokenization.errors import UserError

MODES = ("documents", "lines", "both")
RULES = 1  # increase it when other documents or lines are left out of the same text
BOILERPLATE = 10
_COUNT = np.dtype("<i8")
_BUFFER = 1 << 16  # lines
_BLOCK = 1 << 18  # hashes


def write_hashes(lines: Iterable[str | None], hashes: IO[bytes], lengths: IO[bytes]) -> tuple[int, int]:
    """Append the hash of each line to ``hashes`` and the number of lines of each document to ``lengths``.

    Args:
        lines: those of whole documents, none of them empty, with None at the end of each.

    Returns:
        The numbers of documents and of lines.
    """
    buffer: list[bytes] = []
    counts: list[int] = []
    documents, total, length = 0, 0, 0
    for line in lines:
        if line is None:
            counts.append(length)
            length = 0
        else:
            buffer.append(hashlib.blake2b(line.encode(), digest_size=16).digest())
            length += 1
        if len(buffer) + len(counts) >= _BUFFER:
            hashes.write(b"".join(buffer))
            lengths.write(np.array(counts, _COUNT).tobytes())
            documents, total = documents + len(counts), total + len(buffer)
            buffer, counts = [], []
    assert length == 0, "the last document has no end"
    hashes.write(b"".join(buffer))
    lengths.write(np.array(counts, _COUNT).tobytes())
    return documents + len(counts), total + len(buffer)


def find_repeated(parts: Iterable[tuple[str, Iterator[str | None]]], mode: str, folder: Path) -> "Repeated":
    """Read a text once and write into ``folder`` what of it occurs again; or open that folder if it is undamaged.

    Args:
        parts: (name, lines without empty documents) of each file, in order.
        mode: one of ``MODES``.

    Raises:
        ValueError: the text cannot be read.
        OSError: the disk is full.
    """
    if damage(folder, ("documents.bits", "lines.bits", "facts.json")) is None:
        return Repeated(folder)
    make_folder(folder.parent)
    remove_folder(folder)
    with sealed_folder(folder) as draft:
        listed, starts = [], (0, 0)
        with open(draft / "hashes.bin", "wb") as hashes, open(draft / "lengths.bin", "wb") as lengths:
            for name, lines in parts:
                found = write_hashes(lines, hashes, lengths)
                listed.append({"name": name, "document": starts[0], "line": starts[1]})
                starts = (starts[0] + found[0], starts[1] + found[1])
        _mark(draft, mode, starts)
        facts = {"mode": mode, "rules": RULES, "documents": starts[0], "lines": starts[1]}
        write_json(draft / "facts.json", facts | _counts(draft, facts) | {"parts": listed})
        for name in ("hashes.bin", "lengths.bin"):
            (draft / name).unlink()
    return Repeated(folder)


class Repeated:
    """What of a text occurs again and is left out, by the numbers of its documents and lines.

    Attributes:
        facts: the numbers of documents and lines, and how many of each are left out.
    """

    def __init__(self, folder: Path):
        self.facts: dict[str, Any] = read_object(folder / "facts.json")
        self._parts = self.facts.pop("parts")
        self._documents, self._lines = _bits(folder / "documents.bits"), _bits(folder / "lines.bits")

    def has_document(self, number: int) -> bool:
        """Whether document ``number`` of the text, from 0, is left out."""
        return bool(self._documents[number >> 3] >> (number & 7) & 1)

    def has_line(self, number: int) -> bool:
        """Whether line ``number`` of the text, from 0, is left out; documents that are left out have none."""
        return bool(self._lines[number >> 3] >> (number & 7) & 1)

    def start_of(self, part: int) -> tuple[int, int]:
        """The numbers of the first document and the first line of a part (a file); behind the last, their totals."""
        if part == len(self._parts):
            return self.facts["documents"], self.facts["lines"]
        return self._parts[part]["document"], self._parts[part]["line"]

    def without(self, lines: Iterable[str | None], start: tuple[int, int] = (0, 0)) -> Iterator[str | None]:
        """Yield what is kept of ``lines``, which have no empty documents.

        Args:
            start: the numbers of the first document and the first line of ``lines`` in the whole text.

        Raises:
            ValueError: there is more than when the text was read before.
        """
        return without_empty(self._kept(lines, *start))

    def _kept(self, lines: Iterable[str | None], document: int, number: int) -> Iterator[str | None]:
        documents, total = self.facts["documents"], self.facts["lines"]
        left_out = document < documents and self.has_document(document)
        for line in lines:
            if document >= documents or (line is not None and number >= total):
                raise UserError(
                    "the text has become longer since its repeated parts were found; start again with text that does "
                    "not change"
                )
            if line is None:
                if not left_out:
                    yield None
                document += 1
                left_out = document < documents and self.has_document(document)
            else:
                if not left_out and not self.has_line(number):
                    yield line
                number += 1

    def counts(self, first: int = 0, last: int | None = None) -> dict[str, Any]:
        """What is recorded of the parts from ``first`` to before ``last`` (None: all)."""
        (document, line), end = self.start_of(first), self.start_of(len(self._parts) if last is None else last)
        return {
            "mode": self.facts["mode"],
            "rules": self.facts["rules"],
            "documents": end[0] - document,
            "lines": end[1] - line,
            "documents_left_out": _ones(self._documents, document, end[0]),
            "lines_left_out": _ones(self._lines, line, end[1]),
        }


def left_out_text(counts: dict[str, Any]) -> str:
    """What ``Repeated.counts`` says, as a sentence."""
    parts = []
    if counts["mode"] != "lines":
        parts.append(_share(counts, "documents", "equal earlier ones"))
    if counts["mode"] != "documents":
        parts.append(_share(counts, "lines", f"occur in {BOILERPLATE} documents or more and are not their first"))
    return f"left out by --deduplicate {counts['mode']}: {'; '.join(parts)}"


def _share(counts: dict[str, Any], name: str, why: str) -> str:
    some, total = counts[f"{name}_left_out"], counts[name]
    return f"{some:,} of {total:,} {name} ({some / max(1, total):.2%}), which {why}"


def _mark(draft: Path, mode: str, counts: tuple[int, int]) -> None:
    """Write documents.bits and lines.bits from hashes.bin and lengths.bin; ``counts`` of documents and lines."""
    documents, lines = (np.memmap(draft / f"{name}.bits", np.uint8, "w+", shape=max(1, -(-count // 8)))
                        for name, count in zip(("documents", "lines"), counts))  # fmt: skip
    buckets = draft / "buckets"
    (draft / "buckets").mkdir()
    if mode != "lines":
        for places in repeated_places(_documents(draft), counts[0], 2, buckets):
            _set(documents, places)
    if mode != "documents":
        for places in repeated_places(_lines(draft, documents), counts[1], BOILERPLATE, buckets):
            _set(lines, places)
    shutil.rmtree(buckets)
    for bits in (documents, lines):
        bits.flush()


def _documents(draft: Path) -> Iterator[Block]:
    """The hash of each document, which is that of the hashes of its lines."""
    first = 0
    with open(draft / "hashes.bin", "rb") as hashes:
        for lengths in _blocks(draft / "lengths.bin", _COUNT):
            found = bytearray()
            for length in lengths.tolist():
                whole = hashlib.blake2b(digest_size=16)
                for start in range(0, length, _BLOCK):  # a document may be of any length
                    whole.update(hashes.read(HASH.itemsize * min(_BLOCK, length - start)))
                found += whole.digest()
            places = np.arange(first, first + len(lengths))
            yield np.frombuffer(bytes(found), HASH), places, places
            first += len(lengths)


def _lines(draft: Path, left_out: np.ndarray) -> Iterator[Block]:
    """The hash of each line of the documents that are kept; its group is its document."""
    first, document, within = 0, 0, 0  # the number of the line, of its document, and of the line in it
    lengths_of = _blocks(draft / "lengths.bin", _COUNT)
    lengths = np.empty(0, _COUNT)
    for hashes in _blocks(draft / "hashes.bin", HASH):
        while lengths.sum() - within < len(hashes):
            lengths = np.concatenate([lengths, next(lengths_of)])
        ends = np.cumsum(lengths) - within
        inside = np.searchsorted(ends, np.arange(len(hashes)), side="right")  # the document, from the first of lengths
        groups = document + inside
        kept = (left_out[groups >> 3] >> (groups & 7).astype(np.uint8) & 1) == 0
        yield hashes[kept], np.arange(first, first + len(hashes))[kept], groups[kept]
        done = int(np.searchsorted(ends, len(hashes), side="right"))  # documents that have ended
        within = len(hashes) - int(ends[done - 1]) if done else within + len(hashes)
        lengths, document, first = lengths[done:], document + done, first + len(hashes)


def _blocks(path: Path, dtype: np.dtype) -> Iterator[np.ndarray]:
    with open(path, "rb") as file:
        while data := file.read(dtype.itemsize * _BLOCK):
            yield np.frombuffer(data, dtype)


def _set(bits: np.ndarray, places: np.ndarray) -> None:
    np.bitwise_or.at(bits, places >> 3, np.left_shift(1, places & 7).astype(np.uint8))


def _bits(path: Path) -> np.ndarray:
    return np.asarray(np.memmap(path, np.uint8, "r"))


def _ones(bits: np.ndarray, start: int, stop: int) -> int:
    """The number of bits that are 1 from ``start`` to before ``stop``."""
    count, first = 0, start >> 3
    while first << 3 < stop:
        block = np.unpackbits(bits[first : first + _BLOCK], bitorder="little")
        skipped = max(0, start - (first << 3))
        count += int(block[skipped : stop - (first << 3)].sum(dtype=np.int64))
        first += _BLOCK
    return count


def _counts(draft: Path, facts: dict[str, Any]) -> dict[str, int]:
    return {f"{name}_left_out": _ones(_bits(draft / f"{name}.bits"), 0, facts[name]) for name in ("documents", "lines")}
