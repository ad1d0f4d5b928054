"""SHA-256 of files and of data, by which a resumed run, a corpus and a report recognise what they were made from."""

import hashlib
import json
from pathlib import Path
from typing import Any


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(content: Any) -> str:
    """SHA-256, in hexadecimal, of data that JSON can hold; the order of keys counts."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def checksums(data: Any) -> list[str]:
    """Every value called ``sha256`` in a nested description of data, in order."""
    if isinstance(data, dict):
        return [v for key, value in data.items() for v in ([value] if key == "sha256" else checksums(value))]
    return [v for value in data for v in checksums(value)] if isinstance(data, list | tuple) else []
