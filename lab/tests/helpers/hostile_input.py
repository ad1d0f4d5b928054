"""Hostile files, and what shows that a run did nothing with them that it must not do."""

import contextlib
import gzip
import lzma
import os
import resource
import sys
from pathlib import Path

from tests.helpers.fault_runs import Ended

MARKER = "hacked"  # the file that appears in the current folder if code of a stranger was executed
SECONDS = 60.0


def refused(ended: Ended, *words: str) -> str:
    """The line of the error, after checking that there is one, no traceback, and that it has these words."""
    assert not ended.timed_out and not ended.left_behind, ended.printed[-2000:]
    assert ended.status == 2 and "Traceback" not in ended.printed, ended.printed[-2000:]
    lines = ended.printed.strip().split("\n")
    errors = [line for line in lines if ": error: " in line]
    assert errors and errors[-1] == lines[-1], ended.printed[-2000:]
    for word in words:
        assert word in errors[-1], (word, errors[-1])
    return errors[-1]


# --- prepared in the fork ---------------------------------------------------------------------------------------


def limits(memory: int, file: int) -> None:
    """Let the process take at most this many MiB more memory than it has, and write no larger file than that."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + (memory << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file << 20, file << 20))


def watch(record: str, outside: str) -> None:
    """Append to the file ``record`` what the process opens in the folder ``outside``, executes or connects to."""

    def note(event: str, arguments: tuple) -> None:
        told = f"{event} {arguments!r}"
        if (event == "open" and outside in told) or event in ("os.system", "socket.connect", "os.posix_spawn"):
            handle = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(handle, f"{told}\n".encode(errors="replace"))
            os.close(handle)

    sys.addaudithook(note)


# --- makers -----------------------------------------------------------------------------------------------------


def bomb(path: Path, text: bytes, start: bytes = b"", end: bytes = b"", mebibytes: int = 1024) -> None:
    """Write a packed file whose content is a start, so many MiB of the text over and over, and an end.

    One stream of 16 MiB is packed and then repeated, so that this takes little time.
    """
    pack = gzip.compress if path.suffix == ".gz" else lzma.compress
    block = pack((text * ((16 << 20) // len(text) + 1))[: (16 << 20) // len(text) * len(text)])
    with open(path, "wb") as file:
        if start:
            file.write(pack(start))
        for _ in range(mebibytes // 16):
            file.write(block)
        if end:
            file.write(pack(end))


class Malice:
    """An object that makes a file in the current folder when it is unpickled."""

    def __reduce__(self):
        return (open, (MARKER, "w"))


def unharmed(folder: Path) -> None:
    """Check that no code of a stranger was executed in the folder."""
    assert not (folder / MARKER).exists()
    with contextlib.suppress(FileNotFoundError):
        raise AssertionError((folder / "watched").read_text())
