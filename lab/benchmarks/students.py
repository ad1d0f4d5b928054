"""What a teacher is worth to a model of half its layers: scores over seeds, and how many times as fast it is.

    python lab/benchmarks/students.py --model CHECKPOINT --data DATA --work_dir /tmp/students
    python lab/benchmarks/students.py --model CHECKPOINT --data DATA --work_dir /tmp/students --tasks mrpc --smoke

For each task and seed, the checkpoint is fine-tuned: that is the teacher. Three students have the layers of
--keep_layers: those of the teacher, learning from it; those of the teacher, learning from the labels alone; and those
of the checkpoint, learning from the labels. All of them see the same rows equally often. Each row of a table is a
mean over the seeds, and its share of the teacher's score a mean of the shares, seed by seed.

The speed is measured in this process, the teacher and a student in turn, on the same rows of the task: optimiser steps,
and forward passes as in use. The rows are added to the record students.json as soon as a task is measured. Finished
runs in the work folder are not repeated.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.engine.optimizer import create_optimizer
from bert_training.files.atomic import write_json
from bert_training.tasks.statistics import mean_interval
from lab.benchmarks.idle import add_flag, demand_idle_cores
from lab.benchmarks.provenance import ROOT, provenance
from modeling_bert_repro import BertForSequenceClassification

RECORD = ROOT / "lab" / "records" / "students.json"
TEACHER, TAUGHT = "teacher", "teacher's layers, teacher and labels"
# Who is trained: the weights, whether they lose layers, and whether there is a teacher.
TRAINED = {
    TEACHER: ("model", False, False),
    TAUGHT: ("teacher", True, True),
    "teacher's layers, labels alone": ("teacher", True, False),
    "checkpoint's layers, labels alone": ("model", True, False),
}
TASKS = {
    "mrpc": ("MRPC", "eval_f1"),
    "sst2": ("SST-2", "eval_accuracy"),
    "stsb": ("STS-B", "eval_spearmanr"),
}
BATCH, ROUNDS, REPEATS = 32, 9, 4


def main(argv: list[str] | None = None) -> None:
    """Run what is missing, and add it to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a BERT with real weights")
    parser.add_argument("--data", type=Path, required=True, help="a folder with glue/MRPC, glue/SST-2 and glue/STS-B")
    parser.add_argument("--work_dir", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS], default=[*TASKS])
    parser.add_argument("--keep_layers", default="0,2,4", help="layers of the students (0,2,4)")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each model (5)")
    parser.add_argument("--examples", type=int, default=8000, help="of the training data, the first ones (8000)")
    parser.add_argument("--epochs", type=float, default=3, help="of the teacher (3)")
    parser.add_argument("--student_epochs", type=float, default=5, help="of every student (5)")
    parser.add_argument("--learning_rate", default="5e-5", help="of the teacher (5e-5)")
    parser.add_argument("--student_learning_rate", default="1e-4", help="of every student (1e-4)")
    parser.add_argument("--smoke", action="store_true", help="a few steps, and no record: to see that it works")
    add_flag(parser)
    args = parser.parse_args(argv)
    if args.smoke:
        args.seeds, args.examples, args.epochs, args.student_epochs, args.busy = 2, 64, 1, 1, True
    for task in args.tasks:
        origin = provenance("lab/benchmarks/students.py", argv)
        runs = {name: [run(args, task, name, seed) for seed in range(42, 42 + args.seeds)] for name in TRAINED}
        idle = demand_idle_cores(args.busy)
        row = {"task": task, "metric": TASKS[task][1], "settings": settings_of(args), "models": summaries(runs)}
        row["speed"] = speed(args, task)
        print(f"{task}: {json.dumps(row, indent=1)}", flush=True)
        if not args.smoke:
            record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
            write_json(RECORD, record | {task: origin | idle | row})


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """What the runs of a task were given."""
    names = ("keep_layers", "examples", "epochs", "student_epochs", "learning_rate", "student_learning_rate")
    return {"model": Path(args.model).resolve().parent.name} | {name: getattr(args, name) for name in names}


def folder_of(args: argparse.Namespace, task: str, name: str, seed: int) -> Path:
    """The output folder of a run."""
    return args.work_dir / f"{task}-{name.replace(chr(39), '').replace(',', '').replace(' ', '_')}" / f"seed-{seed}"


