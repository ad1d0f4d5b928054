"""Faults at the moments when a process changes the disk, for the function ``run`` of lab/tests/helpers/fault_runs.py.

A moment is a call of Python that changes a file or a folder below the current folder: a file is opened for writing,
written, synced or closed; a name is made, renamed or removed. What libraries in other languages write (weights,
tokenizer.json, training_state.pt) is no moment; ``limit_at_moment`` stops these in the middle of a file.
"""

import _pyio
import builtins
import errno
import fcntl
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lab.tests.helpers.fault_injection import AT_THE_END

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NAMES = ("open", "mkdir", "rename", "remove", "rmdir")  # moments that change a folder
GROWING = ("open", "mkdir", "rename", "write", "fsync", "close")  # moments that may need room
# The error -> the moments at which a system may give it, and whether it gives it at every later one, too.
ERRORS = {
    errno.ENOSPC: (GROWING, True),
    errno.EDQUOT: (GROWING, True),
    errno.EIO: ((*NAMES, "write", "fsync", "close", "truncate"), False),
    errno.EROFS: ((*NAMES, "truncate"), True),
    errno.EACCES: ((*NAMES, "truncate"), True),
    errno.ENAMETOOLONG: (("open", "mkdir", "rename"), False),
}


class Moments:
    """Counts the moments of this process, records them, and calls ``at`` for each of them.

    Attributes:
        seen: (moment, path below the current folder, sizes of the files that get another name, otherwise {}).
        at: gets the number of the moment, from 0, its name, its path and, for a write, what is to be written and the
            descriptor; it may raise OSError or not return.
    """

    def __init__(self, trace: str, at: Callable[..., None]):
        if os.environ.get("RANK", "0") != "0":
            return  # faults come to the first process
        self.root, self.process, self.at = os.getcwd(), os.getpid(), at
        self.seen: list[tuple[str, str, dict[str, int]]] = []
        self.write, self.fsync, self.close = os.write, os.fsync, os.close
        sys.addaudithook(self.audit)
        # The files of this module are written by os.write, and those of the module `io` are not.
        builtins.open = io.open = _pyio.open
        os.write, os.fsync, os.close = self.written, self.synced, self.closed
        AT_THE_END.append(lambda: self.stop(trace))

    def stop(self, trace: str) -> None:
        self.process = 0
        Path(trace).write_text(json.dumps(self.seen))

    def below(self, path: str) -> str | None:
        path = os.path.join(self.root, path)
        return os.path.relpath(path, self.root) if os.path.normpath(path).startswith(f"{self.root}/") else None

    def name_of(self, descriptor: int) -> str | None:
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            return self.below(path) if path.startswith("/") else None  # otherwise a pipe
        except OSError:
            return None

    def reached(self, moment: str, path: str | None, *more, sizes: dict[str, int] | None = None) -> None:
        if path is not None and os.getpid() == self.process:
            self.seen.append((moment, path, sizes or {}))
            self.at(len(self.seen) - 1, moment, path, *more)

    def audit(self, event: str, arguments: tuple) -> None:
        moment = event.removeprefix("os.")
        if os.getpid() != self.process or moment not in (*NAMES, "truncate"):
            return
        if moment == "open" and not arguments[2] & WRITING:
            return
        folder = {"remove": 1, "rmdir": 1, "mkdir": 2, "rename": 2}.get(moment)
        path = arguments[0]
        if isinstance(path, int):
            found = self.name_of(path)
        elif folder is not None and arguments[folder] != -1:
            found = self.name_of(arguments[folder]) and f"{self.name_of(arguments[folder])}/{os.fsdecode(path)}"
        else:
            found = self.below(os.fsdecode(path))
        self.reached(moment, found, sizes=sizes_of(Path(found)) if moment == "rename" and found else None)

    def written(self, descriptor: int, data) -> int:
        self.reached("write", self.name_of(descriptor), data, descriptor)
        return self.write(descriptor, data)

    def synced(self, descriptor: int) -> None:
        self.reached("fsync", self.name_of(descriptor))
        os.fstat(descriptor)  # Nobody pulls the plug in a test, so nothing has to wait for the disk.

    def closed(self, descriptor: int) -> None:
        path = self.name_of(descriptor)
        if path is not None and not fcntl.fcntl(descriptor, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR):
            path = None  # It was only read.
        self.close(descriptor)
        self.reached("close", path)


def sizes_of(path: Path) -> dict[str, int]:
    files = path.rglob("*") if path.is_dir() else [path]
    return {str(file): file.stat().st_size for file in files if file.is_file()}


def kill_at_moment(trace: str, fatal: int | None = None, half: bool = False) -> None:
    """Record all moments in a file, and kill the process before one of them.

    Args:
        fatal: the number of the moment; None to record only.
        half: if it is a write, write the first half of the bytes before.
    """

    def at(number: int, moment: str, path: str, data=b"", descriptor: int = -1) -> None:
        if number == fatal:
            if half and moment == "write":
                moments.write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    moments = Moments(trace, at)


def limit_at_moment(trace: str, number: int, size: int, kill: bool) -> None:
    """From a moment on, no file may become larger than ``size`` bytes, whoever writes it.

    Args:
        kill: whether the system kills the process when it writes the next byte; otherwise it refuses to write it.
    """
    # What is printed goes into a file, too, which must not count.
    pipe = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    for descriptor in (1, 2):
        os.dup2(pipe.stdin.fileno(), descriptor)
    pipe.stdin.close()
    # The streams that were there remember that one can seek in their old file.
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    if kill:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def at(reached: int, *_) -> None:
        if reached == number:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    moments = Moments(trace, at)
    AT_THE_END.insert(0, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)))
    assert moments


def error_at_moment(trace: str, number: int, error: int, short: bool = False) -> None:
    """From a moment on, the system gives an error at all moments of ``ERRORS``, or only at this one.

    Args:
        short: if it is a write, half of the bytes are written before the error.
    """
    possible, lasting = ERRORS[error]

    def at(reached: int, moment: str, path: str, data=b"", descriptor: int = -1) -> None:
        if moment not in possible or not (reached == number or (lasting and reached > number)):
            return
        if moment == "open" and error in (errno.ENOSPC, errno.EDQUOT) and reached > number and os.path.exists(path):
            return
        if moment == "close" and reached > number:
            return
        if moment == "write" and short and reached == number:
            moments.write(descriptor, data[: len(data) // 2])
        if moment in NAMES:
            raise OSError(error, os.strerror(error), path)
        raise OSError(error, os.strerror(error))

    moments = Moments(trace, at)


def finish_cells() -> None:
    """lab/run_paper.py finds all its cells finished, with scores that are made up, and a small built-in corpus."""
    from bert_training.builtin_data import documentation
    from lab import run_paper
    from lab.tests.helpers.paper_plans import write_scores

    def run_cells(folder: Path, plan, jobs: int) -> None:
        child = os.fork()  # because what a test writes is no moment
        if child == 0:
            shutil.rmtree(folder / "cells", ignore_errors=True)
            write_scores(folder, plan)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

    def write_files(folder: Path, **more) -> None:
        text = "".join(f"the old house number {number} by the river .\n\n" for number in range(9))
        (folder / "corpus.txt").write_text(text)

    run_paper.run_cells, documentation.write_files = run_cells, write_files
