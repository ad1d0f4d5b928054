"""Which of very many hashes occur again.

Records are divided by their hashes among at most 256 files, which are sorted one at a time. On the disk, a record takes
32 bytes until its file has been read.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

HASH = np.dtype([("high", "<u8"), ("low", "<u8")])  # the 16 bytes of a hash
IN_MEMORY = 1 << 20  # records at a time, unless there are more than 256 times as many
_BUCKETS = 256
_RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("place", "<i8"), ("group", "<i8")])

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
        in_memory: about how many records to sort at a time.
    """
    number = max(1, min(_BUCKETS, -(-total // in_memory)))
    with ExitStack() as stack:
        files = [stack.enter_context(open(draft / f"bucket-{bucket}.bin", "wb")) for bucket in range(number)]
        for hashes, places, groups in blocks:
            records = np.empty(len(hashes), _RECORD)
            records["high"], records["low"] = hashes["high"], hashes["low"]
            records["place"], records["group"] = places, groups
            buckets = records["high"] % number
            records = records[np.argsort(buckets, kind="stable")]
            cuts = np.cumsum(np.bincount(buckets.astype(np.int64), minlength=number))[:-1]
            for file, own in zip(files, np.split(records, cuts)):
                file.write(own.tobytes())
    for bucket in range(number):
        path = draft / f"bucket-{bucket}.bin"
        yield _repeated(np.fromfile(path, _RECORD), least)
        path.unlink()


def _repeated(records: np.ndarray, least: int) -> np.ndarray:
    """The places that ``repeated_places`` yields, of all records of some hashes."""
    records = records[np.lexsort((records["place"], records["low"], records["high"]))]
    new = np.ones(len(records), bool)  # whether a record is the first of its hash
    new[1:] = (records["high"][1:] != records["high"][:-1]) | (records["low"][1:] != records["low"][:-1])
    starts = np.flatnonzero(new)
    first_of_group = new.copy()
    first_of_group[1:] |= records["group"][1:] != records["group"][:-1]
    groups = np.add.reduceat(first_of_group, starts, dtype=np.int64) if len(starts) else starts
    often = np.repeat(groups >= least, np.diff(np.append(starts, len(records))))
    places: np.ndarray = records["place"][often & ~new]
    return places
