"""Every fault of a JSON text is one kind of error, and every fault of a file is one line that names it."""

import json

import pytest

from bert_training.files.hashing import is_plain_name
from bert_training.inputs.json_files import parse_json, read_object


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "run.json:1: not valid JSON at column 2"),
        (b'{"a": "\xff"}', "run.json:1: expected UTF-8 text, got byte 0xff"),
        (b"[1]", "run.json: expected a JSON object, got '.1.'"),
    ],
)
def test_faults_name_the_file(tmp_path, content, message):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_object(tmp_path / "run.json")


def test_plain_names():
    assert all(map(is_plain_name, ("model.safetensors", "seed-1", "...", "é", "a b")))
    assert not any(map(is_plain_name, ("", ".", "..", "../a", "/a", "a/b", "a\\b", "a\0", None, 1, ["a"])))


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"b": {"te\\u0078t": 1, "text": 1}}]'])
def test_a_field_that_occurs_twice_is_refused(text):
    """``json.loads`` keeps the last one, so that all rows of the first would be lost."""
    with pytest.raises(json.JSONDecodeError, match=r"the field '(a|text)' occurs twice in one object"):
        parse_json(text)
