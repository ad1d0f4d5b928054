"""The column of texts of an Arrow file, as ``save_to_disk`` of ``datasets`` writes it: a stream of batches of rows."""

import os
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from bert_training.files.parquet_files import check_column

if TYPE_CHECKING:
    import pyarrow


def arrow_rows(path: str | os.PathLike[str], file: IO[bytes], column: str = "text") -> Iterator["pyarrow.Scalar"]:
    """Yield the value of each row; a batch of rows is in memory as a whole.

    Args:
        path: the path, for error messages.
        file: the open file.
        column: the name of the column of texts.

    Raises:
        ValueError: there is not exactly one column of that name.
        pyarrow.ArrowException, OSError: it is no stream of Arrow, or damaged.
    """
    import pyarrow

    with pyarrow.ipc.open_stream(file) as stream:
        check_column(path, stream.schema.names, column)
        for batch in stream:
            values = batch.column(column)
            values.validate(full=True)  # a damaged offset would give a part of another text
            yield from values
