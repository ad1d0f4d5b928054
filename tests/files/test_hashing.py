"""bert_training/files/hashing.py: the hashes by which a resumed run recognises its data."""

import hashlib
import random
from pathlib import Path

import pytest

from bert_training.files.hashing import CHUNK, checksums, digest, sha256

ENDLESS = Path("/proc/self/pagemap")

# The values of FIPS 180-4's examples: SHA-256 of "abc" and of nothing.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_files_have_the_published_hashes(tmp_path):
    for content, expected in ((b"abc", ABC), (b"", NOTHING)):
        (tmp_path / "file").write_bytes(content)
        assert sha256(tmp_path / "file") == expected


def test_a_digest_is_the_hash_of_the_json_text():
    """`printf '{"a": [1, null]}' | sha256sum` gives this value."""
    assert digest({"a": [1, None]}) == "937f1a6767d9081f59ffdda2873ff8eee571a335bc90c73803c4ee809d9cb698"
    assert digest({"a": 1, "b": 2}) != digest({"b": 2, "a": 1})


def test_checksums_are_found_at_any_depth_in_order():
    data = {"train": [{"name": "a", "sha256": "1"}, ({"sha256": "2"},)], "sha256": "3", "rows": 4, "none": None}
    assert checksums(data) == ["1", "2", "3"]
    assert checksums(None) == checksums("sha256") == []


@pytest.mark.skipif(not ENDLESS.exists(), reason="only Linux has this file")
def test_a_file_of_the_system_without_an_end_is_read_as_the_nothing_that_it_says_to_be():
    """``run.json`` from elsewhere may name it as the data of a run, whose hash ``verify`` compares."""
    assert sha256(ENDLESS) == NOTHING


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 1])
def test_the_hash_is_that_of_all_bytes(tmp_path, size):
    content = random.Random(size).randbytes(size)
    (tmp_path / "a").write_bytes(content)
    assert sha256(tmp_path / "a") == hashlib.sha256(content).hexdigest()
