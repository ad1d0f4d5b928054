"""Faults that tests/programs/fault_runs.py prepares in the process of a run, before its script starts."""

import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def named(place: str) -> tuple[object, str]:
    """The object and the attribute that "package.module:Class.attribute" names."""
    module, _, path = place.partition(":")
    owner: object = importlib.import_module(module)
    *classes, name = path.split(".")
    for one in classes:
        owner = getattr(owner, one)
    return owner, name


def at_call(place: str, number: int, action: str, arguments: dict[str, Any] | None = None) -> None:
    """Do something before the call with this number, counted from 1, of a function.

    Args:
        place: the function, as "package.module:Class.function".
        action: another function, which is called with the arguments.
    """
    owner, name = named(place)
    called, calls = getattr(owner, name), 0

    def counted(*values, **options):
        nonlocal calls
        calls += 1
        if calls == number:
            getattr(*named(action))(**(arguments or {}))
        return called(*values, **options)

    setattr(owner, name, counted)


def kill_this_process() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
