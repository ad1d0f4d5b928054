"""Seeded mutations of valid files: of their bytes, their lines, their tables and their JSON.

Every function takes a ``random.Random`` and the content of a valid file, and returns the content of a file with one
fault. Some faults leave the file valid, with the same rows or with others.
"""

import copy
import gzip
import json
import lzma
import random
from collections.abc import Callable
from typing import Any

INSERTED = [
    b"\t",
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b'"',
    b'""',
    b",",
    b"\x00",
    b"\xff",
    b"\xe2\x80",  # the beginning of a character
    b"\xed\xa0\x80",  # half a surrogate pair, as UTF-8 would spell it
    b"\xf4\x90\x80\x80",  # beyond the last code point
    b"\xc0\xaf",  # an overlong slash
    "\ufeff".encode(),
    "\u2028".encode(),
    "\x85".encode(),
    b"\x1a",
    b"\x1b[31m",
]


def damaged_bytes(draw: random.Random, content: bytes) -> bytes:
    """One fault in the bytes of a file of any kind."""
    place = draw.randrange(len(content) + 1)
    size = draw.choice((1, 1, 2, 7, 40))
    changes: list[Callable[[], bytes]] = [
        lambda: content[:place] + draw.choice(INSERTED) + content[place:],
        lambda: content[:place] + bytes([draw.randrange(256)]) + content[place + 1 :],
        lambda: content[:place] + content[place + size :],
        lambda: content[:place],
        lambda: content[place:],
        lambda: content[:place] + bytes(size) + content[place + size :],
        lambda: content[:place] + draw.randbytes(size) + content[place:],
        lambda: content + content,
        lambda: content + draw.randbytes(size),
        lambda: b"",
    ]
    return draw.choice(changes)()


def damaged_lines(draw: random.Random, content: bytes) -> bytes:
    """One fault in a text: in a line, in the order of the lines, in their ends, or in the encoding."""
    lines = content.split(b"\n")
    number, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    line, text = lines[number], content.decode("utf-8-sig")
    place = draw.randrange(len(line) + 1)

    def with_line(*new: bytes) -> bytes:
        return b"\n".join([*lines[:number], *new, *lines[number + 1 :]])

    def swapped() -> bytes:
        changed = list(lines)
        changed[number], changed[other] = changed[other], changed[number]
        return b"\n".join(changed)

    inserted = [with_line(line[:place] + new + line[place:]) for new in INSERTED]
    return draw.choice(
        [
            *inserted,
            *(with_line(line[:place] + bytes([draw.randrange(128, 256)]) + line[place:]) for _ in range(3)),
            with_line(),
            with_line(b""),
            with_line(b" \t "),
            with_line(line, line),
            with_line(line + line),
            with_line(line[::-1]),
            with_line(line[:place]),
            with_line(line[:place], line[place:]),
            with_line(line[:place] + b"x" * 2_000_000 + line[place:]),
            with_line(*lines[number : number + 1] * 50),
            swapped(),
            content.replace(b"\n", b"\r"),
            content.replace(b"\n", b"\r\n"),
            content.replace(b"\n", b"\n\n"),
            content.removesuffix(b"\n"),
            content + b"\n\n\n",
            b"\n" + content,
            b"\xef\xbb\xbf" + content,
            b"\xef\xbb\xbf\xef\xbb\xbf" + content,
            text.encode("utf-16"),
            text.encode("utf-16-be"),
            text.encode("utf-32"),
            text.encode("latin-1", "replace"),
            text.encode("cp1252", "replace"),
        ]
    )


def damaged_table(draw: random.Random, content: bytes, separator: bytes) -> bytes:
    """One fault in a table whose fields are not quoted: in a field, a row, a column or the header."""
    rows = [line.split(separator) for line in content.rstrip(b"\n").split(b"\n")]
    number, width = draw.randrange(len(rows)), len(rows[0])
    first, second = draw.randrange(width), draw.randrange(width)
    values = [b"", b" ", b"2", b"-1", b"nan", b"1e999", b"0x1", b"1_0", b"true", b"NULL", b" 1", b"1 ", b"9" * 400]
    values += ["\u0661".encode(), "１".encode(), b"entailment ", b"x" * 70_000, b'"', b'"a', b'a"b"', b"#"]

    def in_row(change: Callable[[list[bytes]], list[bytes]]) -> list[list[bytes]]:
        return [change(list(row)) if at == number else row for at, row in enumerate(rows)]

    def in_all(change: Callable[[list[bytes]], list[bytes]]) -> list[list[bytes]]:
        return [change(list(row)) for row in rows]

    def dropped(row: list[bytes]) -> list[bytes]:
        return row[:first] + row[first + 1 :]

    def doubled(row: list[bytes]) -> list[bytes]:
        return [*row[: first + 1], *row[first:]]

    def swapped(row: list[bytes]) -> list[bytes]:
        one, other = first % len(row), second % len(row)  # a line of a quoted field may have fewer parts
        row[one], row[other] = row[other], row[one]
        return row

    def replaced(row: list[bytes]) -> list[bytes]:
        row[first % len(row)] = draw.choice(values)
        return row

    def last_replaced(row: list[bytes]) -> list[bytes]:
        row[-1] = draw.choice(values)
        return row

    def header(change: Callable[[list[bytes]], list[bytes]]) -> list[list[bytes]]:
        return [change(list(rows[0])), *rows[1:]]

    def renamed(row: list[bytes]) -> list[bytes]:
        row[first] = draw.choice([b"", b"label", row[first].upper(), b" " + row[first], row[second], b"text"])
        return row

    changed = draw.choice(
        [
            *(in_row(change) for change in (dropped, doubled, swapped, replaced, replaced, last_replaced)),
            in_row(lambda row: [separator.join(row).replace(separator, draw.choice([b" ", b";", b"|"]))]),
            in_row(lambda row: [*row, b""]),
            *(in_all(change) for change in (dropped, doubled, swapped)),
            *(header(change) for change in (dropped, doubled, swapped, renamed, renamed)),
            rows[1:],
            rows[:1],
            [rows[0], *rows],
            [*rows, *rows],
            [rows[0], *draw.sample(rows[1:], len(rows) - 1)],
        ]
    )
    return b"\n".join(separator.join(row) for row in changed) + b"\n"


