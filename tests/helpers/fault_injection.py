"""Faults that tests/programs/fault_runs.py prepares in the process of a run, before its script starts."""

import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

AT_THE_END: list[Callable[[], object]] = []  # what fault_runs.py calls when the script has ended


def at_line(modules: list[str], counted: str, fatal: int | None = None, number: int = signal.SIGKILL) -> None:
    """Count the lines of these modules that this process executes, and send it a signal at one of them.

    Args:
        counted: file to which the number of executed lines is written when the script has ended.
        fatal: the number of the line before which the signal is sent; None to count only.
        number: the signal.
    """
    files = {importlib.import_module(module).__file__ for module in modules}
    process, passed = os.getpid(), 0

    def lines(frame, event, argument):
        nonlocal passed
        if event == "line" and os.getpid() == process:  # The processes that make batches do not count.
            passed += 1
            if passed == fatal:
                os.kill(process, number)
        return lines

    def calls(frame, event, argument):
        return lines if frame.f_code.co_filename in files else None

    sys.settrace(calls)
    AT_THE_END.append(lambda: Path(counted).write_text(str(passed)))
