"""Read the checkpoints that TensorFlow 1 wrote, without TensorFlow, which nobody should have to install for one file.

    bert_model.ckpt.index                  a table: name of a variable -> type, shape, file, offset, size, checksum
    bert_model.ckpt.data-00000-of-00001    the bytes of the variables; several such files may share them

The index is a table of LevelDB (https://github.com/google/leveldb/blob/main/doc/table_format.md) whose values are the
protocol buffers of tensorflow/core/protobuf/tensor_bundle.proto. From the end of the file to its beginning:

    footer       48 bytes: where the block of properties and the index block are, padding, a magic number
    index block  last key of a data block -> where that block is
    data blocks  keys in order, each without the beginning that it shares with the one before, and values

Behind every block are 1 byte that says how the block is compressed, and 4 bytes with the checksum of the block and that
byte. Checksums are CRC-32C, rotated and shifted by a constant ("masked"), because data that contains a CRC may itself
be checksummed. Every checksum is verified.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tokenization.errors import UserError

FOOTER = 48  # bytes
# The numbers of tensorflow/core/framework/types.proto -> types of NumPy, which has no bfloat16.
DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 6: "i1", 9: "<i8", 10: "?", 14: "bfloat16", 19: "<f2"}
# Wire types of protocol buffers; the last two have a fixed number of bytes.
VARINT, LENGTH_DELIMITED = 0, 2
FIXED_LENGTHS = {1: 8, 5: 4}
# The numbers of those fields of BundleEntryProto that are numbers -> the fields of ``Variable``.
ENTRY_NUMBERS = {1: "dtype", 3: "shard", 4: "offset", 5: "size", 6: "crc"}


class Variable(NamedTuple):
    """Where a variable is stored.

    Attributes:
        dtype: the number of its type in ``types.proto``.
        shard: the number of the data file, counted from 0.
        offset: the position of its first byte in the data file.
        size: the number of its bytes.
        crc: the masked checksum of its bytes.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int


class TensorFlowCheckpoint:
    """A checkpoint of the second version of TensorFlow's format, "tensor bundle".

    Args:
        prefix: the path without ``.index``, for example ``uncased_L-12_H-768_A-12/bert_model.ckpt``.

    Attributes:
        prefix, index: the paths of the checkpoint and of its index.
        num_shards: the number of data files.
        variables: name -> ``Variable``, in alphabetical order.

    Raises:
        ValueError: the index is damaged, or the checkpoint is of a kind that this class does not read.
        OSError: the index is missing or cannot be read.
    """

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = Path(prefix)
        self.index = self.prefix.with_name(f"{self.prefix.name}.index")
        content = self.index.read_bytes()
        try:
            entries = dict(_table(content))
            header = dict(_fields(entries.pop(b"", b"")))
            if any(key.startswith(b"\0") for key in entries):
                raise _Damaged("it has variables in parts, as a partitioner of TensorFlow leaves them")
            self.variables = {key.decode(): _variable(value) for key, value in entries.items()}
        except (_Damaged, IndexError, struct.error) as error:  # the footer has no checksum
            raise UserError(f"{self.index}: cannot be read ({error}); copy or download the checkpoint again") from None
        self.num_shards = header.get(1, 0)

    def read(self, name: str) -> np.ndarray:
        """The value of a variable; its checksum is verified. bfloat16 becomes float32.

        Raises:
            KeyError: there is no such variable.
            ValueError: the data is damaged or incomplete.
        """
        variable = self.variables[name]
        dtype = DTYPES[variable.dtype]
        stored = np.dtype("<u2" if dtype == "bfloat16" else dtype)
        values = np.frombuffer(self._bytes(name, variable), stored)
        if dtype == "bfloat16":  # the upper half of a float32
            values = (values.astype("<u4") << 16).view("<f4")
        return values.reshape(variable.shape)

    def _bytes(self, name: str, variable: Variable) -> bytes:
        """The stored bytes, whose checksum is verified."""
        path = self.data_file(variable.shard)
        with open(path, "rb") as file:
            file.seek(variable.offset)
            data = file.read(variable.size)
        if masked_crc32c(data) != variable.crc:
            raise UserError(
                f"{path}: damaged or cut short (the checksum of {name} differs); copy or download the checkpoint again"
            )
        return data

    def data_file(self, shard: int) -> Path:
        """The path of data file number ``shard``, counted from 0."""
        return self.prefix.with_name(f"{self.prefix.name}.data-{shard:05}-of-{self.num_shards:05}")


def masked_crc32c(data: bytes) -> int:
    """The CRC-32C of ``data`` as LevelDB and TensorFlow store it."""
    import google_crc32c  # of the extra that reads TensorFlow's files

    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class _Damaged(Exception):
    """Why an index file cannot be read."""


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a LevelDB table."""
    footer = data[-FOOTER:]
    position = 0
    handles = []  # offset and size of the block of properties, then of the index block
    for _ in range(4):
        number, position = _varint(footer, position)
        handles.append(number)
    for _, handle in _block(data, handles[2], handles[3]):
        offset, position = _varint(handle, 0)
        size, _ = _varint(handle, position)
        yield from _block(data, offset, size)


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of one block of a table."""
    content = data[offset : offset + size]  # the byte behind it says how it is compressed: here, never
    if masked_crc32c(data[offset : offset + size + 1]) != struct.unpack_from("<I", data, offset + size + 1)[0]:
        raise _Damaged(f"the checksum of the block at {offset:,} differs")
    # A block ends with the positions of its keys that are stored as a whole, and the number of these: 4 bytes each.
    end = size - 4 - 4 * struct.unpack_from("<I", content, size - 4)[0]
    key, position = b"", 0
    while position < end:
        shared, position = _varint(content, position)
        key_rest, position = _varint(content, position)
        value_size, position = _varint(content, position)
        value_start = position + key_rest
        key = key[:shared] + content[position:value_start]
        position = value_start + value_size
        yield key, content[value_start:position]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of variable length at ``position``, and the position behind it: 7 bits a byte, the lowest first."""
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 127) << shift
        shift, position = shift + 7, position + 1
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a protocol buffer: an int, or bytes for strings and inner messages."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == VARINT:
            value, position = _varint(message, position)
            yield number, value
            continue
        if wire_type == LENGTH_DELIMITED:
            length, position = _varint(message, position)
        else:
            length = FIXED_LENGTHS[wire_type]
        content = message[position : position + length]
        position += length
        yield number, content if wire_type == LENGTH_DELIMITED else int.from_bytes(content, "little")


def _variable(message: bytes) -> Variable:
    """BundleEntryProto of tensor_bundle.proto, whose shape is a TensorShapeProto: the lengths of all dimensions."""
    numbers = dict.fromkeys(ENTRY_NUMBERS.values(), 0)  # a number that is 0 is not stored
    shape: tuple[int, ...] = ()
    for number, value in _fields(message):
        if number == 2:
            shape = tuple(dict(_fields(length)).get(1, 0) for field, length in _fields(value) if field == 2)
        elif number in ENTRY_NUMBERS:
            numbers[ENTRY_NUMBERS[number]] = value
    return Variable(shape=shape, **numbers)
