"""What the controls of a fine-tuning are worth: each alone, over seeds, compared seed by seed.

    python lab/benchmarks/controls.py --model CHECKPOINT --data DATA --work_dir /tmp/controls
    python lab/benchmarks/controls.py --model CHECKPOINT --data DATA --work_dir /tmp/controls --tasks novels

Two tasks of GLUE have the controls of learning; the novels (lab/long_texts.py), whose passages are about three times
as long as what the network reads, have the ways to read long texts. Each row is a series of runs with one control, and
its paired difference from the series without it (`--compare_to`). It is added to the record controls.json as soon as
it is measured. Finished runs in the work folder are not repeated.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from lab.benchmarks.provenance import ROOT, provenance

RECORD = ROOT / "lab" / "records" / "controls.json"
NONE = "none"
PASSAGES = ["--words", "300", "--train", "30", "--dev", "20"]  # of each of the six novels
LEARNING = {
    NONE: [],
    "class weights": ["--class_weights", "balanced"],
    "cosine schedule": ["--lr_scheduler_type", "cosine"],
    "constant rate": ["--lr_scheduler_type", "constant"],
    "bfloat16": ["--mixed_precision", "bf16"],
}
READING = {
    NONE: [],
    "beginning and end": ["--long_texts", "head_tail"],
    "windows, mean": ["--long_texts", "windows"],
}
# Of each task: what it takes, the flags, the metric and the controls.
TASKS = {
    "cola": ("CoLA", ["--task_name", "cola"], "eval_matthews_correlation", LEARNING),
    "mrpc": ("MRPC", ["--task_name", "mrpc"], "eval_f1", LEARNING),
    "novels": ("text/books.txt.xz", [], "eval_accuracy", READING),
}


def main(argv: list[str] | None = None) -> None:
    """Run what is missing, and add it to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a BERT with real weights")
    parser.add_argument("--data", type=Path, required=True, help="a folder with glue/CoLA, glue/MRPC and text/")
    parser.add_argument("--work_dir", type=Path, required=True)
    rows = list(dict.fromkeys([*LEARNING, *READING]))
    parser.add_argument(
        "--only", nargs="+", choices=rows, help="these rows alone; the row of none is measured before them"
    )
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS], default=[*TASKS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--examples", type=int, default=2000, help="of the training data, the first ones (2000)")
    args = parser.parse_args(argv)
    for task in args.tasks:
        for control in TASKS[task][-1]:
            if args.only and control not in args.only:
                continue
            row = measured(args, control, task)
            record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
            record[f"{task}, {control}"] = provenance("lab/benchmarks/controls.py", argv) | row
            write_json(RECORD, record)
            print(f"{task}, {control}: {row}", flush=True)


def measured(args: argparse.Namespace, control: str, task: str) -> dict[str, Any]:
    """The scores of a series, and its paired differences from the series without a control."""
    _, flags, metric, controls = TASKS[task]
    folder = args.work_dir / f"{task}-{control.replace(' ', '_').replace(',', '')}"
    words = ["run_glue.py", "--model_name_or_path", args.model, "--output_dir", folder, "--seeds", args.seeds]
    words += ["--max_seq_length", 128, "--max_train_samples", args.examples, "--num_train_epochs", 3]
    words += ["--learning_rate", "1e-4", "--save_steps", 0, *flags, *data_flags(args, task)]
    if control != NONE:
        words += ["--compare_to", args.work_dir / f"{task}-{NONE}"]
    subprocess.run([sys.executable, *map(str, words), *controls[control]], cwd=ROOT, check=True)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    found = summary["settings"][0]["metrics"][metric]
    row = {"task": task, "control": control, "metric": metric, "examples": args.examples}
    row |= {name: found[name] for name in ("n", "mean", "std", "interval")}
    return row | ({"compared": summary["comparison"][metric]} if control != NONE else {})


def data_flags(args: argparse.Namespace, task: str) -> list[Any]:
    """Where the data of a task are; those of the novels are made first."""
    if task != "novels":
        return ["--data_dir", args.data / "glue" / TASKS[task][0]]
    folder = args.work_dir / "novels-data"
    if not (folder / "dev.csv").is_file():
        environment = os.environ | {"BERT_REPRO_DATA": str(args.data)}
        words = [sys.executable, "lab/long_texts.py", "--output", str(folder), *PASSAGES]
        subprocess.run(words, cwd=ROOT, check=True, env=environment)
    files = ["--train_file", folder / "train.csv", "--validation_file", folder / "dev.csv"]
    return [*files, "--per_device_train_batch_size", 8, "--num_train_epochs", 5]


if __name__ == "__main__":
    main()
