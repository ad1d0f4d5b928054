"""A run: its folder, its processes and its records.

``run.json`` says what was run (flags, versions, commit, device, data); ``metrics.jsonl`` contains one JSON object per
event. Every process has a ``Run``, but only the main process writes files. ``bert_training/engine/launch.py`` starts
it.
"""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from accelerate import Accelerator
from tqdm import tqdm

from bert_training.engine.output_folder import unlock_output_dir
from bert_training.engine.tpu import broadcast_object_list
from bert_training.files.atomic import append_line
from bert_training.inputs.flags.shared import SharedArguments
from bert_training.record import write_facts, write_results

Result = TypeVar("Result")
# Covariant, so that the run of any script is accepted as a `Run[SharedArguments]`.
Args_co = TypeVar("Args_co", bound=SharedArguments, covariant=True)


class Run(Generic[Args_co]):
    """A run, as one of its processes sees it.

    Attributes:
        args: the parsed flags; they do not change.
        seed: the seed of the data's order, the instances and dropout.
        is_main: whether this is the process that writes files and prints.
        rank: number of this process, from 0.
        world_size: number of processes.
        facts: the content of run.json, see ``write_facts``.
        saved_step: optimiser step of the last checkpoint written by this start; 0 before the first.
    """

    def __init__(self, args: Args_co, accelerator: Accelerator, facts: dict[str, Any] | None = None):
        self.args = args
        self.seed = args.seed
        self.accelerator = accelerator
        self.device = accelerator.device
        self.is_main = accelerator.is_main_process
        self.rank = accelerator.process_index
        self.world_size = accelerator.num_processes
        self.output_dir = Path(args.output_dir)
        self.facts = facts or {}
        self.saved_step = 0

    @property
    def global_batch_size(self) -> int:
        """Sequences per optimiser step, over all processes and micro-batches."""
        args = self.args
        return args.per_device_train_batch_size * args.gradient_accumulation_steps * self.world_size

    def log(self, **event: Any) -> None:
        """Append one record to ``metrics.jsonl`` and, if there are some, send its numbers to the trackers.

        JSON has no NaN or infinity, such as the norm of gradients that overflow in half precision: null is recorded.
        """
        event = finite(event)
        if self.is_main:
            append_line(self.output_dir / "metrics.jsonl", json.dumps(event))
            if self.accelerator.trackers and "step" in event:
                numbers = {name: value for name, value in event.items() if isinstance(value, int | float)}
                step = numbers.pop("step")
                self.accelerator.log(numbers, step=step)

    def say(self, text: str) -> None:
        """Print a line on the main process, above the progress bar if one is shown."""
        if self.is_main:
            tqdm.write(text, file=sys.stdout)
            sys.stdout.flush()

    def progress(self, total: int, desc: str, initial: int = 0) -> tqdm:
        """A progress bar on the main process; it shows nothing if stderr is not a terminal."""
        quiet = True if not self.is_main else None
        return tqdm(total=total, desc=desc, initial=initial, disable=quiet, dynamic_ncols=True)

    def add_facts(self, **facts: Any) -> None:
        """Add facts for ``run.json``, such as hashes and counts of the data; ``write_facts`` writes them."""
        self.facts.update(facts)

    def write_facts(self) -> None:
        """Write ``run.json``, once, when training or evaluation begins.

        Once run.json exists, no new run may use the folder. It is therefore written only after data and model have
        been checked, so that a mistake in the flags can be corrected without another --output_dir. If the run is
        resumed, its checkpoint has been accepted as well, so that a start that is refused changes no file.
        """
        if self.is_main:
            write_facts(self.output_dir, self.facts)

    def main_first(self, work: Callable[[], Result]) -> Result:
        """Return ``work()``, called on the main process first and then on the others, which find the files it wrote.

        If it raises on the main process, the others exit silently, so that the error is printed once.
        """
        failed = [True]
        try:
            if self.is_main:
                result = work()
                failed = [False]
        finally:
            broadcast_object_list(failed)
        if failed[0]:
            raise SystemExit(2)
        return result if self.is_main else work()

    def only_main(self, work: Callable[[], object]) -> None:
        """Call ``work`` on the main process while the others wait. If it raises, they exit as in ``main_first``."""
        self.main_first(lambda: work() if self.is_main else None)

    def finish(self, results: dict) -> None:
        """Write ``all_results.json``, which marks a finished run, and let other processes into the folder.

        Memory and trackers are released, because further runs may follow in this process (--seeds).
        """
        if self.is_main:
            write_results(self.output_dir, finite(results))
            unlock_output_dir(self.output_dir)
        for tracker in self.accelerator.trackers:
            tracker.finish()
        self.accelerator.free_memory()


def finite(value: Any) -> Any:
    """A nested value for JSON, with None in place of what JSON has no number for: NaN and infinity."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [*map(finite, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
