"""Run a script with a fault in it, in a fork of lab/tests/programs/fault_runs.py, which has imported everything."""

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers.repository import ROOT


class Ended(NamedTuple):
    """How a run ended.

    Attributes:
        statuses: the exit status of each rank; the negative number of the signal that ended it.
        printed: what all ranks printed, both streams together.
        timed_out: whether the run took longer than it may, and was killed.
        left_behind: whether a process of the run was still there some seconds after its ranks had ended.
    """

    statuses: list[int]
    printed: str
    seconds: float
    timed_out: bool
    left_behind: bool

    @property
    def status(self) -> int:
        """The exit status of the only rank."""
        (status,) = self.statuses
        return status


@functools.cache
def forks() -> subprocess.Popen:
    """One process for all runs of this test session."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(ROOT / "lab/tests/programs/fault_runs.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)
    atexit.register(process.communicate)  # Its standard input ends, and so does the process.
    return process


def run(
    script: str,
    flags: Sequence[str],
    folder: Path,
    *,
    prepare: Sequence[tuple[str, Mapping[str, Any]]] = (),
    signals: Sequence[tuple[float, signal.Signals, str]] = (),
    environment: Mapping[str, str] | None = None,
    ranks: int = 1,
    seconds: float = 120.0,
    patience: float = 0.0,
    pictures: bool = False,
) -> Ended:
    """Make one run and wait for its end.

    Args:
        script: "run_glue" and the like, or "bert_training" for ``bert-repro``.
        folder: the current folder of the run.
        prepare: functions that are called in the fork before the script, as ("package.module:function", arguments);
            the arguments must be JSON.
        signals: (seconds after the start, signal, "group" or the number of a rank).
        ranks: the number of processes, which get the variables that torchrun sets.
        seconds: after which the run is killed.
        patience: seconds for the other ranks to end by themselves after one has failed; then they are killed.
        pictures: whether the training curves are drawn.
    """
    request = {
        "argv": [script, *map(str, flags)],
        "folder": str(folder),
        "prepare": [[name, dict(arguments)] for name, arguments in prepare],
        "signals": [[after, int(number), to] for after, number, to in signals],
        "environment": dict(environment or {}),
        "ranks": ranks,
        "seconds": seconds,
        "patience": patience,
        "pictures": pictures,
    }
    process = forks()
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    longest = seconds + patience + 60
    # An answer is one line, so nothing of it can be left in the buffer that select does not see.
    if not select.select([process.stdout], [], [], longest)[0]:
        process.kill()
        forks.cache_clear()
        raise TimeoutError(f"lab/tests/programs/fault_runs.py gave no answer in {longest:.0f} seconds")
    return Ended(**json.loads(process.stdout.readline()))
