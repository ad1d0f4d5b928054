"""Pre-train until a step is done, then stop on SIGUSR1 as a batch system does, with a checkpoint.

    torchrun --nproc_per_node 2 tests/programs/stopped_training.py STEP FLAGS...

A STEP of 0 does not stop.
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import run_pretraining
from bert_training.files.processes import STOPPED


def main(step: int, flags: list[str]) -> None:
    log = run_pretraining.Progress.log

    def log_and_signal(self, done):
        log(self, done)
        if done.index == step and self.run.rank == self.run.world_size - 1:  # one process is enough
            os.kill(os.getpid(), signal.SIGUSR1)

    run_pretraining.Progress.log = log_and_signal
    try:
        run_pretraining.main(flags)
    except SystemExit as ended:
        if ended.code != STOPPED:  # torchrun takes any other status than 0 for a failure
            raise


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
