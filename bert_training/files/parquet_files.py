"""The column of texts of a Parquet file, a few rows at a time."""

import os
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from tokenization.errors import UserError

if TYPE_CHECKING:
    import pyarrow

ROWS = 32  # in memory at once; a row may be a book


def text_rows(
    path: str | os.PathLike[str], file: IO[bytes], column: str = "text", within: tuple[int, int] | None = None
) -> Iterator["pyarrow.Scalar"]:
    """Yield the value of each row.

    Args:
        path: the path, for error messages.
        file: the open file, which can seek.
        column: the name of the column of texts.
        within: of the row groups only those whose column begins at one of these bytes, from the first number up to the
            second; None for all.

    Raises:
        ValueError: there is not exactly one column of that name.
        pyarrow.ArrowException, OSError: it is not a Parquet file, or damaged.
    """
    table = _opened(file)
    check_column(path, table.schema_arrow.names, column)
    chunks = _chunks(table.metadata, column)
    chosen = [number for number, chunk in enumerate(chunks) if within is None or _begins_within(chunk, within)]
    for batch in table.iter_batches(ROWS, row_groups=chosen, columns=[column]):
        yield from batch.column(0)


def check_column(path: str | os.PathLike[str], names: list[str], column: str) -> None:
    """Raise ValueError unless exactly one column has this name."""
    if names.count(column) != 1:
        raise UserError(
            f"{path}: expected one column `{column}`; its columns are {', '.join(names)[:800]}; name that of the texts "
            "with --text_column"
        )


class Groups(NamedTuple):
    """Some consecutive row groups: the rows before them, and the bytes ``start`` to ``stop`` with their text.

    ``footer`` is the number of bytes at the end of the file that describe it.
    """

    rows_before: int
    start: int
    stop: int
    footer: int


def groups_within(file: IO[bytes], column: str, within: tuple[int, int]) -> Groups:
    """The row groups whose column of texts begins at one of the bytes ``within``, as in ``text_rows``.

    Raises:
        pyarrow.ArrowException, OSError: it is not a Parquet file, or damaged.
    """
    metadata = _opened(file).metadata
    before, start, stop = 0, 0, 0
    for number, chunk in enumerate(_chunks(metadata, column)):
        if _start(chunk) < within[0]:
            before += metadata.row_group(number).num_rows
        elif _begins_within(chunk, within):
            start, stop = start or _start(chunk), max(stop, _start(chunk) + chunk.total_compressed_size)
    return Groups(before, start, stop, metadata.serialized_size)


def column_names(file: IO[bytes]) -> list[str]:
    """The names of the columns. Raises ArrowException or OSError if it is not a Parquet file, or damaged."""
    return list(_opened(file).schema_arrow.names)


def _opened(file: IO[bytes]) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(file)


def _chunks(metadata: Any, column: str) -> list[Any]:
    """Where the column lies in each row group; a nested column begins with the first of its parts."""
    names = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    places = [number for number, name in enumerate(names) if f"{name}.".startswith(f"{column}.")]
    return [metadata.row_group(number).column(places[0]) for number in range(metadata.num_row_groups) if places]


def _start(chunk: Any) -> int:
    """The first byte of a column in a row group."""
    return int(min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset))


def _begins_within(chunk: Any, within: tuple[int, int]) -> bool:
    return within[0] <= _start(chunk) < within[1]
