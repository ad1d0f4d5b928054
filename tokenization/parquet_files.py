"""The column of texts of a Parquet file, a few rows at a time, however much the file claims to hold.

A Parquet file of a few kilobytes can stand for billions of rows, or for terabytes of text, because equal values are
stored once. It is therefore refused by the rule for packed files (``tokenization/compressed_files.py``): more than
16 MiB of text, or more rows than that, only up to 100 times the size of the file.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .compressed_files import LIMIT, RATIO, largest

if TYPE_CHECKING:
    import pyarrow

ROWS = 32  # in memory at once: a row may be as large as a line


def text_rows(path: str | os.PathLike[str], source: Any, size: int, column: str = "text") -> Iterator["pyarrow.Scalar"]:
    """Yield the value of each row.

    Args:
        source: the path or an open file that can seek.
        size: the bytes of the file on the disk.
        column: the name of the column of texts.

    Raises:
        ValueError: there is not exactly one column of that name, or more text than the file can hold honestly.
        pyarrow.ArrowException, OSError: it is not a Parquet file, or damaged.
    """
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(source)
    names = table.schema_arrow.names
    if names.count(column) != 1:
        raise ValueError(
            f"{path}: expected one column `{column}`; its columns are {', '.join(names)}; name that of the texts with "
            "--text_column"
        )
    metadata, most = table.metadata, max(largest(), RATIO * size)
    place = next(number for number, name in enumerate(metadata.schema) if f"{name.path}.".startswith(f"{column}."))
    groups = [metadata.row_group(number).column(place) for number in range(metadata.num_row_groups)]
    claimed = max(metadata.num_rows, sum(group.total_uncompressed_size for group in groups))
    if claimed > most:
        raise _too_much(path, size, most)
    count = 0
    for batch in table.iter_batches(ROWS, columns=[column]):
        values = batch.column(0)
        count += max(values.nbytes, len(values))
        if count > most:
            raise _too_much(path, size, most)
        yield from values


def _too_much(path: str | os.PathLike[str], size: int, most: int) -> ValueError:
    return ValueError(
        f"{path}: expected at most {most:,} rows and bytes of text in a file of {size:,} bytes, got more; if you trust "
        f"the file, set {LIMIT} to more than {largest() >> 20}"
    )
