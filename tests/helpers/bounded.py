"""Call a function of this project in a process of its own, with a limit of memory and of time.

A file that fills the memory or takes for ever then fails one test, and not the whole session.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers.repository import ROOT

MEMORY, SECONDS = 512, 20  # MiB more than the process has after its imports; of the processor's time
# RLIMIT_AS counts addresses, of which the imports have taken many.
PROGRAM = """
import importlib, json, resource, sys
from pathlib import Path

called, arguments, memory, seconds = json.loads(sys.argv[1])
module, _, name = called.partition(":")
function = getattr(importlib.import_module(module), name)
pages = int(Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + (memory << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
used = resource.getrusage(resource.RUSAGE_SELF)
resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds,) * 2)
try:
    value = function(*(Path(one[1:]) if isinstance(one, str) and one.startswith("@") else one for one in arguments))
    told = {"error": "", "text": repr(value)[:1000]}
except Exception as error:
    told = {"error": type(error).__name__, "text": str(error)}
print(json.dumps(told))
"""


class Called(NamedTuple):
    """What became of a call: the name of the exception, if there was one, and its text or the value's."""

    error: str
    text: str


def call(function: str, *arguments: Any, memory: int = MEMORY, seconds: int = SECONDS) -> Called:
    """Call ``package.module:function`` with these arguments.

    Args:
        arguments: paths and values of JSON.
        memory: how many MiB more than after its imports the process may have.
        seconds: of the processor, after which the process is killed.
    """
    words = [f"@{one}" if isinstance(one, Path) else one for one in arguments]
    request = json.dumps([function, words, memory, seconds])
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, request]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20 * seconds)
    assert done.returncode == 0, f"ended with status {done.returncode}: {done.stderr[-1000:]}"
    return Called(**json.loads(done.stdout.splitlines()[-1]))


def refused(function: str, *arguments: Any, memory: int = MEMORY, seconds: int = SECONDS) -> str:
    """The text of the UserError of a call, which must be one line."""
    called = call(function, *arguments, memory=memory, seconds=seconds)
    assert called.error == "UserError", called
    assert len(called.text) < 2000 and "\n" not in called.text, called.text
    return called.text
