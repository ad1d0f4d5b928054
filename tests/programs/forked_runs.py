"""Runs of run_pretraining.py, each in a fork of a process that has imported everything, so that a start costs no time.

tests/engine/test_kill.py and tests/scripts/test_run_pretraining.py start this program:

    python tests/programs/forked_runs.py killed '{"flags": [...], "folder": "...", "points": 3, "seed": 0}'
    python tests/programs/forked_runs.py pair '{"flags": [...]}'

"killed" makes runs that SIGKILL ends at a random line, and resumes each of them. The line is drawn from all lines of
the training loop, the checkpoints and the records that an uninterrupted run executes. It may therefore lie in the
middle of a step, of an accumulation window or of a checkpoint that is being written.
"pair" makes one run of two processes, with the environment variables that torchrun sets.
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
from training.engine import checkpoint, launch, loop, run
from training.engine.errors import report_errors

# Both are made from the records after the training, and would take half of the time of so short a run.
run_pretraining.draw_curves = run_pretraining.write_model_card = lambda *_, **__: None
TRACED = {module.__file__ for module in (checkpoint, launch, loop, run)}


class Lines:
    """Counts the lines of TRACED that this process executes, and kills it at line number ``fatal``."""

    def __init__(self, fatal: int | None):
        self.passed, self.fatal, self.process = 0, fatal, os.getpid()

    def calls(self, frame, event, argument):
        return self.lines if frame.f_code.co_filename in TRACED else None

    def lines(self, frame, event, argument):
        if event == "line" and os.getpid() == self.process:  # The processes that make batches do not count.
            self.passed += 1
            if self.passed == self.fatal:
                os.kill(self.process, signal.SIGKILL)
        return self.lines


def fork(work: Callable[[], int]) -> int:
    """Start a child process that does ``work`` and exits with its return value. Return the id of the child."""
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
    """Wait for the child. Return its exit status, or the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def train(flags: list[str], folder: Path, workers: int, count: bool = False, fatal: int | None = None) -> int:
    """Make one run in a child process. Return how it ended, like ``ended``."""

    def work() -> int:
        output = os.open(folder.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        lines = Lines(fatal)
        if count or fatal:
            sys.settrace(lines.calls)
        more = ["--output_dir", str(folder), "--dataloader_num_workers", str(workers)]
        status = report_errors(lambda: run_pretraining.main([*flags, *more]))
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
        return report_errors(lambda: run_pretraining.main(flags))

    children = [fork(lambda rank=rank: work(rank)) for rank in range(2)]
    assert [ended(child) for child in children] == [0, 0]


if __name__ == "__main__":
    {"killed": killed, "pair": pair}[sys.argv[1]](**json.loads(sys.argv[2]))
