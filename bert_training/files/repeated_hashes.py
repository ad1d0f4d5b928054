"""Which of very many hashes occur again, in bounded memory.

Records are divided by their hashes among at most 256 files, each of which is read in chunks. A file with too many
different hashes is read several times, each time for another part of them, so that no more than ``IN_MEMORY`` are known
at a time. On the disk, a record takes 32 bytes until its file has been read.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

HASH = np.dtype([("high", "<u8"), ("low", "<u8")])  # the 16 bytes of a hash
IN_MEMORY = 1 << 20  # records, of 32 bytes each and as much again while they are sorted
_BUCKETS = 256
_RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("place", "<i8"), ("group", "<i8")])
_KNOWN = np.dtype([*_RECORD.descr, ("count", "<i8")])

Block = tuple[np.ndarray, np.ndarray, np.ndarray]


def repeated_places(
    blocks: Iterable[Block], total: int, least: int, draft: Path, in_memory: int = IN_MEMORY
) -> Iterator[np.ndarray]:
    """Yield, in arrays, the places of all hashes that occur in at least ``least`` groups, but for the first of each.

    Args:
        blocks: (N hashes of type HASH, N places, N groups), with places that increase from each to the next, and groups
            that do not decrease.
        total: about how many hashes there are.
        least: the number of groups, at least 2.
        draft: an empty folder for files, which are removed.
        in_memory: the largest number of records to hold at a time.
    """
    number = max(1, min(_BUCKETS, -(-total // in_memory)))
    with ExitStack() as stack:
        files = [stack.enter_context(open(draft / f"bucket-{bucket}.bin", "wb")) for bucket in range(number)]
        for hashes, places, groups in blocks:
            records = np.empty(len(hashes), _RECORD)
            records["high"], records["low"] = hashes["high"], hashes["low"]
            records["place"], records["group"] = places, groups
            buckets = records["high"] % number
            records = records[np.argsort(buckets, kind="stable")]  # which keeps the order of the places
            cuts = np.cumsum(np.bincount(buckets.astype(np.int64), minlength=number))[:-1]
            for file, own in zip(files, np.split(records, cuts)):
                file.write(own.tobytes())
    for path in [draft / f"bucket-{bucket}.bin" for bucket in range(number)]:
        divisions = [(0, 1)]  # (part, of how many)
        while divisions:
            part, of = divisions.pop()
            known = _known(path, number, part, of, in_memory)
            if known is None:
                divisions += [(part, 2 * of), (part + of, 2 * of)]
                continue
            known = known[known["count"] >= least]
            if len(known):
                yield from (_later(known, chunk) for chunk in _chunks(path, number, part, of, in_memory))
        path.unlink()


def _known(path: Path, number: int, part: int, of: int, in_memory: int) -> np.ndarray | None:
    """The hashes of a part of a file; None if there are too many, so that the part is to be divided."""
    known = np.empty(0, _KNOWN)
    for chunk in _chunks(path, number, part, of, in_memory):
        known = _counted(known, chunk)
        if len(known) > in_memory:
            return None
    return known


def _chunks(path: Path, number: int, part: int, of: int, in_memory: int) -> Iterator[np.ndarray]:
    """The records of part ``part`` of ``of`` of the file, which is one of ``number``, some at a time."""
    with open(path, "rb") as file:
        while data := file.read(_RECORD.itemsize * in_memory):
            chunk = np.frombuffer(data, _RECORD)
            yield chunk[chunk["high"] // number % of == part] if of > 1 else chunk


def _counted(known: np.ndarray, chunk: np.ndarray) -> np.ndarray:
    """``known`` with the records of a chunk: of each hash its first place, its last group and its number of groups."""
    rows = np.empty(len(known) + len(chunk), _KNOWN)
    rows[: len(known)] = known
    for name in _RECORD.names or ():
        rows[name][len(known) :] = chunk[name]
    rows["count"][len(known) :] = 1
    rows, new = _sorted(rows)
    if not len(rows):
        return rows
    again = ~new[1:] & (rows["group"][1:] == rows["group"][:-1])
    rows["count"][1:][again] = 0  # never that of a known row, which is the first of its hash
    starts = np.flatnonzero(new)
    result = rows[starts]
    result["count"] = np.add.reduceat(rows["count"], starts)
    result["group"] = rows["group"][np.append(starts[1:], len(rows)) - 1]
    return result


def _later(known: np.ndarray, chunk: np.ndarray) -> np.ndarray:
    """The places of a chunk whose hashes are known, without the first place of each hash."""
    rows = np.empty(len(known) + len(chunk), _RECORD)
    for name in _RECORD.names or ():
        rows[name][: len(known)] = known[name]
        rows[name][len(known) :] = chunk[name]
    rows["group"][: len(known)] = known["place"]  # the first place
    rows["place"][: len(known)] = -1
    rows, new = _sorted(rows)
    starts = np.flatnonzero(new)
    lengths = np.diff(np.append(starts, len(rows)))
    is_known = np.repeat(rows["place"][starts] == -1, lengths)
    first = np.repeat(rows["group"][starts], lengths)
    found: np.ndarray = rows["place"][is_known & (rows["place"] >= 0) & (rows["place"] != first)]
    return found


def _sorted(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows by hash and place, whether each is the first of its hash)."""
    rows = rows[np.lexsort((rows["place"], rows["low"], rows["high"]))]
    new = np.ones(len(rows), bool)
    new[1:] = (rows["high"][1:] != rows["high"][:-1]) | (rows["low"][1:] != rows["low"][:-1])
    return rows, new
