"""Runs of the scripts, each in forks of a process that has imported everything, with a fault prepared in them.

lab/tests/helpers/fault_runs.py starts this program, and its function ``run`` describes a request. Each line of the
standard input is one request in JSON, and each line of the standard output is the answer.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import bert_training.__main__
import extract_features  # noqa: F401
import run_glue
import run_ner
import run_pretraining  # noqa: F401
import run_squad
import run_swag  # noqa: F401
from bert_training.engine.errors import report_errors
from bert_training.files.processes import release_all
from bert_training.pretraining import network
from bert_training.tasks import fine_tuning
from lab.tests.helpers.fault_injection import AT_THE_END

GRACE_SECONDS = 15  # which processes of a run have to end after its last rank: torch's workers look after 5 s
assert run_glue and run_ner and run_squad and bert_training.__main__  # imported for the forks


def work(request: dict[str, Any], environment: dict[str, str]) -> int:
    """What a fork does. Returns its exit status."""
    os.chdir(request["folder"])
    os.environ.update(request["environment"] | environment)
    if not request["pictures"]:  # They are made from the records after the training and take half of a short run.
        network.draw_curves = fine_tuning.draw_curves = lambda *_, **__: None
    sys.argv = request["argv"]
    module = importlib.import_module("bert_training.__main__" if sys.argv[0] == "bert_training" else sys.argv[0])

    statuses: list[int | None] = []

    def main() -> None:
        for name, arguments in request["prepare"]:
            prepared, _, function = name.partition(":")
            getattr(importlib.import_module(prepared), function)(**arguments)
        statuses.append(module.main())

    try:
        # `bert-repro` reports errors itself, and its main returns the status.
        return report_errors(main) or (statuses[0] or 0)
    finally:
        sys.settrace(None)
        for call in AT_THE_END:
            call()
        release_all()  # At its end, a process calls this by itself; a fork that ends by os._exit does not.


def fork(request: dict[str, Any], output: int, environment: dict[str, str], group: int) -> int:
    """Start a rank in the process group, or in a group of its own if that is 0. Returns the id of the process."""
    child = os.fork()
    if child:
        with contextlib.suppress(PermissionError, ProcessLookupError):  # the child has done it itself
            os.setpgid(child, group)
        return child
    status = 1
    try:
        os.setpgid(0, group)
        for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            signal.signal(number, handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = work(request, environment)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(status)


def environments(ranks: int) -> list[dict[str, str]]:
    """The variables that torchrun would set for each rank; none for a single process."""
    if ranks == 1:
        return [{}]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(port)}
    return [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def send(number: int, to: str, children: list[int]) -> None:
    """Send a signal to the process group ("group") or to the rank with this number ("0", "1")."""
    with contextlib.suppress(ProcessLookupError):
        if to == "group":
            os.killpg(children[0], number)
        else:
            os.kill(children[int(to)], number)


def alive(group: int) -> bool:
    """Whether a process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Make the run and describe how it ended."""
    with tempfile.TemporaryFile() as file:
        begun, children = time.monotonic(), []
        for environment in environments(request["ranks"]):
            children.append(fork(request, file.fileno(), environment, children[0] if children else 0))
        group, signals = children[0], sorted(request["signals"])
        statuses: dict[int, int] = {}
        timed_out = False
        while len(statuses) < len(children):
            passed = time.monotonic() - begun
            while signals and passed >= signals[0][0]:
                send(signals[0][1], signals[0][2], children)
                signals.pop(0)
            # A rank whose partner was killed would wait for it; torchrun kills it, and so do we.
            broken = any(status not in (0, None) for status in statuses.values())
            if passed > request["seconds"] or broken:
                time.sleep(request["patience"] if broken else 0)
                timed_out = not broken
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            for child in children:
                if child not in statuses:
                    found, status = os.waitpid(child, os.WNOHANG)
                    if found:
                        statuses[child] = os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        ended = time.monotonic()
        while (left := alive(group)) and time.monotonic() - ended < GRACE_SECONDS:
            time.sleep(0.01)
        if left:
            os.killpg(group, signal.SIGKILL)
        file.seek(0)
        return {
            "statuses": [statuses[child] for child in children],
            "printed": file.read().decode(errors="replace"),
            "seconds": ended - begun,
            "timed_out": timed_out,
            "left_behind": left,
        }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
