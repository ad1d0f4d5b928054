"""Locks that keep two processes from writing the same folder or file.

A lock is a small file, locked with ``flock``. The system ends the lock with the process that holds it, however that
process ends, so that a lock file which a killed process has left behind refuses nobody. The file is removed when the
lock is released; its name begins with a dot, and like every hidden file it is no part of a run (``hashing.py``).

A child process has a copy of every open file, and a lock lasts until the last copy is closed. A process that prepares
batches lives for some seconds after a kill of the training process, and would refuse its next start for as long.
Therefore every forked child closes the locks of its parent first.

On a file system without locks (some network file systems have none, or have them switched off), a line says so and the
work goes on. Between machines, a lock is as good as that of the network file system, such as NFS 4.
"""

import atexit
import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from bert_training.files.disk_errors import explained
from bert_training.files.links import refuse_links

# What flock says on a file system without locks.
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

_held: dict[Path, int] = {}  # the locks of this process: path -> the open file


def hold(path: Path, busy: str, wait: bool = False) -> None:
    """Hold the lock until ``release``, or until this process ends. A process may ask for a lock that it holds already.

    Args:
        path: the lock file, which is created.
        busy: what another process does while it holds the lock, for the error.
        wait: wait for the other process instead.

    Raises:
        ValueError: another process holds the lock, or a folder of the path is a link below the output folder.
        DiskError: the lock file could not be made.
    """
    refuse_links(path.parent)
    path = path.parent.resolve() / path.name
    while path not in _held:
        # Without O_NOFOLLOW, a link in a folder from elsewhere would choose which file is written.
        with explained(path):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            if not _lock(file, path, wait):
                holder = os.read(file, 200).decode(errors="replace").strip()
                raise ValueError(f"{busy}{f' ({holder})' if holder.isprintable() and holder else ''}")
            if _is_at(file, path):  # else its last holder has removed it since we opened it
                _held[path] = file
        finally:
            if path not in _held:
                os.close(file)
    with contextlib.suppress(OSError):  # a full disk; the lock holds without a name in it
        if os.fstat(_held[path]).st_nlink == 1:  # otherwise the file has another name, and what it holds is not ours
            os.ftruncate(_held[path], 0)
            os.pwrite(_held[path], f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def release(path: Path) -> None:
    """Release the lock and remove its file. A lock that this process does not hold is left alone."""
    path = path.parent.resolve() / path.name
    file = _held.pop(path, None)
    if file is not None:
        with contextlib.suppress(OSError):  # the folder may have been deleted, or have become read-only
            if _is_at(file, path):
                path.unlink()
        with contextlib.suppress(OSError):  # the disk did not take the name in the file
            os.close(file)


@contextlib.contextmanager
def held(path: Path, busy: str) -> Iterator[None]:
    """A context that holds the lock, see ``hold``."""
    hold(path, busy)
    try:
        yield
    finally:
        release(path)


def sweep(path: Path) -> None:
    """Remove a lock file that a killed process has left behind; that of another living process stays."""
    if path.exists():
        with contextlib.suppress(ValueError, OSError):  # it is held, or the folder is read-only
            hold(path, "")
            release(path)


@atexit.register
def release_all() -> None:
    """Release all locks of this process."""
    for path in list(_held):
        release(path)


def _lock(file: int, path: Path, wait: bool) -> bool:
    """Whether the file is locked now; also True, with a warning, if there are no locks here."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        print(
            f"warning: {path.parent} is on a file system without locks ({error.strerror}); make sure that no other "
            "process writes the same folder",
            flush=True,
        )
    return True


def _is_at(file: int, path: Path) -> bool:
    """Whether the open file is the one with this path."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def _forget() -> None:
    """In a forked child: close the copies, which leaves the locks to the parent."""
    for file in _held.values():
        os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
