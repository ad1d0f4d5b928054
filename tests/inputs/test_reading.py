"""Packed files are read to their end or refused by name."""

import bz2
import gzip
import lzma

import pytest

from bert_training.inputs.reading import kind_of, numbered_lines, read_text

try:
    from backports import zstd
except ImportError:
    zstd = None  # from Python 3.14 on, compression.zstd


def _zst(content: bytes) -> bytes:
    return zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: 1})


PACKERS = {".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress} | ({".zst": _zst} if zstd else {})
needs_zstd = pytest.mark.skipif(zstd is None, reason="needs backports.zstd")


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
