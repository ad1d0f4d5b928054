"""SHA-256 of files and of data, by which resumed runs, corpora and reports recognise the data they were made from."""

import hashlib
import json
from pathlib import Path
from typing import Any


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(content: Any) -> str:
    """SHA-256, in hexadecimal, of data that JSON can represent; it depends on the order of keys."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def checksums(data: Any) -> list[str]:
    """Every value with the key ``sha256`` in a nested description of data, in order."""
    if isinstance(data, dict):
        parts = [[value] if key == "sha256" else checksums(value) for key, value in data.items()]
    else:
        parts = [checksums(value) for value in data] if isinstance(data, list | tuple) else []
    return [checksum for part in parts for checksum in part]
