"""Several processes, started by ``accelerate launch``, tokenise one corpus together.

They may run on several machines with a common disk. Reading the text is fast and encoding it is slow. Every process
therefore reads the whole text, but encodes only each ``world_size``-th chunk of it and writes these into a file of its
own, its part. Then one process reads the chunks from the parts in turn and writes the corpus. The ids are the same as
those that a single process writes. A process that is started again after an interruption continues its part.

    corpus/train.shares-4-1f0c9a2b/part-0.bin    records, end to end: 4 x int64 (lines, sentences, documents,
                                                 tokens), then the arrays of an ``Encoded``
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from bert_training.files.atomic import make_folder, open_own, remove_folder
from bert_training.files.links import refuse_link
from bert_training.files.unchanged import UnchangedFiles
from bert_training.pretraining.encoding import Encoded, encoded_chunks

_HEADER: np.dtype = np.dtype("<i8")
_TYPES: tuple[np.dtype, ...] = (np.dtype("<i4"), _HEADER, _HEADER)  # tokens, lengths, ends


def parts_folder(target: Path, world_size: int, fingerprint: str) -> Path:
    """The folder for the parts of the corpus ``target``.

    Args:
        target: the folder of the corpus.
        world_size: the number of processes.
        fingerprint: that of the text and the tokenizer, so that parts of another text are never joined.
    """
    # The name has been `.shares-` since an earlier version, in which the parts were called shares.
    return target.with_name(f"{target.name}.shares-{world_size}-{fingerprint[:8]}")


def write_part(
    folder: Path,
    chunks: Iterator[list[str | None]],
    content: str,
    rank: int,
    world_size: int,
    num_workers: int,
    files: UnchangedFiles,
) -> None:
    """Encode every ``world_size``-th chunk, from chunk ``rank`` on, into ``folder``, continuing an interrupted part.

    Args:
        folder: the folder of the parts (``parts_folder``).
        chunks: all chunks of the text, from its beginning.
        content: the content of a tokenizer.json.
        rank: the number of this process, from 0.
        world_size: the number of processes.
        num_workers: processes that this process starts to encode its chunks.
        files: those that hold the text. No record is written after a change of them.

    Raises:
        ValueError: a file is no longer what it was.
    """
    refuse_link(folder)
    make_folder(folder)
    with open_own(folder / f"part-{rank}.bin", "ab+") as file:
        file.seek(0)
        done, end = 0, 0
        for _ in _records(file):
            done, end = done + 1, file.tell()
        file.truncate(end)  # removes the incomplete record that a killed process may have left
        mine = itertools.islice(chunks, rank + done * world_size, None, world_size)
        for size, encoded in encoded_chunks(mine, content, num_workers):
            counts = [size, len(encoded.lengths), len(encoded.ends), len(encoded.tokens)]
            header = np.array(counts, _HEADER)
            files.check()
            arrays = (array.astype(dtype).tobytes() for array, dtype in zip(encoded, _TYPES))
            file.write(header.tobytes() + b"".join(arrays))


def joined_parts(folder: Path, world_size: int, lines: int) -> Iterator[tuple[int, Encoded]]:
    """Yield (number of lines, their ids) for each chunk in the order of the text.

    Args:
        folder: the folder of the parts (``parts_folder``).
        world_size: the number of parts.
        lines: skip the chunks that hold the first ``lines`` lines, which the corpus already has.

    Raises:
        OSError: a part is missing.
    """
    parts = [_records_of(folder / f"part-{rank}.bin") for rank in range(world_size)]
    for records in itertools.cycle(parts):
        record = next(records, None)
        if record is None:
            return
        size, encoded = record
        if lines:
            lines -= size  # the corpus is committed after whole chunks only, so that this reaches exactly 0
        else:
            yield size, encoded


def remove_parts(target: Path) -> None:
    """Delete all parts of the corpus ``target``, including those of other numbers of processes and other texts."""
    for folder in target.parent.glob(f"{target.name}.shares-*"):
        remove_folder(folder)


def _records_of(path: Path) -> Iterator[tuple[int, Encoded]]:
    with open(path, "rb") as file:
        yield from _records(file)


def _records(file: IO[bytes]) -> Iterator[tuple[int, Encoded]]:
    """Yield (number of lines, their ids) for each complete record; an incomplete one at the end is ignored."""
    while len(header := file.read(4 * _HEADER.itemsize)) == 4 * _HEADER.itemsize:
        size, sentences, documents, tokens = np.frombuffer(header, _HEADER).tolist()
        arrays = []
        for count, dtype in zip((tokens, sentences, documents), _TYPES):
            data = file.read(count * dtype.itemsize)
            if not size or len(data) < count * dtype.itemsize:
                return
            arrays.append(np.frombuffer(data, dtype))
        yield size, Encoded(*arrays)
