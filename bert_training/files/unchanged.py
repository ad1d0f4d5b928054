"""Files of data that must stay as they are while they are read.

A run records the SHA-256 of its data, by which it knows later that it resumes, reuses or compares the same data. Both
the hash and the content are therefore read from one state of the file. ``UnchangedFiles`` notices that a file was
written to, replaced or deleted in between. It does not notice a change after which the file has the same size and the
same time of change to the nanosecond, as a program may set it.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bert_training.files.hashing import sha256
from tokenization.errors import UserError

Stamp = tuple[int, int, int, int]


class UnchangedFiles:
    """Files and what the file system said of them when the object was made.

    Raises:
        OSError: there is no such file.
    """

    def __init__(self, paths: Iterable[str | Path]):
        self.stamps = {Path(path): _stamp(path) for path in paths}
        self.digests: dict[Path, str] = {}

    def sha256(self, path: Path) -> str:
        """The SHA-256 of one of the files; a file that is written again with this content counts as unchanged."""
        self.digests[path] = sha256(path)
        return self.digests[path]

    def check(self) -> None:
        """Raise ValueError if a file is not what it was."""
        for path, stamp in self.stamps.items():
            try:
                now = _stamp(path)
                if now != stamp and path in self.digests and sha256(path) == self.digests[path]:
                    self.stamps[path] = stamp = now
                problem = None if now == stamp else "it was changed or replaced"
            except OSError as error:
                problem = f"it can no longer be read: {error.strerror}"
            if problem:
                raise UserError(
                    f"{path}: {problem} while it was being read, and nothing made from it is kept; start again when it "
                    "is complete and no longer changes"
                )


@contextmanager
def unchanged(*paths: str | Path) -> Iterator[None]:
    """A context in which files are read and hashed; ValueError at its end if one was changed in the meantime.

    An error of reading is raised as it is, unless the file was changed, which explains it.
    """
    try:
        files = UnchangedFiles(paths)
    except OSError:  # the reader has a better message for a file that is not there
        yield
        return
    try:
        yield
    except ValueError as error:
        try:
            files.check()
        except ValueError as change:
            raise UserError(str(change)) from error
        raise
    files.check()


def _stamp(path: str | Path) -> Stamp:
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
