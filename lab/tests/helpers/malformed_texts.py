"""Malformed texts for pre-training and vocabularies, and what independent readers find in them."""

import gzip
import io
import json
import lzma
import random
import zlib
from pathlib import Path

import pyarrow
import pyarrow.parquet

from lab.tests.helpers.malformed import Invalid, require, text_lines
from lab.tests.helpers.mutations import damaged_bytes, damaged_json_lines, damaged_lines, packed

DOCUMENTS = [
    ["The old house stood by the river.", "Its windows were dark, and nobody knew why."],
    ['"Who is there?" she said.', "Grüße aus München, naïve façade.", "日本語の文です。"],
    ["A line\u2028with a separator and \x85 another.", "Emoji \U0001f600 at the end"],
    ["One sentence only."],
    ["First of the last.", "Second, third; and\tfourth.", "The end."],
]


TEXT = ("\n\n".join("\n".join(document) for document in DOCUMENTS) + "\n").encode()


ROWS = [{"id": number, "text": "\n".join(document)} for number, document in enumerate(DOCUMENTS)]


def documents_of(texts: list[str]) -> list[list[str]]:
    """The paragraphs of every text that has some."""
    documents = [[line.strip() for line in text.split("\n") if line.strip()] for text in texts]
    require(any(documents), "no text")
    return [document for document in documents if document]


def oracle_of_text(content: bytes) -> list[list[str]]:
    documents: list[list[str]] = [[]]
    for line in text_lines(content, may_be_one_line=True):
        if line.strip():
            documents[-1].append(line.strip())
        else:
            documents.append([])
    require(any(documents), "no text")
    return [document for document in documents if document]


def texts_of_json_lines(content: bytes) -> list[str]:
    texts = []
    for line in text_lines(content, may_be_one_line=True):
        if line.strip():
            row = one_text(line.strip())
            row.encode()
            texts.append(row)
    require(texts, "no row")
    return texts


def one_text(line: str) -> str:
    """The field ``text`` of a row. What other fields hold is not read, but no field may be there twice."""

    def fields(pairs):
        require(len(dict(pairs)) == len(pairs), "a field twice")
        return dict(pairs)

    row = json.loads(line, object_pairs_hook=fields)
    require(isinstance(row, dict) and isinstance(row["text"], str), "no text")
    return row["text"]


def table(draw: random.Random) -> pyarrow.Table:
    """A table with the texts, and one fault in its columns."""
    texts = [row["text"] for row in ROWS]
    good = pyarrow.array(texts)
    nested = pyarrow.array([[text] for text in texts])
    columns = draw.choice(
        [
            {"text": good},
            {"text": good, "id": pyarrow.array(range(len(texts)))},
            {"text": pyarrow.array(texts, pyarrow.large_string())},
            {"text": good.dictionary_encode()},
            {"text": pyarrow.array([None if draw.random() < 0.3 else text for text in texts])},
            {"text": pyarrow.array([*texts[:-1], ""])},
            {"text": pyarrow.array([text.encode() for text in texts])},
            {"text": nested},
            {"text": pyarrow.array([{"text": text} for text in texts])},
            {"text": pyarrow.array(range(len(texts)))},
            {"text": pyarrow.array([1.5, None, float("nan"), 2.0, 3.0])},
            {"Text": good},
            {"id": good, "content": good},
            {"text": pyarrow.array([], pyarrow.string())},
            {"text": pyarrow.array([b"fine", b"\xff\xfe", b"x"], pyarrow.binary()).view(pyarrow.string())},
        ]
    )
    return pyarrow.table(columns)


def parquet(draw: random.Random) -> bytes:
    """A Parquet file with one fault in its columns, or in its bytes."""
    buffer, whole = io.BytesIO(), draw.random() < 0.4
    source = table(draw) if whole else pyarrow.table({"text": [row["text"] for row in ROWS]})
    compression = draw.choice(["none", "snappy", "gzip", "zstd"])
    pyarrow.parquet.write_table(source, buffer, compression=compression, row_group_size=draw.choice((2, 100)))
    content = buffer.getvalue()
    if whole:
        return content
    if draw.random() < 0.5:  # The footer has the schema, and its length stands before the last four bytes.
        tail = draw.randrange(1, 200)
        return content[:-tail] + damaged_bytes(draw, content[-tail:])
    return damaged_bytes(draw, content)


def texts_of_parquet(content: bytes) -> list[str]:
    try:
        found = pyarrow.parquet.read_table(io.BytesIO(content), use_threads=False)
    except pyarrow.ArrowException as error:
        raise Invalid(str(error)) from error
    require(found.column_names.count("text") == 1, "no column text")
    texts = found.column("text").to_pylist()
    require(texts and all(isinstance(text, str) for text in texts), "no text")
    return texts


def written(folder: Path, draw: random.Random) -> tuple[Path, bytes | None, str]:
    """(file, its content unpacked or None if that is damaged, kind) of a malformed text."""
    kind = draw.choice((".txt", ".txt", ".jsonl", ".jsonl", ".parquet"))
    if kind == ".parquet":
        content = parquet(draw)
    elif kind == ".txt":
        content = damaged_lines(draw, TEXT)
    else:
        content = damaged_json_lines(draw, ROWS)
    suffix = draw.choice(("", "", "", ".gz", ".xz")) if kind != ".parquet" else ""
    path = folder / f"some text{kind}{suffix}"
    if not suffix:
        path.write_bytes(content)
        return path, content, kind
    if draw.randrange(2):
        path.write_bytes(packed(draw, content, suffix, whole=True))
        return path, content, kind
    original = TEXT if kind == ".txt" else b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
    stream = packed(draw, original, suffix)
    path.write_bytes(stream)
    return path, unpacked(stream, suffix), kind


def unpacked(stream: bytes, suffix: str) -> bytes | None:
    """What the file holds by the rules of its format; None if it is damaged."""
    try:
        return gzip.decompress(stream) if suffix == ".gz" else all_streams(stream)
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return None


def all_streams(content: bytes) -> bytes:
    """The content of all streams of an .xz file; ``lzma.decompress`` would leave out what follows a damaged one."""
    parts = []
    while content := content.lstrip(b"\0") if parts else content or b"empty":
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        parts.append(decoder.decompress(content))
        if not decoder.eof:
            raise EOFError
        content = decoder.unused_data
    return b"".join(parts)


def texts_in(content: bytes | None, kind: str) -> list[str]:
    if content is None:
        raise Invalid("damaged packing")
    if kind == ".txt":
        return text_lines(content)
    return texts_of_json_lines(content) if kind == ".jsonl" else texts_of_parquet(content)
