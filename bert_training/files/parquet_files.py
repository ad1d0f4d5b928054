"""The column of texts of a Parquet file, a few rows at a time, however much the file claims to hold.

A Parquet file of a few kilobytes can stand for billions of rows, or for terabytes of text, because equal values are
stored once. It is therefore refused by the rule for packed files (``compressed_files.py``): more than 16 MiB of text,
or more rows than that, only up to 100 times the size of the file. The end of the file says how much there is, but may
lie; so do the headers of the pages, by which the library takes memory (``parquet_pages.py``).
"""

import os
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from bert_training.files.compressed_files import LIMIT, RATIO, largest
from bert_training.files.parquet_pages import unpacked_sizes
from bert_training.files.small_files import largest_small
from tokenization.errors import UserError

if TYPE_CHECKING:
    import pyarrow

ROWS = 32  # in memory at once, or fewer: a row may be as large as a page
IN_MEMORY = 4  # times 16 MiB, of rows
LARGEST_PAGE = 16  # times 16 MiB; libraries write pages of 1 to 100 MiB


def text_rows(
    path: str | os.PathLike[str],
    file: IO[bytes],
    size: int,
    column: str = "text",
    within: tuple[int, int] | None = None,
) -> Iterator["pyarrow.Scalar"]:
    """Yield the value of each row.

    Args:
        path: the path, for error messages.
        file: the open file, which can seek.
        size: the bytes of the file on the disk.
        column: the name of the column of texts.
        within: of the row groups only those whose column begins at one of these bytes, from the first number up to the
            second; None for all.

    Raises:
        ValueError: there is not exactly one column of that name, or more text than the file can hold honestly; or the
            file contradicts itself.
        pyarrow.ArrowException, OSError: it is not a Parquet file, or damaged.
    """
    table = _opened(file)
    names = table.schema_arrow.names
    if names.count(column) != 1:
        raise UserError(
            f"{path}: expected one column `{column}`; its columns are {', '.join(names)[:800]}; name that of the texts "
            "with --text_column"
        )
    metadata, most = table.metadata, max(largest(), RATIO * size)
    place = next(number for number, name in enumerate(metadata.schema) if f"{name.path}.".startswith(f"{column}."))
    groups = [metadata.row_group(number).column(place) for number in range(metadata.num_row_groups)]
    claimed = max(metadata.num_rows, sum(group.total_uncompressed_size for group in groups))
    if claimed > most:
        raise _too_much(path, size, most)
    chosen = [number for number, group in enumerate(groups) if within is None or _begins_within(group, within)]
    groups = [groups[number] for number in chosen]
    largest_page = unpacked = 0
    for page in _page_sizes(file, groups):
        largest_page, unpacked = max(largest_page, page), unpacked + page
        if unpacked > most or page > LARGEST_PAGE * largest():
            raise _too_much(path, size, min(most, LARGEST_PAGE * largest()))
    count, rows = 0, max(1, min(ROWS, IN_MEMORY * largest() // max(1, largest_page)))
    for batch in table.iter_batches(rows, row_groups=chosen, columns=[column]):
        values = batch.column(0)
        count += max(values.nbytes, len(values))
        if count > most:
            raise _too_much(path, size, most)
        yield from values


class Groups(NamedTuple):
    """Some consecutive row groups: the rows before them, and the bytes ``start`` to ``stop`` with their text."""

    rows_before: int
    start: int
    stop: int


def groups_within(file: IO[bytes], column: str, within: tuple[int, int]) -> Groups:
    """The row groups whose column of texts begins at one of the bytes ``within``, as in ``text_rows``.

    Raises:
        pyarrow.ArrowException, OSError: it is not a Parquet file, or damaged.
    """
    metadata = _opened(file).metadata
    before, start, stop = 0, 0, 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(place) for place in range(group.num_columns)]
        chunk = next((one for one in chunks if f"{one.path_in_schema}.".startswith(f"{column}.")), None)
        if chunk is None:
            continue
        if _start(chunk) < within[0]:
            before += group.num_rows
        elif _begins_within(chunk, within):
            start, stop = start or _start(chunk), max(stop, _start(chunk) + chunk.total_compressed_size)
    return Groups(before, start, stop)


def column_names(file: IO[bytes]) -> list[str]:
    """The names of the columns. Raises ArrowException or OSError if it is not a Parquet file, or damaged."""
    return list(_opened(file).schema_arrow.names)


def _opened(file: IO[bytes]) -> Any:
    import pyarrow.parquet

    items = length_of_end(file) // 8 + 64  # in any list there, as each item has some bytes
    return pyarrow.parquet.ParquetFile(file, thrift_container_size_limit=min(items, 1_000_000))


def length_of_end(file: IO[bytes]) -> int:
    """The bytes of the end of the file, which describes it, as its last 8 bytes say; OSError if that cannot be."""
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - 8))
    last = file.read(8)
    if last[4:] != b"PAR1" or int.from_bytes(last[:4], "little") > min(length, largest_small()):
        raise OSError("it does not end as one")
    file.seek(0)
    return int.from_bytes(last[:4], "little")


def _page_sizes(file: IO[bytes], groups: list[Any]) -> Iterator[int]:
    """The bytes of each page, unpacked; OSError if a page is outside the file or damaged."""
    length = file.seek(0, os.SEEK_END)
    for group in groups:
        start = _start(group)
        if start < 0 or group.total_compressed_size < 0 or start + group.total_compressed_size > length:
            raise OSError("pages are outside the file")
        try:
            yield from unpacked_sizes(file, start, group.total_compressed_size)
        except ValueError as error:
            raise OSError(str(error)) from None


def _start(group: Any) -> int:
    """The first byte of the column of texts in a row group."""
    return int(min(group.data_page_offset, group.dictionary_page_offset or group.data_page_offset))


def _begins_within(group: Any, within: tuple[int, int]) -> bool:
    return within[0] <= _start(group) < within[1]


def _too_much(path: str | os.PathLike[str], size: int, most: int) -> UserError:
    return UserError(
        f"{path}: expected at most {most:,} rows and bytes of text in a file of {size:,} bytes, got more; if you trust "
        f"the file, set {LIMIT} to more than {largest() >> 20}"
    )
