"""Every fault of a JSON text is one kind of error."""

import json

import pytest

from tokenization.json_text import parse_json


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 100_000, "1" * 5000, "{", "", "NaN x"])
def test_faults_are_one_kind_of_error(text):
    with pytest.raises(json.JSONDecodeError):
        parse_json(text)


def test_json_is_read():
    assert parse_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
