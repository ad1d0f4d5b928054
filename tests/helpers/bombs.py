"""Writers of small files that would need much memory or time; lab/tests/faults/test_bombs.py shows that they do not."""

import io
import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from bert_training.files.tensorflow_checkpoint import FOOTER, MAGIC, masked_crc32c


def sparse(path: Path, size: int = 1 << 40, start: bytes = b"") -> Path:
    """A file with a hole, which takes no space on the disk."""
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(size)
    return path


def varint(number: int, length: int = 0) -> bytes:
    """A number in groups of 7 bits; with a length, in more groups than it needs."""
    out = bytearray()
    while number > 127 or len(out) < length - 1:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


# --- pickles --------------------------------------------------------------------------------------------------------


def archive(pickle: bytes, numbers: int = 64, **options: Any) -> bytes:
    """A file of torch with this description, and one storage of so many bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", **options) as file:
        parts = {"data.pkl": pickle, "byteorder": b"little", "data/0": bytes(numbers), "version": b"3\n"}
        for name, part in parts.items():
            file.writestr(f"archive/{name}", part)
    return content.getvalue()


def tensor(elements: int, stride: int, count: int = 16, name: str = "a") -> bytes:
    """The opcodes of a name and a tensor over a storage of ``count`` floats."""
    storage = (
        b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuJ" + struct.pack("<i", count) + b"tQ"
    )
    sizes = b"K\0J" + struct.pack("<i", elements) + b"\x85K" + bytes([stride]) + b"\x85"
    key = b"X" + struct.pack("<I", len(name)) + name.encode()
    return key + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + sizes + b"\x89}tR"


def state(*tensors: bytes) -> bytes:
    """The pickle of a dict with these names and tensors."""
    return b"\x80\x02}(" + b"".join(tensors) + b"u."


def legacy(main: bytes) -> bytes:
    """A file of torch before its version 1.6, without the numbers."""
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}."
    return magic + main + b"\x80\x02]."


def memo_chain(first: bytes, step: bytes, steps: int = 60) -> bytes:
    """Opcodes in which each object holds the one before twice; in ``step``, N stands for its number in the memo."""
    chain = [step.replace(b"N", bytes([number])).replace(b"M", bytes([number + 1])) for number in range(steps)]
    return first + b"q\0" + b"".join(chain)


PICKLES = {
    "a bytearray of 6 GiB": archive(b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\0\0\0\x80\x01\x85R."),
    "a stride of 0": archive(state(tensor(10**9, 0))),
    "a tensor larger than its storage": archive(state(tensor(10**9, 1))),
    "a storage larger than the file": legacy(state(tensor(10**9, 1, 10**9))),
    "names that share their numbers": archive(state(*(tensor(16384, 1, 16384, f"n{n}") for n in range(3000))), 65536),
    "a packed description": archive(b"\x80\x02](" + b"}" * (64 << 20) + b"e.", compression=zipfile.ZIP_DEFLATED),
    "a long description": legacy(b"\x80\x02](" + b"}" * (16 << 20) + b"e."),
    "lists in lists": archive(b"\x80\x02" + memo_chain(b"]", b"]qMhNahNa") + b"."),
    "names that are slow to compare": archive(b"\x80\x02}" + memo_chain(b"K\1", b"hNhN\x86qM") + b"K\1s."),
    "a tensor made by its class": archive(b"\x80\x02ctorch\nFloatTensor\n\x8a\x05\0\0\0\x80\x01\x85R."),
}


# --- TensorFlow ------------------------------------------------------------------------------------------------------


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def _block(entries: bytes) -> bytes:
    content = entries + struct.pack("<II", 0, 1) + b"\0"
    return content + struct.pack("<I", masked_crc32c(content))


def tensorflow(prefix: Path, entries: bytes, numbers: int = 0) -> Path:
    """A checkpoint with this block of entries, and a data file of so many zeros."""
    data = _block(b"\0\0" + varint(2) + _field(1, 1) + entries)
    index = _block(b"\0\1" + varint(len(handle := varint(0) + varint(len(data) - 5))) + b"\xff" + handle)
    places = varint(0) + varint(0) + varint(len(data)) + varint(len(index) - 5)
    footer = places.ljust(FOOTER - 8, b"\0") + struct.pack("<Q", MAGIC)
    prefix.with_name(f"{prefix.name}.index").write_bytes(data + index + footer)
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(bytes(numbers))
    return prefix


def shared_variables(prefix: Path, count: int = 1300, numbers: int = 1 << 22) -> Path:
    """Many variables that are all the same bytes of a file of 4 MiB."""
    crc = varint(6 << 3 | 5) + struct.pack("<I", masked_crc32c(bytes(numbers)))
    value = _field(1, 1) + _field(2, _field(2, _field(1, numbers // 4))) + _field(5, numbers) + crc
    names = [f"bert/encoder/layer_{number:04}/output/dense/bias".encode() for number in range(count)]
    entries = b"".join(b"\0" + varint(len(name)) + varint(len(value)) + name + value for name in names)
    return tensorflow(prefix, entries, numbers)


def growing_names(prefix: Path, count: int = 100_000) -> Path:
    """Names each of which is that of the one before with one more letter, stored in four bytes."""
    return tensorflow(prefix, b"".join(varint(number) + b"\1\0a" for number in range(count)))


# --- Parquet ---------------------------------------------------------------------------------------------------------


def lying_parquet(path: Path, dictionary: bool = False, mebibytes: int = 256, field: str = "uncompressed") -> Path:
    """A file of one long text, whose end says that the text, or its pages, have another size."""
    table = pyarrow.table({"text": ["a" * (mebibytes << 20)]})
    options = {"compression": "zstd", "use_dictionary": dictionary, "write_statistics": False}
    pyarrow.parquet.write_table(table, path, data_page_size=1 << 30, **options)
    column = pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(0)
    content = path.read_bytes()
    body, end = content[: -8 - (length := struct.unpack("<I", content[-8:-4])[0])], content[-8 - length : -8]
    true = 2 * (column.total_uncompressed_size if field == "uncompressed" else column.total_compressed_size)
    said = varint(2 * 1000, len(varint(true))) if field == "uncompressed" else varint(true + (1 << 34))
    assert varint(true) in end
    end = end.replace(varint(true), said)
    path.write_bytes(body + end + struct.pack("<I", len(end)) + b"PAR1")
    return path


# --- tokenizers ------------------------------------------------------------------------------------------------------


def replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(kind: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", kind: [*rules]}


def template(*pieces: dict[str, Any], ids: int = 1) -> dict[str, Any]:
    specials = {"[CLS]": {"id": "[CLS]", "ids": [2] * ids, "tokens": ["[CLS]"] * ids}}
    return {"type": "TemplateProcessing", "single": [*pieces], "pair": [], "special_tokens": specials}


TEXT = {"Sequence": {"id": "A", "type_id": 0}}
CLS = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
GROWING = sequence("normalizers", *[replace("aa", String="a")] * 40)
TABLE = "AAAAAGFh" + "YWFh" * 2000  # an empty trie, and a text of 6,002 letters
TOKENIZERS = {
    "chained replacements": {"normalizer": GROWING},
    "sequences in sequences": {"normalizer": sequence("normalizers", *[sequence("normalizers", GROWING)] * 3)},
    "expressions that match nothing": {"normalizer": sequence("normalizers", *[replace("a", Regex="")] * 40)},
    "one long replacement": {"normalizer": replace("a" * 5000, String="a")},
    "a long prefix": {"normalizer": {"type": "Prepend", "prepend": "a" * 5000}},
    "a table of long texts": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAGFh" + "YWFh" * 2000}
    },
    "an unknown rule": {"normalizer": {"type": "Repeat"}},
    "growing when it is decoded": {"decoder": sequence("decoders", *[replace("aa", String="a")] * 40)},
    "a text that is repeated": {"post_processor": template(*[TEXT] * 100)},
    "repeated again and again": {"post_processor": sequence("processors", *[template(CLS, TEXT, CLS)] * 40)},
    "many special tokens": {"post_processor": template(CLS, TEXT, ids=10_000)},
    "long words": {"model": {"type": "WordPiece", "max_input_chars_per_word": 10**9}},
    "a long prefix of pieces": {"model": {"type": "WordPiece", "continuing_subword_prefix": "#" * 10**5}},
}


def edit_tokenizer(path: Path, change: dict[str, Any]) -> None:
    """Replace parts of a tokenizer.json; those of ``model`` are added to the model."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content |= {name: content["model"] | value if name == "model" else value for name, value in change.items()}
    path.write_text(json.dumps(content), encoding="utf-8")


def link_to(path: Path, target: str) -> Path:
    os.symlink(target, path)
    return path
