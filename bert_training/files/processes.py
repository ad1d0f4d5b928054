"""Locks that keep two processes from writing the same folder or file, made of filelock's.

A lock is a small hidden file, which the system unlocks when the process that holds it ends, however it ends; a lock
file that a killed process has left behind refuses nobody. On a file system without locks (some network file systems
have none, or have them switched off), a line says so and the work goes on. Between machines, a lock is as good as that
of the network file system, such as NFS 4.
"""

import atexit
import contextlib
import os
from pathlib import Path

from filelock import FileLock, Timeout

from tokenization.errors import UserError

_held: dict[Path, FileLock] = {}  # of this process; in a forked child, those of its parent, which are not locked


def hold(path: Path, busy: str, wait: bool = False) -> None:
    """Hold the lock until ``release``, or until this process ends. A process may ask for a lock that it holds already.

    Args:
        path: the lock file, which is created.
        busy: what another process does while it holds the lock, for the error.
        wait: wait for the other process instead.

    Raises:
        UserError: another process holds the lock.
    """
    path = path.parent.resolve() / path.name
    if path in _held and _held[path].is_locked:
        return
    lock = FileLock(path, thread_local=False, fallback_to_soft=False)  # a soft lock outlives its process
    try:
        lock.acquire(blocking=wait)
    except Timeout:
        raise UserError(busy) from None
    except OSError as error:
        say(f"warning: {path.parent} cannot be locked ({error.strerror}); let no other process write there")
    _held[path] = lock


def release(path: Path) -> None:
    """Release the lock and remove its file. A lock that this process does not hold is left alone."""
    path = path.parent.resolve() / path.name
    lock = _held.pop(path, None)
    if lock is not None and lock.is_locked:
        with contextlib.suppress(OSError):  # the folder may have been deleted, or have become read-only
            path.unlink()  # before the lock ends, so that it is not the file of the next holder
        lock.release()


@atexit.register
def release_all() -> None:
    """Release all locks of this process."""
    for path in list(_held):
        release(path)


# --- this process ----------------------------------------------------------------------------------------------------


def usable_cores() -> int:
    """The number of cores that this process may use, which a scheduler may have limited."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it, macOS has not
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def say(text: str) -> None:
    """Print a line once, whatever the number of processes."""
    if os.environ.get("RANK", "0") == "0":
        print(text, flush=True)
