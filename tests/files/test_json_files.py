"""Every fault of a JSON text is one kind of error, and every fault of a file is one line that names it."""

import json

import pytest

from bert_training.files.json_files import is_plain_name, parse_json, read_json, read_object


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


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 100_000, "1" * 5000, "{", "", "NaN x"])
def test_faults_are_one_kind_of_error(text):
    with pytest.raises(json.JSONDecodeError):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{"a": 1, "a": 2}', 1, 1),
        ('{"data": [\n {"x": 1},\n {"paragraphs": [], "paragraphs": [1]}]}', 3, 2),
        ('{"b": {"te\\u0078t": 1, "text": 1}}', 1, 7),
    ],
)
def test_a_field_that_occurs_twice_is_refused_with_the_place_of_its_object(text, line, column):
    """``json.loads`` keeps the last one, so that all rows of the first would be lost."""
    with pytest.raises(json.JSONDecodeError, match="occurs twice in one object") as caught:
        parse_json(text)
    assert (caught.value.lineno, caught.value.colno) == (line, column)


def test_a_field_that_occurs_twice_among_a_hundred_thousand_is_found_without_comparing_all_pairs():
    names = ", ".join(f'"{number}": 0' for number in range(100_000))
    with pytest.raises(json.JSONDecodeError, match="the field '99999' occurs twice"):
        parse_json(f'{{{names}, "99999": 1}}')


def test_numbers_that_are_not_json_are_refused_on_demand():
    assert parse_json('{"a": Infinity}') == {"a": float("inf")}
    with pytest.raises(json.JSONDecodeError, match="Infinity is no number of JSON"):
        parse_json('{"a": Infinity}', strict=True)
