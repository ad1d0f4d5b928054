"""Files of data that must stay as they are while they are read.

A run records the SHA-256 of its data, by which it knows later that it resumes, reuses or compares the same data. Both
the hash and the content are therefore read from one state of the file, by its size and its time of change.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bert_training.files.hashing import sha256
from tokenization.errors import UserError


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
