"""Locks that keep two processes from writing the same folder or file, made of filelock's.

A lock is a small file, which the system unlocks when the process that holds it ends, however it ends; a lock file that
a killed process has left behind refuses nobody. A process that prepares batches lives for some seconds after a kill of
the training process; filelock closes its copy of the file when it is forked, so that it does not keep the lock.

What filelock does not do is done here: the file says who holds the lock, and is removed when the lock is released (its
name begins with a dot, and like every hidden file it is no part of a run). On a file system without locks (some network
file systems have none, or have them switched off), a line says so and the work goes on. Between machines, a lock is as
good as that of the network file system, such as NFS 4. There are no shared locks.
"""

import atexit
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from tokenization.errors import UserError

# What the system says on a file system without locks.
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)  # the last two differ on macOS

_held: dict[Path, FileLock] = {}  # of this process; in a forked child, those of its parent, which are not locked


def hold(path: Path, busy: str, wait: bool = False) -> None:
    """Hold the lock until ``release``, or until this process ends. A process may ask for a lock that it holds already.

    Args:
        path: the lock file, which is created.
        busy: what another process does while it holds the lock, for the error.
        wait: wait for the other process instead.

    Raises:
        ValueError: another process holds the lock.
        OSError: the lock file could not be made.
    """
    path = path.parent.resolve() / path.name
    if path in _held and _held[path].is_locked:
        return
    # Without fallback_to_soft: a soft lock outlives its process.
    lock = FileLock(path, thread_local=False, fallback_to_soft=False, on_acquired=_write_holder)
    try:
        lock.acquire(blocking=wait)
    except Timeout:
        raise UserError(f"{busy}{_holder(path)}") from None
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        path.unlink(missing_ok=True)
        print(
            f"warning: {path.parent} is on a file system without locks ({os.strerror(error.errno)}); make sure that no "
            "other process writes the same folder",
            flush=True,
        )
    _held[path] = lock


def release(path: Path) -> None:
    """Release the lock and remove its file. A lock that this process does not hold is left alone."""
    path = path.parent.resolve() / path.name
    lock = _held.pop(path, None)
    if lock is not None and lock.is_locked:
        with contextlib.suppress(OSError):  # the folder may have been deleted, or have become read-only
            path.unlink()  # before the lock ends, so that it is not the file of the next holder
        lock.release()


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


def _write_holder(file: int) -> None:
    with contextlib.suppress(OSError):  # a full disk; the lock holds without a name in it
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def _holder(path: Path) -> str:
    """What the file says of who holds the lock, in brackets, or nothing."""
    with contextlib.suppress(OSError):
        return f" ({path.read_text(encoding='utf-8', errors='replace').strip()})"
    return ""
