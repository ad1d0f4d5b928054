"""The flags of lab/run_paper.py."""

from dataclasses import dataclass, field
from typing import Literal

from bert_training.flags.checks import at_least
from bert_training.flags.natures import flag
from tokenization.errors import UserError


@dataclass
class PaperArguments:
    """Which table is made, at which scale, and where; `lab/run_paper.py --help` lists these flags."""

    table: Literal["5", "6", "7", "8", "figure5"] = field(metadata={"help": "The table, or Figure 5, of the paper."})
    output_dir: str = field(
        metadata={"help": "Folder of the runs and the report. Give it again to continue an interrupted table."}
    )
    scale: Literal["builtin", "small", "paper"] = flag(
        "builtin",
        "builtin: this installation's documentation, minutes on two CPU cores. small: real text and tasks of "
        "--data_dir, hours. paper: the paper's sizes, steps and tasks.",
    )
    data_dir: str | None = flag(
        None,
        "For the scales small and paper: a folder with text/ and, for the tasks, glue/, squad/ and conll/.",
    )
    seeds: int = flag(3, "Number of seeds, at least 2. The first one is 42; each has its own pre-training.")
    jobs: int | None = flag(
        None,
        "Number of runs side by side; if there are several, each has one thread. The default is 2 at the built-in "
        "scale and 1 otherwise.",
    )
    smoke: bool = flag(
        False, "Try everything with a few steps of tiny networks at the built-in scale; the numbers mean nothing."
    )
    dry_run: bool = flag(False, "Print every run with its estimated cost, and start none.")

    def __post_init__(self) -> None:
        at_least(self, 2, "seeds")
        if self.jobs is not None:
            at_least(self, 1, "jobs")
        if self.scale == "builtin" and self.data_dir:
            raise UserError("--data_dir has no effect at the built-in scale; add --scale small, or leave it out")
        if self.scale != "builtin" and self.smoke:
            raise UserError("--smoke tries the built-in scale; leave --scale and --data_dir out")
        if self.scale != "builtin" and not self.data_dir and not (self.scale == "paper" and self.dry_run):
            raise UserError(f"--scale {self.scale} needs --data_dir, a folder with text/, glue/, squad/ and conll/")
