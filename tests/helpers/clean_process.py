"""Run code in a process of its own, without waiting for its imports; this project cannot be imported there.

That is how a user of a saved folder opens it.
"""

import atexit
import functools
import json
import os
import select
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from tests.helpers.repository import ROOT

LONGEST = 1000  # seconds to wait for an answer; clean_forks.py itself ends a fork that hangs after 900


@functools.cache
def forks() -> subprocess.Popen:
    """One process for all calls, which has imported transformers: starting one takes longer than most tests."""
    home = tempfile.TemporaryDirectory()
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = {**os.environ, **threads, "HF_HOME": home.name, "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    process = subprocess.Popen(
        [sys.executable, "-P", ROOT / "tests/programs/clean_forks.py"],
        cwd=home.name,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        process.communicate()  # Its standard input ends, and so does the process.
        home.cleanup()

    atexit.register(end)
    return process


def run_clean(code: str, folder: Path) -> str:
    """Run code with the folder as its argument and the folder's parent as its current folder. Return what it prints.

    Both streams are returned together. The process has an empty cache of code from saved folders.
    """
    return run_in_a_fork(textwrap.dedent(code), [folder], folder.parent)


def run_in_a_fork(code: str, arguments: Sequence[str | Path], folder: Path) -> str:
    request = {"code": code, "arguments": [*map(str, arguments)], "folder": str(folder)}
    process = forks()
    process.stdin.write(json.dumps(request | {"home": str(folder / "home")}) + "\n")
    process.stdin.flush()
    # An answer is one line, so nothing of it can be left in the buffer that select does not see.
    if not select.select([process.stdout], [], [], LONGEST)[0]:
        process.kill()
        forks.cache_clear()
        raise TimeoutError(f"tests/programs/clean_forks.py gave no answer in {LONGEST} seconds")
    answer = json.loads(process.stdout.readline())
    assert answer["status"] == 0, answer["printed"][-3000:]
    return answer["printed"]
