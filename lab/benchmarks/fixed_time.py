"""The race of fixed time: what a pre-training is worth when its minutes are over (lab/notes/speedrun.md).

    python lab/benchmarks/fixed_time.py --what "the recipe as it is" --steps 1900         # tiny, five minutes
    python lab/benchmarks/fixed_time.py --what "..." --steps 1900 --flags "--dropout 0.1"
    python lab/benchmarks/fixed_time.py --smoke                                            # does everything run?

An entry is run_pretraining.py with --recipe fast and the entry's own --flags and --steps. Its seconds run from the
start of the process to its end, so that imports, data, evaluation and saving count, and must not be more than
--seconds. Then the folder is opened in transformers' own class and judged on the instances of the speed run: held-out
masked-LM loss and accuracy of next sentence prediction. At last each network is fine-tuned on three tasks with several
seeds, so that what lowers the loss but does not help tasks cannot win. Nothing of that is timed.

The record fixed_time.json gets every run when it has ended. If the program is stopped, the same command
continues with the runs that are missing; tables.py writes the ledger into the page.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForPreTraining
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from lab.benchmarks import idle
from lab.benchmarks.domain import TASKS, fine_tuned
from lab.benchmarks.held_out import INPUTS, HeldOut
from lab.benchmarks.provenance import ROOT, provenance
from lab.benchmarks.speedrun import SMALL, add_race_flags, open_record, prepare
from lab.tables import fixed_time, in_per_cent

RECORD = ROOT / "lab" / "records" / "fixed_time.json"
ENTRY = "entry"
FINE_TUNING = ("--num_train_epochs", "3", "--learning_rate", "5e-4")  # small networks from little text


def flags_of(args: argparse.Namespace, seed: int, data: Path, folder: Path) -> list[str]:
    """The flags of a run; those of the entry come last and win."""
    shared = {"output_dir": folder, "seed": seed, "max_steps": args.steps, "tokenizer_name": data / "vocabulary"}
    shared |= {"train_file": data / "train.txt", "validation_file": data / "heldout.txt"}
    shared |= {"config_name": args.config_name, "save_steps": 0, "eval_steps": args.steps}
    shared |= {"max_eval_instances": args.instances}
    given = shlex.split(args.flags)
    shared |= {} if "--phases" in given else {"max_seq_length": args.length}
    words = [word for flag, value in shared.items() for word in (f"--{flag}", str(value))]
    return ["--recipe", "fast", *words, *given]


def rules_of(args: argparse.Namespace, data: Path) -> dict[str, Any]:
    """What makes two records one race, and the entry; a record is continued only with the same."""
    names = ("config_name", "length", "instances", "seconds", "seeds", "task_seeds", "examples")
    rules = json.loads((data / "data.json").read_text(encoding="utf-8")) | {name: getattr(args, name) for name in names}
    rules |= {"fine_tuning": shlex.join(FINE_TUNING), "threads": torch.get_num_threads()}
    return rules | {"steps": args.steps, "contestants": {ENTRY: args.flags}}


def make_run(args: argparse.Namespace, seed: int, data: Path) -> dict[str, Any]:
    """Pre-train, judge and fine-tune; the part of the record.

    Raises:
        SystemExit: the run took longer than it may; what to do is said.
    """
    folder = args.work_dir / "entries" / f"seed-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    words = [sys.executable, ROOT / "run_pretraining.py", *flags_of(args, seed, data, folder / "model")]
    started = time.monotonic()
    subprocess.run(words, cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"}, check=True)
    seconds = time.monotonic() - started
    if seconds > args.seconds:
        raise SystemExit(f"{args.steps} steps took {seconds:.0f} of {args.seconds:.0f} seconds; give fewer --steps")
    found = judged(folder / "model", HeldOut(data, "pairs", args.length, args.instances))
    more = ("--max_train_samples", args.examples, *FINE_TUNING)
    tasks = {task: fine_tuned(folder / task, folder / "model", task, args.task_seeds, more) for task in TASKS}
    mean = statistics.mean(in_per_cent(task, score["mean"]) for task, score in tasks.items())
    return {"seed": seed, "seconds": round(seconds, 1), **found, "tasks": tasks, "tasks_mean": mean}


@torch.inference_mode()
def judged(folder: Path, held_out: HeldOut) -> dict[str, float]:
    """The loss in nats, and the share of the pairs whose second half is judged rightly, in transformers' class."""
    model = AutoModelForPreTraining.from_pretrained(folder, trust_remote_code=False).eval()
    right, pairs = 0, 0
    for batch in held_out.batches:
        logits = model(**{name: batch[name] for name in INPUTS}).seq_relationship_logits
        right += int((logits.argmax(-1) == batch["next_sentence_label"]).sum())
        pairs += len(logits)
    return {"loss": held_out.loss(model.state_dict()), "nsp_accuracy": right / pairs}


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_race_flags(parser)
    parser.add_argument("--seconds", type=float, default=300, help="that a run may take (300)")
    parser.add_argument("--steps", type=int, required="--smoke" not in argv, help="optimiser steps of the entry")
    parser.add_argument("--flags", default="", help="flags of the entry, for run_pretraining.py")
    parser.add_argument("--seeds", type=int, default=3, help="pre-trainings, with the seeds 1, 2, ... (3)")
    parser.add_argument("--task_seeds", type=int, default=5, help="fine-tunings of each network on each task (5)")
    parser.add_argument("--examples", type=int, default=800, help="of each task (800)")
    parser.add_argument("--work_dir", type=Path, default=Path("runs/fixed_time"), help="runs and data")
    parser.add_argument("--output", type=Path, help="the record; default: fixed_time.json of the laboratory")
    args = parser.parse_args(argv)
    if args.smoke:
        vars(args).update(SMALL | {"examples": 32, "task_seeds": 2})
    args.output = args.output or (args.work_dir / "fixed_time.json" if args.smoke else RECORD)
    args.work_dir = args.work_dir.resolve()
    return args


def main(argv: list[str] | None = None) -> None:
    """The command."""
    argv = sys.argv[1:] if argv is None else argv
    args = parse(argv)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    data = prepare(args)
    parse_arguments(PretrainingArguments, flags_of(args, 1, data, args.work_dir / "model"))  # mistakes end it here
    rules, origin = rules_of(args, data), provenance("lab/benchmarks/fixed_time.py", argv)
    records, record = open_record(args.output, args.what, rules, origin)
    for seed in range(len(record["runs"]) + 1, args.seeds + 1):
        found = idle.demand_idle_cores(args.busy or args.smoke)
        record["runs"].append(make_run(args, seed, data) | found)
        args.output.parent.mkdir(parents=True, exist_ok=True)
        write_json(args.output, records)
    print(fixed_time(records), end="")


if __name__ == "__main__":
    main()
