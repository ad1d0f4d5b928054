"""Runs of run_pretraining.py in this process."""

from pathlib import Path

import run_pretraining


def pretrain(flags) -> Path:
    run_pretraining.main(flags)
    return Path(flags[flags.index("--output_dir") + 1])
