"""Errors of the disk as one sentence: what could not be written, why, and what to do.

Python raises an OSError, but without the name of the file if the disk is full only when bytes are written. safetensors,
tokenizers and torch raise errors of their own, which are no OSErrors. ``explained`` makes a ``DiskError`` of all these.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# What to do about an error; AGAIN stands for what the caller says about starting again.
AGAIN = "AGAIN"
NO_MORE_FILES = -errno.ENOSPC  # no number of the system's
REMEDIES = {
    errno.ENOSPC: f"the disk is full (FREE bytes are free there). Free some space, then {AGAIN}",
    # ENOSPC as well, on a disk with room for bytes:
    NO_MORE_FILES: f"the disk can hold no more files (FREE bytes are free there). Delete some files, then {AGAIN}",
    errno.EDQUOT: f"your quota is used up. Free some space or ask for more, then {AGAIN}",
    errno.EFBIG: f"no file may become that large there. Raise the limit (ulimit -f), then {AGAIN}",
    errno.EROFS: "the disk can only be read. Give a folder on another one, or mount it for writing",
    errno.EACCES: "you may not write there. Give another folder, or change its permissions",
    errno.EPERM: "you may not write there. Give another folder, or change its permissions",
    errno.EIO: f"the disk reports a failure. Check it, then {AGAIN}, or give a folder on another disk",
    errno.ENAMETOOLONG: "the name is too long for this disk. Give a shorter one",
    errno.ENOTDIR: "a part of this path is a file. Give another path",
    errno.ELOOP: f"a link is in its place, and is not followed. Remove it, then {AGAIN}",
    errno.ENOENT: "a folder of this path has vanished, or a link leads nowhere. Give another path",
    errno.EPIPE: f"the program that read what is printed has ended. Redirect the output into a file, then {AGAIN}",
}
# Errors that only writing causes. shutil.copyfile names its source in them, which was read well.
OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
OF_TORCH = re.compile(r"inline_container|PytorchStreamWriter|basic_ios|^Parent directory .* does not exist")
SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")  # NumPy's OSError has no number
# What follows the path in the name of a draft (bert_training/files/atomic.py), and in that of a file below the path.
OF_A_DRAFT = re.compile(r"(\.[0-9a-f]{32})?(\.tmp|\.incomplete|\.old\.incomplete|\.building)?(/|$)")


class DiskError(OSError):
    """Something could not be written or removed; the text says what, why, and what to do."""

    def __init__(self, text: str, number: int | None):
        super().__init__(text)
        self.errno = number

    def __reduce__(self) -> tuple[Any, ...]:  # OSError's own way, from one argument, would lack the number
        return DiskError, (str(self), self.errno)


@contextmanager
def explained(
    path: Path, again: str = "give the same command again", verb: str = "written", reads: bool = True
) -> Iterator[None]:
    """Raise DiskError for an error of the disk while ``path`` is written. Other errors are left as they are.

    Args:
        path: the file or folder that is written, by its final name.
        again: how to start again when the disk has room.
        verb: what could not be done: "written", "removed".
        reads: whether other files may be read meanwhile; an error with the name of one of them is left as it is.
    """
    try:
        yield
    except DiskError:
        raise
    except Exception as error:
        if not _is_of_the_disk(error, path if reads else None):
            raise
        number = _number(error)
        reason = os.strerror(number) if number else " ".join(str(error).split())
        # Without a number, as from torch, the most frequent cause is the best guess.
        free, files = _free(path)
        cause = NO_MORE_FILES if number == errno.ENOSPC and files == 0 and free else number or errno.ENOSPC
        remedy = REMEDIES.get(cause, again).replace(AGAIN, again)
        if number is None:
            remedy = f"perhaps {remedy}"
        text = f"{path} could not be {verb} ({reason}): {remedy.replace('FREE', f'{free:,}')}"
        raise DiskError(text, number) from error


def with_remedy(error: OSError) -> str:
    """The text of an error other than a DiskError. The remedy is added if reading a file cannot cause the error."""
    if isinstance(error, DiskError) or error.errno not in (*OF_WRITING, errno.EIO, errno.ENAMETOOLONG, errno.EPIPE):
        return str(error)
    remedy = (
        REMEDIES[error.errno].replace(AGAIN, "give the same command again").replace(" (FREE bytes are free there)", "")
    )
    return f"{error}: {remedy}"


def _is_of_the_disk(error: Exception, path: Path | None) -> bool:
    """Whether the error is one of writing ``path``, its draft, or what is below or above it; None is any path."""
    if isinstance(error, OSError):
        if error.errno in OF_WRITING:
            return True
        if error.errno == errno.EPIPE:  # a line was printed meanwhile
            return False
        if error.errno is None:
            return bool(SHORT_WRITE.search(str(error)))
        given = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
        if path is None or not given:
            return True
        path, names = path.absolute(), [os.path.abspath(name) for name in given]
        mine = [name.removeprefix(str(path)) for name in names if name.startswith(str(path))]
        return any(map(OF_A_DRAFT.match, mine)) or any(Path(name) in path.parents for name in names)
    return _number(error) is not None or (isinstance(error, RuntimeError) and bool(OF_TORCH.search(str(error))))


def _number(error: Exception) -> int | None:
    """The number of an error, also of one of safetensors or tokenizers, or of torch if it gives the reason."""
    if isinstance(error, OSError):
        return error.errno
    if found := re.search(r"\(os error (\d+)\)", str(error)):
        return int(found[1])
    if isinstance(error, RuntimeError) and (found := re.search(r"strerror: (.+)$", str(error), re.MULTILINE)):
        return next((number for number in errno.errorcode if os.strerror(number) == found[1].strip()), None)
    return None


def _free(path: Path) -> tuple[int, int | None]:
    """The bytes that are free where a path is, and how many more files there may be; None if the disk sets no limit."""
    for folder in path.absolute().parents:
        try:
            disk = os.statvfs(folder)
        except OSError:
            continue
        return disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else None  # btrfs says 0 of 0 files
    return 0, None
