"""The sizes of the pages of a Parquet file, which precede each page and decide how much memory reading it takes.

What the end of the file says about them may be a lie. A page is preceded by a PageHeader of
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift, in Thrift's compact protocol.
"""

from collections.abc import Iterator
from typing import IO

from tokenization.errors import UserError

UNCOMPRESSED, COMPRESSED = 2, 3  # the numbers of the two fields of a PageHeader that are needed
LIST, SET, MAP, STRUCT = 9, 10, 11, 12  # types of the compact protocol
DEEPEST = 8
_BLOCK = 1 << 12


def unpacked_sizes(file: IO[bytes], start: int, size: int) -> Iterator[int]:
    """Yield the bytes of each page when it is unpacked, for the pages of one column in one group of rows.

    Args:
        start: the position of the first page.
        size: the bytes of all pages with their headers.

    Raises:
        ValueError: a header is damaged.
    """
    end = start + size
    while start < end:
        fields, length = _page_header(file, start, end)
        packed, unpacked = fields.get(COMPRESSED, -1), fields.get(UNCOMPRESSED, -1)
        if packed < 0 or unpacked < 0:
            raise UserError("the header of a page gives no size")
        yield unpacked
        start += length + packed


def _page_header(file: IO[bytes], start: int, end: int) -> tuple[dict[int, int], int]:
    """The numbers in a header, and its length; it holds the smallest and the largest text of the page, so it grows."""
    block = _BLOCK
    while True:
        file.seek(start)
        data = file.read(min(block, end - start))
        try:
            return _struct(data, 0, DEEPEST)
        except IndexError:  # it is longer
            if len(data) < block:
                raise UserError("the header of a page is damaged") from None
            block *= 8


def _struct(data: bytes, place: int, depth: int) -> tuple[dict[int, int], int]:
    """The fields that are whole numbers, by their number, and the place behind the struct; IndexError at the end."""
    fields: dict[int, int] = {}
    number = 0
    while True:
        first, place = data[place], place + 1
        kind, step = first & 15, first >> 4
        if kind == 0:
            return fields, place
        if step:
            number += step
        else:
            number, place = _number(data, place)
        if kind in (4, 5, 6):
            fields[number], place = _number(data, place)
        elif kind > 2:  # truth values have no bytes
            place = _behind(data, place, kind, depth)


def _behind(data: bytes, place: int, kind: int, depth: int) -> int:
    """The place behind a value."""
    if depth == 0:
        raise UserError("the header of a page is nested too deeply")
    if kind in (4, 5, 6):
        return _number(data, place)[1]
    if kind in (7, 8):  # a float of 8 bytes, or text
        length, place = (8, place) if kind == 7 else _unsigned(data, place)
        data[place + length - 1]  # IndexError if it ends behind the data
        return place + length
    if kind == STRUCT:
        return _struct(data, place, depth - 1)[1]
    if kind in (LIST, SET):
        first, place = data[place], place + 1
        count, kind = first >> 4, first & 15
        if count == 15:
            count, place = _unsigned(data, place)
        for _ in range(count):
            place = _behind(data, place, kind, depth - 1) if kind > 2 else place + 1
        return place
    if kind >= MAP:
        raise UserError("the header of a page holds what no header has")
    data[place]  # a byte
    return place + 1


def _unsigned(data: bytes, place: int) -> tuple[int, int]:
    """A number in groups of 7 bits, the lowest first, and the place behind it."""
    value = shift = 0
    while True:
        byte, place = data[place], place + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
        if shift > 63:
            raise UserError("a number in the header of a page has no end")


def _number(data: bytes, place: int) -> tuple[int, int]:
    """A signed number, whose lowest bit is the sign."""
    value, place = _unsigned(data, place)
    return (value >> 1) ^ -(value & 1), place
