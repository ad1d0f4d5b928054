"""Every reader reads a packed file to its end or refuses it by name."""

import bz2
import gzip
import itertools
import json
import lzma
import re
from pathlib import Path

import numpy as np
import pytest

from bert_training.inputs.reading import kind_of, numbered_lines, read_text
from bert_training.inputs.rows import Column, read_rows
from bert_training.inputs.texts import read_documents
from bert_training.tasks.ner.sources import read_file
from bert_training.tasks.squad.questions import read_squad

try:
    from backports import zstd
except ImportError:
    zstd = None  # from Python 3.14 on, compression.zstd


def _zst(content: bytes) -> bytes:
    return zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: 1})


PACKERS = {".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress} | ({".zst": _zst} if zstd else {})
needs_zstd = pytest.mark.skipif(zstd is None, reason="needs backports.zstd")
WORDS = ["the dog sat .", "a bird sang !", "it was far ,", "one red house ."]
ROWS = [f"{WORDS[n * n % 4]} {n * 7919 % 100_003}" for n in range(120)]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".!,", "dog", "bird", "the", "a", *"0123456789"]


def squad_json() -> str:
    qas = [
        {"id": f"q{n}", "question": row, "answers": [{"text": "dog", "answer_start": 4}]} for n, row in enumerate(ROWS)
    ]
    return json.dumps({"data": [{"title": "t", "paragraphs": [{"context": WORDS[0], "qas": qas}]}]})


def parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"text": ROWS}), sink)
    return sink.getvalue().to_pybytes()


def columns(path: Path) -> dict[str, list]:
    return read_rows(path, [Column("text", ("text",))]).data[:]


TEXT = "\n\n".join(ROWS) + "\n"
JSON_LINES = "".join(json.dumps({"text": row}) + "\n" for row in ROWS)
TABLE = "id\ttext\n" + "".join(f"{n}\t{row}\n" for n, row in enumerate(ROWS))
READERS = {
    # For every reader: the name of a file, its content, and a function that reads it into something comparable.
    "pre-training text": ("a.txt", TEXT, lambda path: list(read_documents([path]))),
    "pre-training rows": ("a.jsonl", JSON_LINES, lambda path: list(read_documents([path]))),
    "pre-training parquet": ("a.parquet", parquet(), lambda path: list(read_documents([path]))),
    "csv": ("a.csv", TABLE.replace(",", ";").replace("\t", ","), columns),
    "jsonl": ("a.jsonl", JSON_LINES, columns),
    "squad": ("a.json", squad_json(), read_squad),
    "ner": ("a.txt", "".join(f"w{n} O\n\n" for n in range(120)), lambda path: read_file(path).sentences),
}


@pytest.mark.parametrize(("reader", "suffix"), [*zip(READERS, itertools.cycle([".xz", ".gz", ".bz2", ".zst"]))])
def test_a_damaged_file_is_read_whole_or_refused_by_name(tmp_path, reader, suffix):
    """One byte is changed or the end is cut off, anywhere in the file. Every reader has its own seed."""
    name, content, read = READERS[reader]
    content = content if isinstance(content, bytes) else content.encode()
    if suffix not in PACKERS:
        pytest.skip("needs backports.zstd")
    packed = PACKERS[suffix](content)
    rng = np.random.default_rng([*READERS].index(reader))
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(packed)
    whole = read(path)
    (tmp_path / name).write_bytes(content)
    assert _without_paths(whole) == _without_paths(read(tmp_path / name))
    offsets = [*range(1, 12), *rng.integers(1, len(packed), size=20).tolist()]
    refused, by_its_damage = 0, 0
    for number, offset in enumerate(offsets * 2):
        damaged = bytearray(packed)
        if number < len(offsets):
            damaged[offset] ^= int(rng.integers(1, 256))
        else:
            del damaged[offset:]
        path.write_bytes(damaged)
        try:
            content_read = read(path)
        except ValueError as error:
            refused += 1
            assert str(error).startswith(str(path)), error
            # The checksum follows the data, so a changed word may be refused before the checksum is read.
            by_its_damage += "damaged" in str(error)
        else:
            assert _without_paths(content_read) == _without_paths(whole), offset
    assert refused > len(offsets) and by_its_damage > 0.8 * refused


def _without_paths(content) -> str:
    return re.sub(r"\.(xz|gz|bz2|zst)\b", "", repr(content))


def test_other_unreadable_files_are_refused(tmp_path):
    assert [kind_of(name) for name in ("a.txt", "b.jsonl.gz", "c.tsv.xz", "d.xz")] == [".txt", ".jsonl", ".tsv", ""]
    with pytest.raises(OSError, match=r"No such file or directory: '.*no\.txt'"):
        read_text(tmp_path / "no.txt")
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbffine\r\nnot \xff\n")
    wanted = r"a\.txt:2: expected UTF-8 text, got byte 0xff at column 5; convert the file to UTF-8"
    for read in (read_text, lambda path: [*numbered_lines(path)]):
        with pytest.raises(ValueError, match=wanted):
            read(path)
    path.write_bytes(b"\xef\xbb\xbf\xff")
    for read in (read_text, lambda path: [*numbered_lines(path)]):
        with pytest.raises(ValueError, match=r"a\.txt:1: expected UTF-8 text, got byte 0xff at column 1;"):
            read(path)


@pytest.mark.parametrize("suffix", [".xz", ".gz", ".bz2", pytest.param(".zst", marks=needs_zstd)])
def test_streams_and_frames_follow_each_other_and_none_may_be_cut(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    first, second = PACKERS[suffix](b"one\ntwo\n"), PACKERS[suffix](b"three\n")
    path.write_bytes(first + second)
    assert [text for _, text in numbered_lines(path)] == ["one", "two", "three"]
    path.write_bytes(first + second[:-3])
    with pytest.raises(ValueError, match=rf"a\.txt{suffix}: damaged {suffix} file \(.*\); download or pack it again"):
        [*numbered_lines(path)]
