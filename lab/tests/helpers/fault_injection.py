"""Faults that lab/tests/programs/fault_runs.py prepares in the process of a run, before its script starts."""

import functools
import importlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from bert_training.engine.errors import report_errors

AT_THE_END: list[Callable[[], object]] = []  # what fault_runs.py calls when the script has ended


def at_line(
    modules: list[str], counted: str, fatal: int | None = None, number: int = signal.SIGKILL, rank: int = 0
) -> None:
    """Count the lines of these modules that a process executes, and send it a signal at one of them.

    Args:
        counted: file to which the number of executed lines is written when the script has ended.
        fatal: the number of the line before which the signal is sent; None to count only.
        number: the signal.
        rank: the rank of the process; the other ranks do nothing.
    """
    if not is_rank(rank):
        return
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


def count_lines(groups: dict[str, list[str]], counted: str, rank: int = 0) -> None:
    """Write to the file ``counted``, as JSON, how many lines of each group of modules the process has executed.

    Args:
        rank: as in ``at_line``.
    """
    if not is_rank(rank):
        return
    group_of = {importlib.import_module(module).__file__: name for name in groups for module in groups[name]}
    process, passed = os.getpid(), dict.fromkeys(groups, 0)

    def lines(frame, event, argument):
        if event == "line" and os.getpid() == process:
            passed[group_of[frame.f_code.co_filename]] += 1
        return lines

    sys.settrace(lambda frame, event, argument: lines if frame.f_code.co_filename in group_of else None)
    AT_THE_END.append(lambda: Path(counted).write_text(json.dumps(passed)))


def at_call(
    function: str,
    call: int,
    numbers: Sequence[int] = (signal.SIGKILL,),
    after: bool = False,
    pause: float = 0.0,
    rank: int = 0,
    group: bool = False,
) -> None:
    """Send signals to the process at a call of a function or method.

    Args:
        function: "package.module:function" or "package.module:Class.method".
        call: the number of the call, from 1.
        numbers: the signals, in order.
        after: send them after the call instead of before it.
        pause: seconds to wait after each signal.
        rank: as in ``at_line``.
        group: send them to the process group, as a terminal does.
    """

    def send() -> None:
        for number in numbers:
            send_to_group(number) if group else os.kill(os.getpid(), number)
            time.sleep(pause)

    _do_at_call(function, call, send, after, rank)


def send_to_group(number: int) -> None:
    """Send a signal to the process group from a process outside of it: workers tell their parent's signals apart."""
    group, sender = os.getpgrp(), os.fork()
    if not sender:
        os.setpgid(0, 0)
        os.killpg(group, number)
        os._exit(0)
    os.waitpid(sender, 0)


def second_run(
    function: str, call: int, argv: list[str], report: str, after: bool = False, at_death: bool = False
) -> None:
    """Run a second script at a call of a function, in a process of its own, while the first one waits.

    Args:
        function: as in ``at_call``, and so are ``call`` and ``after``.
        argv: the second script and its flags.
        report: file for the status and the output of the second script, as JSON.
        at_death: run it not at that call, but when the first process has been killed there.
    """
    receiver, sender = os.pipe()
    first, second = os.getpid(), os.fork()
    if second:
        os.close(receiver)
        if at_death:
            _do_at_call(function, call, lambda: os.kill(os.getpid(), signal.SIGKILL), after)
        else:
            _do_at_call(function, call, lambda: (os.write(sender, b"go"), os.waitpid(second, 0)), after)
            AT_THE_END.append(lambda: os.close(sender))
        return
    os.close(sender)
    if at_death:
        group = os.getpgrp()
        os.setpgid(0, 0)  # The group is killed when its rank has ended.
        while os.getppid() == first:
            time.sleep(0.01)
        os.killpg(group, 0)  # This raises an error if the first process has left no other one behind.
    elif not os.read(receiver, 2):
        os._exit(0)
    status = 1
    with tempfile.TemporaryFile() as output:
        try:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.argv = argv
            status = report_errors(importlib.import_module(argv[0]).main)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            output.seek(0)
            content = json.dumps({"status": status, "printed": output.read().decode()})
            Path(f"{report}.tmp").write_text(content)
            os.replace(f"{report}.tmp", report)
            os._exit(0)


def _do_at_call(function: str, call: int, action: Callable[[], object], after: bool, rank: int = 0) -> None:
    """Do something once, before or after a call of a function. The arguments are those of ``at_call``."""
    if not is_rank(rank):
        return
    module, _, path = function.partition(":")
    *classes, name = path.split(".")
    place = importlib.import_module(module)
    for part in classes:
        place = getattr(place, part)
    original, calls, process = getattr(place, name), 0, os.getpid()

    @functools.wraps(original)
    def replaced(*arguments, **keywords):
        nonlocal calls
        calls += 1
        due = calls == call and os.getpid() == process
        if due and not after:
            action()
        result = original(*arguments, **keywords)
        if due and after:
            action()
        return result

    # Other modules may have imported the function by its name.
    users = [module for module in sys.modules.values() if vars(module).get(name) is original]
    for user in (place, *users):
        setattr(user, name, replaced)


def failing(function: str, number: int) -> None:
    """Every call of this function raises the OSError with this number.

    Args:
        function: "package.module:function".
    """
    module, _, name = function.partition(":")

    def fail(*_arguments, **_keywords):
        raise OSError(number, os.strerror(number))

    setattr(importlib.import_module(module), name, fail)


def is_rank(rank: int) -> bool:
    """Whether this process has the rank."""
    return int(os.environ.get("RANK", "0")) == rank


def quick_orphans() -> None:
    """Processes that prepare batches look every 0.2 s, not every 5 s, whether their parent still lives."""
    torch.utils.data._utils.worker.MP_STATUS_CHECK_INTERVAL = 0.2


def forked_cells() -> None:
    """Cells of lab/run_paper.py are forks of its process, which saves each of them the imports, and not of a server."""
    runner = importlib.import_module("lab.paper.runner")
    runner._context = lambda: multiprocessing.get_context("fork")
