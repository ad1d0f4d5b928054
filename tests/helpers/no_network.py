"""Processes that refuse and record every use of the network."""

import os
import sys
from pathlib import Path

from tests.helpers.repository import ROOT

# Every Python process of the demo imports this. Sockets of the family AF_UNIX do not leave the machine.
GUARD = """
import os, socket, sys

def refuse(event, arguments):
    if not event.startswith("socket.") or event in ("socket.__new__", "socket.gethostname"):
        return
    if getattr(arguments[0], "family", None) == socket.AF_UNIX:
        return
    handle = os.open({record!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{{event}} {{arguments}}\\n".encode())
    os.close(handle)
    raise OSError("the network is refused here")

sys.addaudithook(refuse)
"""


def guarded(folder: Path) -> dict[str, str]:
    """An environment in which every Python process refuses and records the use of the network."""
    (folder / "guard").mkdir()
    (folder / "guard/sitecustomize.py").write_text(GUARD.format(record=str(folder / "asked")))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PYTHONPATH": f"{folder / 'guard'}:{ROOT}", "PATH": path}
