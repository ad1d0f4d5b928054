"""The flags of run_paper.py."""

from dataclasses import dataclass, field
from typing import Literal

from training.flags.checks import at_least
from training.flags.natures import flag


@dataclass
class PaperArguments:
    """Which table is made, at which scale, and where; `run_paper.py --help` lists these flags."""

    table: Literal["5", "6", "7", "8", "figure5"] = field(metadata={"help": "The table or the figure of the paper."})
    output_dir: str = field(metadata={"help": "Folder of its runs and of the report. Give it again to go on."})
    scale: Literal["builtin", "small", "paper"] = flag(
        "builtin",
        "builtin: this installation's documentation, minutes on two CPU cores. small: real text and tasks of "
        "--data_dir, hours. paper: the paper's sizes, steps and tasks.",
    )
    data_dir: str | None = flag(
        None,
        "For small and paper: a folder with text/, and with glue/, squad/ and conll/ as far as they are at hand.",
    )
    seeds: int = flag(3, "Number of seeds, from 42 on; each has its own pre-training. At least 2.")
    jobs: int | None = flag(
        None,
        "Runs side by side; if more than 1, with one thread each. Default: 2 at the built-in scale, otherwise 1.",
    )
    smoke: bool = flag(False, "Try the whole path with a few steps of tiny networks; the numbers mean nothing.")
    dry_run: bool = flag(False, "Print every run with its estimated cost, and start none.")

    def __post_init__(self) -> None:
        at_least(self, 2, "seeds")
        if self.jobs is not None:
            at_least(self, 1, "jobs")
        if self.scale == "builtin" and self.data_dir:
            raise ValueError("--data_dir has no effect at the built-in scale; add --scale small, or leave it out")
        if self.scale != "builtin" and self.smoke:
            raise ValueError("--smoke tries the built-in scale; leave --scale and --data_dir out")
        if self.scale != "builtin" and not self.data_dir and not (self.scale == "paper" and self.dry_run):
            raise ValueError(f"--scale {self.scale} needs --data_dir, a folder with text/, glue/, squad/ and conll/")
