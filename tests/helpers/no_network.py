"""Processes that refuse and record every use of the network."""

import os
import subprocess
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
ALONE = ["unshare", "--user", "--map-root-user", "--net"]  # without any network, not even the loopback device


def guarded(folder: Path) -> dict[str, str]:
    """An environment in which every Python process refuses and records the use of the network."""
    (folder / "guard").mkdir()
    (folder / "guard/sitecustomize.py").write_text(GUARD.format(record=str(folder / "asked")))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PYTHONPATH": f"{folder / 'guard'}:{ROOT}", "PATH": path}


def alone() -> list[str]:
    """The command that starts another one in a network name space of its own, if this machine lets us."""
    try:
        allowed = subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    return ALONE if allowed else []
