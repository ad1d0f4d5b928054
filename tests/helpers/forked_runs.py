"""Runs of run_pretraining.py as forks of a process that has imported everything and run nothing: a start costs no
seconds. Started by tests/engine/test_kill.py and tests/scripts/test_run_pretraining.py.

    python tests/helpers/forked_runs.py killed '{"flags": [...], "folder": "...", "points": 3, "seed": 0}'
    python tests/helpers/forked_runs.py pair '{"flags": [...]}'

killed: runs that die by SIGKILL at a line drawn from all lines of the training loop, of checkpoints and of records
that an unbroken run passes through, so the draws fall into steps, accumulation windows and half-written checkpoints
alike; each is resumed. pair: one run of two processes, with the environment that torchrun gives them.
"""

import json
import os
import random
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import run_pretraining
from training.engine import checkpoint, loop, run

# Made from the records when the run is over; half of the time of a run this short.
run_pretraining.draw_curves = run_pretraining.write_model_card = lambda *_, **__: None
TRACED = {module.__file__ for module in (checkpoint, loop, run)}


class Lines:
    """Counts the lines of TRACED that this process passes, and kills it at number ``fatal``."""

    def __init__(self, fatal: int | None):
        self.passed, self.fatal, self.process = 0, fatal, os.getpid()

    def calls(self, frame, event, argument):
        return self.lines if frame.f_code.co_filename in TRACED else None

    def lines(self, frame, event, argument):
        if event == "line" and os.getpid() == self.process:  # not in the processes that make batches
            self.passed += 1
            if self.passed == self.fatal:
                os.kill(self.process, signal.SIGKILL)
        return self.lines


def fork(work: Callable[[], int]) -> int:
    """The process id of a child that does ``work`` and exits with what it returns."""
    child = os.fork()
    if not child:
        status = 1
        try:
            status = work()
        finally:
            sys.stdout.flush()
            os._exit(status)
    return child


def ended(child: int) -> int:
    """How it ended, as ``os.waitstatus_to_exitcode`` has it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def train(flags: list[str], folder: Path, workers: int, count: bool = False, fatal: int | None = None) -> int:
    """One run in a child; returns how it ended."""

    def work() -> int:
        output = os.open(folder.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        lines = Lines(fatal)
        if count or fatal:
            sys.settrace(lines.calls)
        more = ["--output_dir", str(folder), "--dataloader_num_workers", str(workers)]
        status = run.report_errors(lambda: run_pretraining.main([*flags, *more]))
        sys.settrace(None)
        folder.with_suffix(".lines").write_text(str(lines.passed))
        return status

    return ended(fork(work))


def killed(flags: list[str], folder: str, points: int, seed: int) -> None:
    draw, parent = random.Random(seed), Path(folder)
    whole = parent / "whole"
    assert train(flags, whole, 0, count=True) == 0, whole.with_suffix(".out").read_text()
    passed = int(whole.with_suffix(".lines").read_text())
    for number in range(points):
        workers, broken, fatal = (0, 2)[number % 2], parent / f"killed-{number}", draw.randint(1, passed)
        assert train(flags, broken, workers, fatal=fatal) == -signal.SIGKILL
        left = sorted(path.name for path in broken.glob("checkpoint-*"))
        print(f"{broken.name}: workers {workers}, line {fatal} of {passed}, left {left}", flush=True)
        status = train([*flags, "--resume_from_checkpoint", "auto"], broken, workers)
        assert status == 0, broken.with_suffix(".out").read_text()


def pair(flags: list[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

    def work(rank: int) -> int:
        os.environ.update(common | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        return run.report_errors(lambda: run_pretraining.main(flags))

    children = [fork(lambda rank=rank: work(rank)) for rank in range(2)]
    assert [ended(child) for child in children] == [0, 0]


if __name__ == "__main__":
    {"killed": killed, "pair": pair}[sys.argv[1]](**json.loads(sys.argv[2]))
