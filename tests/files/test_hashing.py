"""bert_training/files/hashing.py: the hashes by which a resumed run recognises its data."""

from bert_training.files.hashing import checksums, digest, sha256

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
