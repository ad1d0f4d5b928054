"""Records from elsewhere: every fault is one line that names the file."""

import pytest

from bert_training.files.json_files import is_plain_name, read_json, read_object


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "run.json:1: not valid JSON at column 2"),
        (b"[" * 200_000, "run.json:1: not valid JSON at column 1 .it is nested too deeply"),
        (b'{"a": "\xff"}', "run.json:1: expected UTF-8 text, got byte 0xff"),
        (b"[1]", "run.json: expected a JSON object, got '.1.'"),
    ],
)
def test_faults_name_the_file(tmp_path, content, message):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_object(tmp_path / "run.json")


def test_a_missing_file_and_a_whole_one(tmp_path):
    with pytest.raises(ValueError, match=r"run.json: cannot be read: No such file"):
        read_json(tmp_path / "run.json")
    (tmp_path / "run.json").write_text('{"é": 1}', encoding="utf-8")
    assert read_object(tmp_path / "run.json") == {"é": 1}


def test_plain_names():
    assert all(map(is_plain_name, ("model.safetensors", "seed-1", "...", "é", "a b")))
    assert not any(map(is_plain_name, ("", ".", "..", "../a", "/a", "a/b", "a\\b", "a\0", None, 1, ["a"])))
