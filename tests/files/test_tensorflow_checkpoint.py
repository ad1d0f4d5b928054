"""TensorFlow's checkpoints are read as TensorFlow wrote them, and damaged or hostile files are refused."""

import itertools
import json
import shutil
import struct
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from bert_training.files.tensorflow_checkpoint import FOOTER, MAGIC, TensorFlowCheckpoint, masked_crc32c
from tests.helpers.repository import ROOT

pytest.importorskip("google_crc32c")
WRITTEN = ROOT / "tests" / "data" / "tensorflow"
FOLDERS = ("pretrained", "several_files", "in_parts")
MEMORY = 32_000_000  # bytes; the files have some 100 kB, and threads that earlier tests left behind are counted as well


def content(folder: Path) -> dict[str, np.ndarray]:
    """All variables except those of the optimiser."""
    checkpoint = TensorFlowCheckpoint(folder / "bert_model.ckpt")
    wanted = [name for name in checkpoint.variables if "adam" not in name and name != "global_step"]
    return {name: checkpoint.read(name) for name in wanted}


@pytest.mark.parametrize("folder", FOLDERS)
def test_values_are_those_that_tensorflow_stored(folder):
    """TensorFlow computed the sums. Three folders have the same variables: in one file, in three files and in parts."""
    tensors, sums = content(WRITTEN / folder), json.loads((WRITTEN / "sums.json").read_text())
    assert tensors.keys() == sums.keys()
    for name, total in sums.items():
        assert tensors[name].dtype == np.float32 and tensors[name].astype(np.float64).sum() == pytest.approx(
            total, rel=1e-9
        )
    first = content(WRITTEN / FOLDERS[0])
    assert all(np.array_equal(tensors[name], first[name]) for name in first)


def test_the_step_is_an_integer():
    assert TensorFlowCheckpoint(WRITTEN / "pretrained" / "bert_model.ckpt").read("global_step") == 0


def test_a_checkpoint_of_objects_is_refused():
    with pytest.raises(ValueError, match=r"objects/model\.ckpt: an object-based checkpoint of TensorFlow 2; expected"):
        TensorFlowCheckpoint(WRITTEN / "objects" / "model.ckpt")


def test_the_package_for_checksums_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(ValueError, match="pip install google-crc32c"):
        TensorFlowCheckpoint(WRITTEN / "pretrained" / "bert_model.ckpt")


