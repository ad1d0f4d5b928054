"""A process among others: its locks, its cores, the lines that it prints, and the signals that stop it.

Locks keep two processes from writing the same folder or file, and are made of filelock's. A lock is a small hidden
file, which the system unlocks when the process that holds it ends, however it ends; a lock file that a killed process
has left behind refuses nobody. On a file system without locks (some network file systems have none, or have them
switched off), a line says so and the work goes on. Between machines, a lock is as good as that of the network file
system, such as NFS 4.

The signals are SIGTERM, SIGINT (Ctrl-C), SIGHUP (the terminal or the connection was closed) and SIGUSR1, which batch
systems send before the time is up (in Slurm, the option ``signal=USR1@120`` of sbatch). A process that ignores SIGHUP,
as under ``nohup``, goes on ignoring it. A training finishes its step, writes a checkpoint and exits with the status
``STOPPED``, so that a script of the batch system can distinguish "stopped with a checkpoint, start again" from success
(0), a mistake of the user's (2), a crash (1) and death by the signal itself (128 + its number):

    until python run_pretraining.py ... --resume_from_checkpoint auto; do [ $? = 75 ] || break; done

A signal that arrives between two steps, for example during an evaluation, ends the run after the next step. If there
is no next step, the run ends as usual. Before the first step and after the last one, while data is prepared or results
are written, the others kill as usual, and Ctrl-C ends the process with status 130; the same command goes on from there.
torchrun forwards a signal to its processes and gives them 30 seconds; its own exit status is 1.
"""

import atexit
import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

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


# --- the signals that stop a run -------------------------------------------------------------------------------------

STOPPED = 75  # EX_TEMPFAIL of sysexits.h: a temporary failure; trying again may succeed
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
# Under torchrun, one Ctrl-C reaches a process twice: from the terminal and from torchrun.
SAME_SIGNAL_SECONDS = 1.0


class StopSignals:
    """A context in which the first signal only sets ``asked``; a second one, at least 1 s later, kills as usual."""

    def __init__(self) -> None:
        self.asked = False
        self._time = 0.0
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():  # Python allows this in no other thread
            heard = [one for one in SIGNALS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]
            self._earlier = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if not self.asked:
            self.asked, self._time = True, time.monotonic()
        elif time.monotonic() - self._time > SAME_SIGNAL_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def only_parent_ends_me(_worker: int = 0) -> None:
    """Ignore ``SIGNALS``, but SIGTERM only unless the parent process sent it; for processes that prepare batches.

    Ctrl-C reaches all processes of the terminal, and Slurm signals all processes of a job, but the training process
    still needs batches to finish its step.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):  # macOS lacks it, and no other call says who sent a signal

        def wait() -> None:
            while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
                pass
            os._exit(0)

        parent = os.getppid()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=wait, daemon=True).start()
