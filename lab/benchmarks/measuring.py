"""What several benchmarks share: the folder of the data sets, and the time and the memory of a piece of work."""

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def data_folder() -> Path:
    """The folder of the data sets, which the environment variable BERT_REPRO_DATA names.

    Raises:
        SystemExit: it is not set.
    """
    folder = os.environ.get("BERT_REPRO_DATA")
    if not folder:
        raise SystemExit("BERT_REPRO_DATA is not set: expected the folder of the data sets")
    return Path(folder)


def measure(work: Callable[[], Result]) -> tuple[Result, dict[str, float]]:
    """The result of ``work``, and the seconds that it took.

    Returns:
        The result; and "wall_s", the seconds that passed, and "cpu_s", the CPU seconds of this process with its threads
        and of its child processes that have ended.
    """
    wall_start, cpu_start = time.perf_counter(), _cpu_seconds()
    result = work()
    wall, cpu = time.perf_counter() - wall_start, _cpu_seconds() - cpu_start
    return result, {"wall_s": round(wall, 3), "cpu_s": round(cpu, 3)}


def _cpu_seconds() -> float:
    seconds = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        seconds += usage.ru_utime + usage.ru_stime
    return seconds


def peak_megabytes(who: int = resource.RUSAGE_SELF) -> int:
    """The peak resident memory of this process or, with RUSAGE_CHILDREN, of its largest child that has ended."""
    return round(resource.getrusage(who).ru_maxrss / 1024)
