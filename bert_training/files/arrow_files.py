"""The column of texts of an Arrow file, as ``save_to_disk`` of ``datasets`` writes it: a stream of batches of rows.

A batch is in memory as a whole; ``datasets`` writes a thousand rows at a time. The file may come from a stranger. Its
buffers say where each text lies, so each batch is validated before its texts are taken. Batches that are packed inside
the file, which could be far larger than it, and dictionaries are refused; ``datasets`` writes neither.
"""

import os
import struct
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from tokenization.errors import UserError

if TYPE_CHECKING:
    import pyarrow

_HEADER, _COMPRESSION = 2, 3  # numbers of fields in Arrow's Message.fbs: of Message, and of RecordBatch


def arrow_rows(path: str | os.PathLike[str], file: IO[bytes], column: str = "text") -> Iterator["pyarrow.Scalar"]:
    """Yield the value of each row.

    Args:
        path: the path, for error messages.
        file: the open file.
        column: the name of the column of texts.

    Raises:
        ValueError: there is not exactly one column of that name, or the file is packed or has dictionaries.
        pyarrow.ArrowException, OSError: it is no stream of Arrow, or damaged.
    """
    import pyarrow

    messages = pyarrow.ipc.MessageReader.open_stream(file)
    try:
        schema = pyarrow.ipc.read_schema(messages.read_next_message())
    except StopIteration:
        raise OSError("it is empty") from None
    if schema.names.count(column) != 1:
        raise UserError(
            f"{path}: expected one column `{column}`; its columns are {', '.join(schema.names)[:800]}; name that of "
            "the texts with --text_column"
        )
    place = schema.names.index(column)
    for message in messages:
        if message.type != "record batch" or _is_packed(message.metadata.to_pybytes()):
            raise UserError(
                f"{path}: expected plain batches of rows, got a packed one or a dictionary; load the data set with "
                "datasets and save it again"
            )
        values = pyarrow.ipc.read_record_batch(message, schema).column(place)
        values.validate(full=True)
        yield from values


def _is_packed(metadata: bytes) -> bool:
    """Whether the description of a batch, a flatbuffer, says that its buffers are compressed; OSError if damaged."""
    try:
        message = struct.unpack_from("<I", metadata)[0]
        place = _field(metadata, message, _HEADER)
        batch = place + struct.unpack_from("<I", metadata, place)[0]
        return _field(metadata, batch, _COMPRESSION) != 0
    except struct.error:
        raise OSError("the description of a batch is damaged") from None


def _field(metadata: bytes, table: int, number: int) -> int:
    """Where a field of a table of a flatbuffer begins; 0 if the table does not have it."""
    fields = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, fields)[0]
    offset = 4 + 2 * number
    inside = struct.unpack_from("<H", metadata, fields + offset)[0] if offset < size else 0
    return table + inside if inside else 0