# --- JSON ------------------------------------------------------------------------------------------------------------

RAW = "@raw@"  # stands in the tree for a text that json.dumps would not write
TOKENS = ["null", "true", "false", "NaN", "-Infinity", "1e999", "-1", "0", "1.0", "0.5", "1e3", "7" * 5000]
TOKENS += [
    "-" + "9" * 30,
    '""',
    '"x"',
    '"7"',
    "[]",
    "{}",
    "[[]]",
    '{"text": "x"}',
    "[null]",
    '"\\ud800"',
    "[" * 100_000,
]
TOKENS += ["'x'", "undefined", "01", "+1", ".5", '"\\x"', '"\t"', '"\\u0000"', "{" * 3000]


def places_in(tree: Any) -> list[tuple[Any, Any]]:
    """(holder, key or position) of every value below the root."""
    found: list[tuple[Any, Any]] = []
    if isinstance(tree, dict | list):
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        for key in keys:
            found.append((tree, key))
            found += places_in(tree[key])
    return found


def damaged_json(draw: random.Random, tree: Any, **options: Any) -> bytes:
    """The text of a JSON document with one fault at a random place; ``options`` are those of json.dumps."""
    tree = copy.deepcopy(tree)
    places = places_in(tree)
    holder, key = draw.choice(places)
    value, raw = holder[key], ""
    kind = draw.choice(("token", "token", "token", "shifted", "removed", "doubled", "renamed", "swapped", "wrapped",
                        "text", "added", "key twice"))  # fmt: skip
    if kind == "shifted" and type(value) is int:
        holder[key] = value + draw.choice((-1, 1, 7, -(10**9), 2**63))
    elif kind == "removed":
        del holder[key]
    elif kind == "doubled" and isinstance(holder, list):
        holder.insert(draw.randrange(len(holder) + 1), copy.deepcopy(value))
    elif kind == "renamed" and isinstance(holder, dict):
        holder[draw.choice([f"{key} ", key.upper(), "", key[:-1]])] = holder.pop(key)
    elif kind == "swapped":
        other, at = draw.choice(places)
        other[at], holder[key] = copy.deepcopy(holder[key]), copy.deepcopy(other[at])
    elif kind == "wrapped":
        holder[key] = draw.choice([[value], {"x": value}, json.dumps(value)])
    elif kind == "text" and isinstance(value, str):
        place = draw.randrange(len(value) + 1)
        new = draw.choice(["\ud83d", "\u0000", "\r", "\n", "\u2028", "e\u0301", "é", "\U0001f600", " ", "", "x" * 9])
        holder[key] = value[:place] + new + value[place + draw.randrange(2) :]
    elif kind == "added" and isinstance(holder, dict):
        holder[draw.choice(["x", "text", "label", "id", "é"])] = draw.choice([1, "x", None])
    elif kind == "key twice" and isinstance(holder, dict):
        raw = f"{json.dumps(value)}, {json.dumps(key)}: {draw.choice([json.dumps(value), 'null', '[]'])}"
        holder[key] = RAW
    else:
        raw, holder[key] = draw.choice(TOKENS), RAW
    # A holder that was swapped into itself has lost the mark with it, which is a fault as well.
    text = json.dumps(tree, **options).replace(f'"{RAW}"', raw)
    return text.encode(errors="surrogatepass")


def damaged_json_lines(draw: random.Random, rows: list[Any]) -> bytes:
    """JSON lines with one fault in one of the objects, or in the lines."""
    lines = [json.dumps(row, ensure_ascii=bool(draw.randrange(2))).encode() for row in rows]
    if draw.random() < 0.35:
        return damaged_lines(draw, b"\n".join(lines) + b"\n")
    number = draw.randrange(len(lines))
    lines[number] = draw.choice(
        [
            *(damaged_json(draw, rows[number]) for _ in range(8)),
            lines[number][:-1],
            lines[number] + b",",
            lines[number] + lines[number],
            b"[" + lines[number] + b"]",
            b"{}",
            b"// comment",
            lines[number].replace(b'"', b"'"),
            json.dumps(rows[number], indent=1).encode(),
        ]
    )
    return b"\n".join(lines) + b"\n"


# --- packed files ----------------------------------------------------------------------------------------------------


def packed(draw: random.Random, content: bytes, suffix: str, whole: bool = False) -> bytes:
    """The content as .gz or .xz, in one or two streams and, unless ``whole``, damaged."""
    place = draw.randrange(len(content) + 1)

    def pack(part: bytes) -> bytes:
        return gzip.compress(part, 1, mtime=0) if suffix == ".gz" else lzma.compress(part, preset=0)

    stream = pack(content[:place]) + pack(content[place:]) if draw.randrange(2) else pack(content)
    return stream if whole else damaged_bytes(draw, stream)
