"""Several processes tokenise one corpus together: `accelerate launch`, on one machine or many with a common disk.

Every process reads the whole text, which is quick, and encodes each `world_size`-th chunk of it, which is not, into
a file of its own; then one process takes the chunks in turn and writes the corpus. The ids are those that one
process alone writes. A share that was interrupted is continued.

    corpus/train.shares-4-1f0c9a2b/part-0.bin    records, end to end: 4 x int64 (lines, sentences, documents,
                                                 tokens), then the arrays of an `Encoded`
"""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from training.pretraining.encoding import Encoded, encoded_chunks

_HEADER = np.dtype("<i8")
_TYPES = (np.dtype("<i4"), _HEADER, _HEADER)  # tokens, lengths, ends


def parts_folder(target: Path, world_size: int, fingerprint: str) -> Path:
    """Where the shares of the corpus `target` lie; `fingerprint` is that of text and tokenizer."""
    return target.with_name(f"{target.name}.shares-{world_size}-{fingerprint[:8]}")


def write_part(
    folder: Path,
    chunks: Iterator[list[str | None]],
    content: str,
    rank: int,
    world_size: int,
    num_workers: int,
) -> None:
    """Encode the chunks number rank, rank + world_size, ... into `folder`; `content` is that of a tokenizer.json."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"part-{rank}.bin", "ab+") as file:
        file.seek(0)
        done, end = 0, 0
        for _ in _records(file):
            done, end = done + 1, file.tell()
        file.truncate(end)  # what a kill left of a record
        mine = itertools.islice(chunks, rank + done * world_size, None, world_size)
        for size, encoded in encoded_chunks(mine, content, num_workers):
            tokens, lengths, ends = encoded
            header = np.array([size, len(lengths), len(ends), len(tokens)], _HEADER)
            arrays = (array.astype(dtype).tobytes() for array, dtype in zip(encoded, _TYPES))
            file.write(header.tobytes() + b"".join(arrays))


def joined_parts(folder: Path, world_size: int, lines: int) -> Iterator[tuple[int, Encoded]]:
    """The records of all shares in the order of the text, without the first `lines` lines of it."""
    with_records = [_records_of(folder / f"part-{rank}.bin") for rank in range(world_size)]
    for records in itertools.cycle(with_records):
        record = next(records, None)
        if record is None:
            return
        if lines:
            lines -= record[0]  # commits fall on the ends of chunks
        else:
            yield record


def remove_parts(target: Path) -> None:
    """Delete all shares of the corpus `target`, also those of other numbers of processes."""
    for folder in target.parent.glob(f"{target.name}.shares-*"):
        shutil.rmtree(folder)


def _records_of(path: Path) -> Iterator[tuple[int, Encoded]]:
    with open(path, "rb") as file:
        yield from _records(file)


def _records(file: IO[bytes]) -> Iterator[tuple[int, Encoded]]:
    """(lines, ids) of each complete record."""
    while len(header := file.read(4 * _HEADER.itemsize)) == 4 * _HEADER.itemsize:
        size, sentences, documents, tokens = np.frombuffer(header, _HEADER).tolist()
        arrays = []
        for count, dtype in zip((tokens, sentences, documents), _TYPES):
            data = file.read(count * dtype.itemsize)
            if not size or len(data) < count * dtype.itemsize:
                return
            arrays.append(np.frombuffer(data, dtype))
        yield size, Encoded(*arrays)