def run(args: argparse.Namespace, task: str, name: str, seed: int) -> float:
    """Train one model, unless it is finished; its score."""
    start, keeps, learns = TRAINED[name]
    folder, teacher = folder_of(args, task, name, seed), folder_of(args, task, TEACHER, seed)
    epochs, rate = (args.epochs, args.learning_rate) if name == TEACHER else (
        args.student_epochs, args.student_learning_rate)  # fmt: skip
    title, metric = TASKS[task]
    words = ["run_glue.py", "--task_name", task, "--data_dir", args.data / "glue" / title, "--output_dir", folder]
    words += ["--model_name_or_path", teacher if start == "teacher" else args.model, "--seed", seed]
    words += ["--max_seq_length", 128, "--max_train_samples", args.examples, "--save_steps", 0]
    words += ["--num_train_epochs", epochs, "--learning_rate", rate, "--resume_from_checkpoint", "auto"]
    words += ["--max_eval_samples", 64] if args.smoke else []
    words += ["--keep_layers", args.keep_layers] if keeps else []
    words += ["--teacher", teacher] if learns else []
    subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, check=True)
    return json.loads((folder / "all_results.json").read_text(encoding="utf-8"))[metric]


def summaries(runs: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    """Of every model, the scores, their mean and interval, and the share of the teacher's score, seed by seed."""
    found = {}
    for name, scores in runs.items():
        shares = [score / other for score, other in zip(scores, runs[TEACHER], strict=True)]
        found[name] = {
            "scores": scores,
            "mean": statistics.mean(scores),
            "interval": mean_interval(scores),
            "share": statistics.mean(shares),
            "share_interval": mean_interval(shares),
        }
    return found


# --- speed -------------------------------------------------------------------------------------------------------


def speed(args: argparse.Namespace, task: str) -> dict[str, Any]:
    """How many times as many steps a second the student takes, and forward passes in use: median and range."""
    folders = [folder_of(args, task, name, 42) for name in (TEACHER, TAUGHT)]
    models = [BertForSequenceClassification.from_pretrained(folder) for folder in folders]
    batches = batches_of(args.data / "glue" / TASKS[task][0] / "dev.tsv", folders[0])
    found = {}
    for what, make in (("steps", training), ("forward passes", reading)):
        works = [make(model) for model in models]
        seconds: list[list[float]] = [[], []]
        for _ in range(1 + (1 if args.smoke else ROUNDS)):  # the first round warms up
            for times, work in zip(seconds, works, strict=True):
                begun = time.perf_counter()
                for batch in itertools.islice(itertools.cycle(batches), REPEATS):
                    work(batch)
                times.append((time.perf_counter() - begun) / REPEATS)
        ratios = [slow / fast for slow, fast in zip(seconds[0][1:], seconds[1][1:], strict=True)]
        found[what] = {
            "ratio": statistics.median(ratios),
            "range": [min(ratios), max(ratios)],
            "a_second": [1 / statistics.median(times[1:]) for times in seconds],
        }
    return found | {"threads": torch.get_num_threads()}


def batches_of(file: Path, folder: Path) -> list[dict[str, torch.Tensor]]:
    """Batches of real rows, whose lines stand for their texts."""
    lines = file.read_text(encoding="utf-8").splitlines()[1 : 1 + REPEATS * BATCH]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [
        dict(tokenizer(part, truncation=True, max_length=128, padding=True, return_tensors="pt"))
        for part in (lines[at : at + BATCH] for at in range(0, len(lines), BATCH))
    ]


def training(model: BertForSequenceClassification) -> Callable[[dict[str, torch.Tensor]], None]:
    """A function that takes an optimiser step on a batch."""
    optimizer = create_optimizer(model, 1e-6, 0.01)
    model.config.update({"unpad_inputs": "auto", "fast_dropout": True})  # as the scripts train

    def step(batch: dict[str, torch.Tensor]) -> None:
        model.train()
        model(**batch).logits.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def reading(model: BertForSequenceClassification) -> Callable[[dict[str, torch.Tensor]], None]:
    """A function that reads a batch as a finished model does."""

    @torch.no_grad()
    def forward(batch: dict[str, torch.Tensor]) -> None:
        model.eval()(**batch)

    return forward


if __name__ == "__main__":
    main()
