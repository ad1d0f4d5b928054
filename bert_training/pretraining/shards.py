"""A shard: the ids of some ranges of bytes of a text, in a file that is sealed with its SHA-256.

A shard is a function of its bytes, the tokenizer and the flag of the field of the text, and of nothing else: not of the
other shards, of the number of processes, or of a clock. Therefore a shard that exists is never made again while these
are the same, and shards that several machines made are joined as if one process had made them.

    corpus.shards/shard-00017.bin    a line that says what the file is
                                     records, end to end: 4 x int64 (sentences, documents, tokens, paragraphs), then
                                     the arrays of an ``Encoded``
                                     the CRC-32 of each document that ends in the shard, if documents are held out
                                     the footer (JSON), its length (int64), and the SHA-256 of all that is before

Ranges are read with other bytes than their own, as lines end where they end. The footer therefore has checksums of all
blocks of the files that were read, so that a file that is changed between two shards is noticed (``sources.py``).
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_training.files.atomic import whole_file
from bert_training.files.hashing import UnchangedFiles
from bert_training.pretraining.encoding import Encoded
from bert_training.pretraining.held_out import Piece, in_share
from bert_training.pretraining.ranges import RangeReader, Rule, Span
from bert_training.pretraining.sources import checksums_of, sources_now
from tokenization.coverage import Sample
from tokenization.errors import UserError

FORMAT = 2
CHUNK_CHARACTERS = 1 << 20
_MAGIC = b"bert-repro shard 1\n"
_COUNTS: np.dtype = np.dtype("<i8")
_SMALL: np.dtype = np.dtype("<u4")
_SEAL = 32 + 8
# Encodes chunks, in order.
Encoder = Callable[[Iterator[list[str | None]]], Iterator[Encoded]]


@dataclass(frozen=True)
class Job:
    """A shard that is to be made.

    Attributes:
        path: the file.
        number: of the shard, from 0.
        key: what all shards of a text have in common; shards with different keys are never joined.
        spans: what it is made from.
        text_column: the field of the text.
        share: the share of documents to hold out; None if all documents are on one side.
        below: of ``Sample``.
        dtype: of the ids.
    """

    path: Path
    number: int
    key: dict[str, Any]
    spans: Sequence[Span]
    text_column: str
    share: float | None
    below: int
    dtype: str


class _Facts:
    """What a shard's footer says of its lines.

    Attributes:
        paragraphs: in each span.
        read: of each span, the extents and the rule (``RangeReader``).
        checks: the CRC-32 of each document that ends in the shard; of the first one, of its part in the shard.
        head: the part of the first of these documents.
        tail: the part of the document that has not ended.
        samples: of the documents of each side, and of the two parts whose side is not known; or of all.
    """

    def __init__(self, job: Job):
        self.job = job
        self.paragraphs: list[int] = []
        self.read: list[tuple[list[tuple[int, int]], Rule]] = []
        self.checks: list[int] = []
        self.head: Piece | None = None
        self.tail = Piece()
        names = ("all",) if job.share is None else ("train", "held_out", "head", "tail")
        self.samples = {name: Sample(below=job.below) for name in names}

    def chunks(self) -> Iterator[list[str | None]]:
        """The lines of the shard in lists of about ``CHUNK_CHARACTERS`` characters."""
        chunk: list[str | None] = []
        characters = 0
        divided = self.job.share is not None
        since = 0  # paragraphs since the last end of a document
        add = self.samples["tail" if divided else "all"].add
        for span in self.job.spans:
            reader, paragraphs = RangeReader(span, self.job.text_column), 0
            for place, line in reader:
                chunk.append(line)
                if line is not None:
                    paragraphs += 1
                    since += 1
                    characters += len(line)
                    add(line, place)
                    if divided:
                        self.tail.add(line)
                else:
                    characters += 1
                    since = 0
                    if divided:
                        self._end()
                        add = self.samples["tail"].add
                if characters >= CHUNK_CHARACTERS:
                    yield chunk
                    chunk, characters = [], 0
            self.paragraphs.append(paragraphs)
            self.read.append((reader.extents, reader.rule))
        if not divided:
            self.tail = Piece(since)
        if chunk:
            yield chunk

    def _end(self) -> None:
        """A document ends. The side of the first one depends on the shards before, and that of the last on others."""
        ended, self.tail = self.tail, Piece()
        share = self.job.share
        assert share is not None
        if self.head is None:
            self.head, name = ended, "head"
        else:
            name = "held_out" if in_share(ended.checksum, share) else "train"
        self.checks.append(ended.checksum)
        waiting = self.samples["tail"]
        if waiting.drawn:
            self.samples[name].merge(waiting.drawn)
            self.samples["tail"] = Sample(below=self.job.below)

    def footer(self) -> dict[str, Any]:
        """The content of the footer, without what the writer counts."""
        return {
            "paragraphs": self.paragraphs,
            "head": self.head.facts() if self.head else None,
            "tail": self.tail.facts(),
            "samples": {name: sample.drawn for name, sample in self.samples.items()},
            "sources": [checksums_of(span.path, *read) for span, read in zip(self.job.spans, self.read, strict=True)],
        }


def write_shard(job: Job, encode: Encoder) -> None:
    """Make a shard, whole or not at all; nothing is done if it exists already.

    Raises:
        ValueError: the text cannot be read, or a file was changed meanwhile; or the file in the place of the shard is
            another one.
        OSError: it could not be written.
    """
    files = UnchangedFiles(sorted({span.path for span in job.spans}))
    if job.path.exists() and is_made(job):
        return
    facts = _Facts(job)
    with whole_file(job.path, shared=True) as draft, open(draft, "wb") as file:
        seal = hashlib.sha256()

        def write(data: bytes) -> None:
            seal.update(data)
            file.write(data)

        write(_MAGIC)
        records = documents = 0
        for encoded in encode(facts.chunks()):
            write(_record(encoded, np.dtype(job.dtype)))
            records, documents = records + 1, documents + len(encoded.ends)
        write(np.array(facts.checks, _SMALL).tobytes())
        counts = {"number": job.number, "records": records, "documents": documents, "checks": len(facts.checks)}
        footer = json.dumps({"key": job.key} | counts | facts.footer()).encode()
        write(footer + np.array(len(footer), _COUNTS).tobytes())
        file.write(seal.digest())
        files.check()


def _record(encoded: Encoded, dtype: np.dtype) -> bytes:
    lengths, ends = len(encoded.lengths), len(encoded.ends)
    counts = np.array([lengths, ends, len(encoded.tokens), encoded.size], _COUNTS)
    types = (dtype, _SMALL, _SMALL, _SMALL)
    arrays = (encoded.tokens, encoded.lengths, encoded.ends, encoded.paragraphs)
    return b"".join([counts.tobytes(), *(array.astype(kind).tobytes() for array, kind in zip(arrays, types))])


def is_made(job: Job) -> bool:
    """Whether the shard that exists is this one, made from what the files hold now.

    Raises:
        ValueError: it is damaged, or has another key or number.
    """
    shard = Shard(job.path)
    shard.check(job.key, job.number)
    return shard.footer["sources"] == sources_now(job.spans, shard.footer["sources"], job.text_column)


class Shard:
    """A finished shard.

    Attributes:
        path: the file.
        footer: what it says of itself.

    Raises:
        ValueError: the file is missing, or it is no shard.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with open(path, "rb") as file:
                self._stop = file.seek(0, 2)
                file.seek(max(0, self._stop - _SEAL))
                size = int(np.frombuffer(file.read(8), _COUNTS)[0])
                self._footer_at = self._stop - _SEAL - size
                file.seek(max(0, self._footer_at))
                self.footer: dict[str, Any] = json.loads(file.read(size))
                file.seek(0)
                whole = file.read(len(_MAGIC)) == _MAGIC and "sources" in self.footer
        except (ValueError, IndexError, TypeError):
            whole = False
        if not whole:
            raise self._damaged()

    def _damaged(self) -> UserError:
        return UserError(f"{self.path}: expected a whole shard, got a damaged file; delete it and make it again")

    def check(self, key: dict[str, Any], number: int) -> None:
        """Raise ValueError if it is a shard of another text or tokenizer, or another one of the same text."""
        found, wanted = self.footer["key"] | {"number": self.footer["number"]}, key | {"number": number}
        if differing := [name for name in sorted({*wanted, *found}) if found.get(name) != wanted.get(name)]:
            raise UserError(
                f"{self.path}: it is a shard of another corpus (it differs in: {', '.join(differing)}); give the text, "
                f"the tokenizer and the flags that it was made with, or delete {self.path.parent} to begin anew"
            )

    def checks(self) -> np.ndarray:
        """The CRC-32 (D) of the documents that end in it; of the first one, of its part in this shard."""
        count = self.footer["checks"]
        with open(self.path, "rb") as file:
            file.seek(self._footer_at - count * _SMALL.itemsize)
            return np.frombuffer(file.read(count * _SMALL.itemsize), _SMALL)

    def records(self) -> Iterator[Encoded]:
        """Its chunks.

        Raises:
            ValueError: after the last chunk, the file has not the SHA-256 with which it was sealed; or earlier, if it
                cannot be read.
        """
        dtype = np.dtype(self.footer["key"]["dtype"])
        seal = hashlib.sha256()
        with open(self.path, "rb") as file:

            def read(size: int) -> bytes:
                data = file.read(size) if 0 <= size <= self._stop else b""
                seal.update(data)
                if len(data) != size:
                    raise self._damaged()
                return data

            read(len(_MAGIC))
            for _ in range(self.footer["records"]):
                sentences, ends, tokens, size = np.frombuffer(read(4 * _COUNTS.itemsize), _COUNTS).tolist()
                counts = ((tokens, dtype), (sentences, _SMALL), (ends, _SMALL), (ends, _SMALL))
                ids, lengths, borders, paragraphs = (
                    np.frombuffer(read(count * kind.itemsize), kind) for count, kind in counts
                )
                yield Encoded(ids, lengths, borders, paragraphs, size)
            read(self._stop - 32 - file.tell())
            if file.read() != seal.digest():
                raise self._damaged()


def shards_folder(target: Path) -> Path:
    """The folder of the shards of the corpus ``target``."""
    return target.with_name(f"{target.name}.shards")


def remove_shards(folder: Path) -> None:
    """Delete the shards in a folder and what belongs to them, and the folder if nothing else is in it."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for pattern in ("shard-*.bin", "shard-*.json", "source-*.json", "shard-*.tmp", "source-*.tmp", ".task-*.lock"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # something else is in it, or another process has deleted it
        folder.rmdir()