@pytest.mark.parametrize("seed", range(40))
def test_damage_is_found(tmp_path, seed):
    """A bit is changed, the end is cut off, other bytes are written, or two files are exchanged. Either this has no
    effect, or an error names the file.

    It may have no effect because the footer contains padding.
    """
    random = np.random.default_rng(seed)
    folder = tmp_path / "copy"
    shutil.copytree(WRITTEN / FOLDERS[1 + seed % 2], folder)
    before = content(folder)
    files = sorted(folder.glob("bert_model.ckpt.*"))
    path = files[seed // 2 % len(files)]
    data = bytearray(path.read_bytes())
    place = int(random.integers(len(data)))
    how = ("flip", "cut", "overwrite", "insert", "exchange")[seed // 4 % 5]
    if how == "flip":
        data[place] ^= 1 << int(random.integers(8))
    elif how == "cut":
        del data[place:]
    elif how == "overwrite":
        data[place : place + 8] = random.bytes(len(data[place : place + 8]))
    elif how == "insert":
        data[place:place] = random.bytes(int(random.integers(1, 9)))
    else:
        data = bytearray(files[(files.index(path) + 1) % len(files)].read_bytes())
    path.write_bytes(data)
    tracemalloc.start()
    try:
        after = content(folder)
    except ValueError as error:
        assert "bert_model.ckpt" in str(error) and "\n" not in str(error)
    else:
        assert path.suffix == ".index" and place >= len(data) - FOOTER
        assert all(np.array_equal(before[name], after[name]) for name in before)
    finally:
        assert tracemalloc.get_traced_memory()[1] < MEMORY
        tracemalloc.stop()


def varint(number: int) -> bytes:
    """The bytes of a number in a protocol buffer or a LevelDB table."""
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number: int, value: int | bytes) -> bytes:
    """The bytes of a field in a protocol buffer."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def entry(dtype=1, shape=(2, 2), shard=0, offset=0, size=16, more=b"") -> bytes:
    """The entry of a variable in an index, with the checksum of 16 zeros."""
    dims = b"".join(field(2, field(1, length)) for length in shape)
    crc = varint(6 << 3 | 5) + struct.pack("<I", masked_crc32c(bytes(16)))
    return field(1, dtype) + field(2, dims) + field(3, shard) + field(4, offset) + field(5, size) + crc + more


def block(pairs: list[tuple[bytes, bytes]], kind: int = 0, restarts: int = 1, shared: int = 0) -> bytes:
    body = b"".join(varint(shared) + varint(len(k)) + varint(len(v)) + k + v for k, v in pairs)
    body += struct.pack("<I", 0) + struct.pack("<I", restarts) + bytes([kind])
    return body + struct.pack("<I", masked_crc32c(body))


def write(folder: Path, pairs: list[tuple[bytes, bytes]], header: bytes | None = None, **how) -> Path:
    """Write an index with the given content and correct checksums, and a data file of 16 zeros."""
    data = block([(b"", field(1, 1) if header is None else header), *pairs], **how)
    index = block([(b"\xff", varint(0) + varint(len(data) - 5))])
    places = varint(0) + varint(0) + varint(len(data)) + varint(len(index) - 5)
    footer = places.ljust(FOOTER - 8, b"\0") + struct.pack("<Q", MAGIC)
    (folder / "x.index").write_bytes(data + index + footer)
    (folder / "x.data-00000-of-00001").write_bytes(bytes(16))
    return folder / "x"


def test_what_the_helper_writes_can_be_read(tmp_path):
    """If it could not be read, the next test would prove nothing."""
    checkpoint = TensorFlowCheckpoint(write(tmp_path, [(b"a", entry())]))
    assert np.array_equal(checkpoint.read("a"), np.zeros((2, 2), np.float32))


def part(*extents: tuple[int, int]) -> bytes:
    return field(7, b"".join(field(1, field(1, start) + field(2, length)) for start, length in extents))


HOSTILE = {
    "too large a shape": ([(b"a", entry(shape=(1 << 39, 1 << 39)))], {}, "needs .* bytes, 16 are stored"),
    "a negative length": ([(b"a", entry(shape=((1 << 64) - 1,)))], {}, "a variable has the shape"),
    "too large a size": (
        [(b"a", entry(shape=(1 << 38,), size=1 << 40))],
        {},
        "cut short, or damaged: by the index",
    ),
    "an offset behind the end": ([(b"a", entry(offset=1 << 62))], {}, "cut short"),
    "no such data file": ([(b"a", entry(shard=7))], {}, "x.data-00007-of-00001: not found"),
    "a string": ([(b"a", entry(dtype=7))], {}, "a type that is not supported"),
    "no data files": ([(b"a", entry())], {"header": field(1, 0)}, "got 0"),
    "billions of data files": ([(b"a", entry())], {"header": field(1, 1 << 40)}, "expected a header"),
    "text for the number of data files": ([(b"a", entry())], {"header": field(1, b"1")}, "text where a number"),
    "big-endian": ([(b"a", entry())], {"header": field(1, 1) + field(2, 1)}, "big-endian"),
    "a name that is not UTF-8": ([(b"\xff\xfe", entry())], {}, "not UTF-8"),
    "keys out of order": ([(b"b", entry()), (b"a", entry())], {}, "not in order"),
    "a compressed block": ([(b"a", entry())], {"kind": 1}, "is compressed"),
    "too many restart points": ([(b"a", entry())], {"restarts": 1 << 31}, "restart points"),
    "a key that shares too much": ([(b"a", entry())], {"shared": 9}, "longer than the block"),
    "a number without an end": ([(b"a", b"\x80" * 20)], {}, "a number has no end"),
    "an unknown wire type": ([(b"a", b"\x0f")], {}, "unknown wire type 7"),
    "a message that is too long": ([(b"a", b"\x12\x7f")], {}, "longer than its entry"),
    "text for a number": ([(b"a", field(4, b"x"))], {}, "text where a number"),
    "a number for a message": ([(b"a", field(2, 5))], {}, "a number where a message"),
    "a part that is missing": ([(b"a", entry(more=part((0, 1), (0, 2))))], {}, "a part of a is missing"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_indices_are_refused(tmp_path, name):
    """The checksums are right but the content is wrong. No memory of the size that it claims is allocated."""
    pairs, how, message = HOSTILE[name]
    prefix = write(tmp_path, pairs, **how)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as caught:
            TensorFlowCheckpoint(prefix).read("a")
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 10, FOOTER])
def test_a_file_that_is_not_a_table_is_refused(tmp_path, size):
    (tmp_path / "x.index").write_bytes(bytes(size))
    with pytest.raises(ValueError, match=r"x\.index: damaged"):
        TensorFlowCheckpoint(tmp_path / "x")


@pytest.mark.realdata
def test_the_index_of_a_published_checkpoint(real_data):
    """In Google's Chinese BERT-Base all checksums of blocks are right, and the variables are those of the network."""
    checkpoint = TensorFlowCheckpoint(real_data / "assets" / "chinese_L-12_H-768_A-12.bert_model.ckpt")
    assert len(checkpoint.variables) == 206
    variable = checkpoint.variables["bert/embeddings/word_embeddings"]
    assert variable.shape == (21128, 768) and variable.size == 21128 * 768 * 4
    ends = sorted((v.offset, v.offset + v.size) for v in checkpoint.variables.values())
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(ends))  # There is no gap and no overlap.
