"""Run run_pretraining.py, killed at a chosen line and resumed; started by test_kill.py.

    python tests/kill_runs.py '{"flags": [...], "folder": "...", "points": 3, "seed": 0}'

Each run is a fork of this process, which has imported everything and run nothing: a start costs no seconds. The line
at which a run dies by SIGKILL is drawn from all lines of the training loop, of checkpoints and of records that an
unbroken run passes through, so the draws fall into steps, accumulation windows and half-written checkpoints alike.
"""

import json
import os
import random
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import run_pretraining
from training import batches, checkpoint, loop, run

# Made from the records when the run is over; half of the time of a run this short.
run_pretraining.draw_curves = run_pretraining.write_model_card = lambda *_, **__: None
TRACED = {module.__file__ for module in (batches, checkpoint, loop, run)}


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


def fork(flags: list[str], folder: Path, workers: int, count: bool = False, fatal: int | None = None) -> int:
    """Run the script in a child; returns how it ended, as ``os.waitstatus_to_exitcode`` has it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
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
    finally:
        sys.stdout.flush()
        os._exit(status)


def main(flags: list[str], folder: str, points: int, seed: int) -> None:
    draw, parent = random.Random(seed), Path(folder)
    passed = {}
    for workers in (0, 2):
        whole = parent / f"whole-{workers}"
        assert fork(flags, whole, workers, count=True) == 0, whole.with_suffix(".out").read_text()
        passed[workers] = int(whole.with_suffix(".lines").read_text())
    for number in range(points):
        workers, broken = (0, 2)[number % 2], parent / f"killed-{number}"
        fatal = draw.randint(1, passed[workers])
        assert fork(flags, broken, workers, fatal=fatal) == -signal.SIGKILL
        left = sorted(path.name for path in broken.glob("checkpoint-*"))
        print(f"{broken.name}: workers {workers}, line {fatal} of {passed[workers]}, left {left}", flush=True)
        status = fork([*flags, "--resume_from_checkpoint", "auto"], broken, workers)
        assert status == 0, broken.with_suffix(".out").read_text()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
