"""Every fault of a JSON text is one kind of error."""

import json

import pytest

from bert_training.files.json_text import parse_json


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 100_000, "1" * 5000, "{", "", "NaN x"])
def test_faults_are_one_kind_of_error(text):
    with pytest.raises(json.JSONDecodeError):
        parse_json(text)


def test_json_is_read():
    assert parse_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}


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
