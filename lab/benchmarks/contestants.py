"""The contestants of lab/benchmarks/speedrun.py, each run of which is a process: python lab/benchmarks/contestants.py
RUN.json.

The clock of a run starts before its process does. So only the standard library is imported at the top: the import of
what a contestant needs counts, and the import of what the judge needs does not. Nor does any other time of the judge.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

RUN_MLM_TEXTS = 1000  # datasets.map passes so many texts at a time to run_mlm's group_texts


class Clock:
    """The seconds since the start of a run, without those in which it was paused.

    Args:
        started: the reading of ``now`` at the start; ``time.monotonic`` is the same for all processes.
    """

    def __init__(self, started: float, now: Callable[[], float] = time.monotonic) -> None:
        self.started, self.now = started, now

    def seconds(self) -> float:
        """The seconds that count."""
        return self.now() - self.started

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time of this block."""
        begun = self.now()
        try:
            yield
        finally:
            self.started += self.now() - begun


class Stopped(Exception):
    """The run ends before its last step; the argument says why."""


class Judge:
    """Measures the loss of a network while the clock stands still, and stops the run at the target or after its time.

    Args:
        run: the description of the run (``speedrun.describe_run``).
    """

    def __init__(self, run: dict[str, Any], clock: Clock) -> None:
        self.run, self.clock, self.folder = run, clock, Path(run["folder"])
        self.held_out: Any = None

    def look(self, step: int, model: Any) -> dict[str, float]:
        """Record the loss after an optimiser step; at the target, save the network in the folder ``reached``.

        Raises:
            Stopped: the target is reached, or the time is over.
        """
        seconds = self.clock.seconds()
        with self.clock.paused():
            loss = self._loss(model)
            self.write(step=step, seconds=round(seconds, 3), loss=loss)
            if seconds > self.run["seconds"]:
                raise Stopped("out of time")
            if loss <= self.run["target"]:
                model.save_pretrained(self.folder / "reached")
                raise Stopped("reached")
        return {"eval_mlm_loss": loss}

    def write(self, **record: Any) -> None:
        """Append a record to ``judged.jsonl``."""
        with open(self.folder / "judged.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def _loss(self, model: Any) -> float:
        if self.held_out is None:
            from lab.benchmarks.held_out import HeldOut

            self.held_out = HeldOut(Path(self.run["data"]), *self.run["judge"])
        return self.held_out.loss(model.state_dict())


def ours(run: dict[str, Any], judge: Judge) -> None:
    """run_pretraining.py with the flags of the run; the judge takes the place of its own evaluations."""
    import run_pretraining

    def evaluate(self: Any, model: Any, step: int) -> dict[str, float]:
        return judge.look(step, self.run.accelerator.unwrap_model(model))

    run_pretraining.Progress.evaluate = evaluate
    run_pretraining.main(run["flags"])


def transformers_example(run: dict[str, Any], judge: Judge) -> None:
    """What transformers' run_mlm does with a text file: its class, its packed blocks, its collator, its Trainer."""
    from transformers import (
        AutoConfig,
        AutoModelForMaskedLM,
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        HfArgumentParser,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        set_seed,
    )

    class Looks(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step % run["every"] == 0 or state.global_step == state.max_steps:
                judge.look(state.global_step, model.eval())
                model.train()

    (settings,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(run["flags"])
    set_seed(settings.seed)
    tokenizer = AutoTokenizer.from_pretrained(Path(run["data"]) / "vocabulary")
    network = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(Path(run["data"]) / "config"))
    lines = Path(run["data"], "train.txt").read_text(encoding="utf-8").splitlines()
    blocks = packed_blocks(tokenizer, [line for line in lines if line], run["length"])
    collator = DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm_probability=0.15)
    Trainer(network, settings, train_dataset=blocks, data_collator=collator, callbacks=[Looks()]).train()


def packed_blocks(tokenizer: Any, texts: list[str], length: int) -> list[dict[str, list[int]]]:
    """Blocks of ``length`` tokens, cut from the texts laid end to end, as run_mlm makes them by default.

    It takes 1,000 texts at a time and drops what is left of them.
    """
    blocks = []
    for start in range(0, len(texts), RUN_MLM_TEXTS):
        encoded = tokenizer(texts[start : start + RUN_MLM_TEXTS], return_special_tokens_mask=True)
        together = {name: [token for row in rows for token in row] for name, rows in encoded.items()}
        for place in range(0, len(together["input_ids"]) - length + 1, length):
            blocks.append({name: column[place : place + length] for name, column in together.items()})
    return blocks


KINDS: dict[str, Callable[[dict[str, Any], Judge], None]] = {"ours": ours, "transformers": transformers_example}


def main(argv: list[str]) -> None:
    """Make the run that the file describes; the last record of ``judged.jsonl`` says how it ended."""
    run = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    judge = Judge(run, Clock(run["started"]))
    try:
        KINDS[run["kind"]](run, judge)
        end = "all steps done"
    except Stopped as reason:
        end = str(reason)
    judge.write(end=end)


if __name__ == "__main__":
    main(sys.argv[1:])
