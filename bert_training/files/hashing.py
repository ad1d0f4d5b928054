"""SHA-256 of files and of data, by which resumed runs, corpora and reports recognise the data they were made from.

A finished run leaves ``hashes.json`` in its folder, with the SHA-256 of every file that it wrote there. Not covered are
files that others write (``NOT_OF_THE_RUN``) and sub-folders other than ``FOLDERS`` and ``MODULES``: checkpoints, which
have a ``manifest.json`` of their own, the records of the tracker, and whatever else, such as another run.
"""

import fnmatch
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenization.errors import UserError

HASHES = "hashes.json"
FOLDERS = ("corpus", "adapter")
MODULES = "[0-9]_[A-Z]*"  # the folders of sentence-transformers' modules, such as 1_Pooling
# Patterns of names: hidden files (such as those of git and of the Hub's downloads), what the user redirected into the
# folder, and unfinished drafts.
NOT_OF_THE_RUN = (".*", "*.log", "*.out", "*.err", "*.tmp", "*.incomplete")


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(content: Any) -> str:
    """SHA-256, in hexadecimal, of data that JSON can represent; it depends on the order of keys."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def checksums(data: Any) -> list[str]:
    """Every value with the key ``sha256`` in a nested description of data, in order.

    Where there is no ``sha256``, that of rows of the Hub, which have no file, is taken: ``content_sha256``.
    """
    if isinstance(data, dict):
        taken = "sha256" if "sha256" in data else "content_sha256"
        parts = [[value] if key == taken else checksums(value) for key, value in data.items()]
    else:
        parts = [checksums(value) for value in data] if isinstance(data, list | tuple) else []
    return [checksum for part in parts for checksum in part]


def hashed_files(folder: Path) -> dict[str, Path]:
    """The files that ``hashes.json`` covers, by their names relative to the folder, with "/" and in order."""
    inside = [path for name in FOLDERS if (folder / name).is_dir() for path in (folder / name).rglob("*")]
    inside += folder.glob(f"{MODULES}/*")
    files = {}
    for path in sorted([*folder.iterdir(), *inside]):
        parts = path.relative_to(folder).parts
        aside = any(fnmatch.fnmatch(part, pattern) for part in parts for pattern in NOT_OF_THE_RUN)
        if path.is_file() and not aside and parts != (HASHES,):
            files["/".join(parts)] = path
    return files


def hashes_of(folder: Path) -> dict[str, str]:
    """The SHA-256 of each of ``hashed_files``."""
    return {name: sha256(path) for name, path in hashed_files(folder).items()}


def hashes_record(hashes: dict[str, str]) -> dict[str, Any]:
    """The content of ``hashes.json``: the hashes by the names of the files, and a checksum of them all."""
    return {"sha256": hashes, "checksum": digest(hashes)}


class UnchangedFiles:
    """Files and what the file system said of them when the object was made. Raises OSError if there is no such file."""

    def __init__(self, paths: Iterable[str | Path]):
        self.stamps = {Path(path): _stamp(path) for path in paths}
        self.digests: dict[Path, str] = {}

    def sha256(self, path: Path) -> str:
        """The SHA-256 of one of the files."""
        self.digests[path] = sha256(path)
        return self.digests[path]

    def check(self) -> None:
        """Raise ValueError if a file is not what it was."""
        for path, stamp in self.stamps.items():
            if not path.exists() or _stamp(path) != stamp:
                raise UserError(
                    f"{path}: it was changed or replaced while it was being read, and nothing made from it is kept; "
                    "start again when it is complete and no longer changes"
                )


@contextmanager
def unchanged(*paths: str | Path) -> Iterator[None]:
    """A context in which files are read and hashed; ValueError at its end if one was changed in the meantime."""
    files = UnchangedFiles(path for path in paths if os.path.exists(path))  # the reader says what is missing
    yield
    files.check()


def _stamp(path: str | Path) -> tuple[int, ...]:
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def is_plain_name(name: object) -> bool:
    """Whether a name that a file of unknown origin gives is that of a file or folder beside it, and no path."""
    return isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\\0")
