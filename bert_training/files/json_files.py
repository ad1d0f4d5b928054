"""Read JSON that was written by this project, or by a stranger in its place: folders of runs are passed on."""

import json
from pathlib import Path
from typing import Any

from bert_training.files.json_text import parse_json
from bert_training.files.small_files import read_small_text
from tokenization.errors import UserError


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        ValueError: there is no such file, it is no JSON, is nested too deeply or is larger than a small file may be
            (``bert_training/files/small_files.py``); the message names file and line.
    """
    try:
        return parse_json(read_small_text(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; check the path") from None
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}:{error.lineno}: not valid JSON at column {error.colno} ({error.msg}); correct it, or copy or "
            "download it again"
        ) from None


def read_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that must be an object. Raises ValueError as ``read_json`` does, or if it is none."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(
            f"{path}: expected a JSON object, got {str(content)[:60]!r}; correct it, or copy or download it again"
        )
    return content


def is_plain_name(name: object) -> bool:
    """Whether a name that a file of unknown origin gives is that of a file or folder beside it, and no path."""
    return isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\\0")
