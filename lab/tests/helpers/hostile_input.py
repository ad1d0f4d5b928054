"""Hostile files, and what shows that a run did nothing with them that it must not do."""

import contextlib
import os
import sys
from pathlib import Path

MARKER = "hacked"  # the file that appears in the current folder if code of a stranger was executed
SECONDS = 60.0


# --- prepared in the fork ---------------------------------------------------------------------------------------


def watch(record: str, outside: str) -> None:
    """Append to the file ``record`` what the process opens in the folder ``outside``, executes or connects to."""

    def note(event: str, arguments: tuple) -> None:
        told = f"{event} {arguments!r}"
        if (event == "open" and outside in told) or event in ("os.system", "socket.connect", "os.posix_spawn"):
            handle = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(handle, f"{told}\n".encode(errors="replace"))
            os.close(handle)

    sys.addaudithook(note)


class Malice:
    """An object that makes a file in the current folder when it is unpickled."""

    def __reduce__(self):
        return (open, (MARKER, "w"))


def unharmed(folder: Path) -> None:
    """Check that no code of a stranger was executed in the folder."""
    assert not (folder / MARKER).exists()
    with contextlib.suppress(FileNotFoundError):
        raise AssertionError((folder / "watched").read_text())
