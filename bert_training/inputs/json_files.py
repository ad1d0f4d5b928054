"""Read JSON. Of two fields with one name, ``json.loads`` keeps the last, so that an edited file could lose its rows."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bert_training.inputs.compressed_files import read_text
from tokenization.errors import UserError


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ValueError with file and line if there is none, or it is no JSON."""
    return parse_file(path, read_text(path), "correct it, or copy or download it again")


def parse_file(path: str | Path, text: str, remedy: str) -> Any:
    """The content of a file of JSON, from its text. Raises ValueError with line and column, and the remedy."""
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}:{error.lineno}: not valid JSON at column {error.colno} ({error.msg}); {remedy}"
        ) from None


def read_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that must be an object. Raises ValueError as ``read_json`` does, or if it is none."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(
            f"{path}: expected a JSON object, got {str(content)[:60]!r}; correct it, or copy or download it again"
        )
    return content


def fields_of(path: Path) -> dict[str, Any]:
    """The content of a JSON file that must be an object; {} if there is no such file."""
    return read_object(path) if path.is_file() else {}


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        doubled = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the field {doubled[:40]!r} occurs twice in one object")
    return fields


# json.loads would make a decoder for every text, which takes as long as decoding a line.
_DECODER = json.JSONDecoder(object_pairs_hook=_fields)


def parse_json(text: str) -> Any:
    """The content of a text of JSON.

    Raises:
        json.JSONDecodeError: it is not JSON, or an object has two fields with one name.
    """
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:  # of ``_fields``, int() of thousands of digits, a nest
        if isinstance(error, json.JSONDecodeError):
            raise
        raise json.JSONDecodeError(str(error).partition(";")[0], text, 0) from None
