"""What the controls of a fine-tuning are worth: each alone, over seeds, on two tasks, compared seed by seed.

    python lab/benchmarks/controls.py --model CHECKPOINT --data DIR_WITH_CoLA_AND_MRPC --work_dir /tmp/controls
    python lab/benchmarks/controls.py --model CHECKPOINT --data DIR --work_dir /tmp/controls --only "class weights"

Each row is a series of runs with one flag, and its paired difference from the series without it (`--compare_to`). It is
added to the record controls.json as soon as it is measured. Finished runs in the work folder are not repeated.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from lab.benchmarks.provenance import ROOT, provenance

RECORD = ROOT / "lab" / "records" / "controls.json"
TASKS = {"cola": ("CoLA", "eval_matthews_correlation"), "mrpc": ("MRPC", "eval_f1")}
CONTROLS = {
    "none": [],
    "class weights": ["--class_weights", "balanced"],
    "label smoothing 0.1": ["--label_smoothing", "0.1"],
    "layer decay 0.9": ["--layer_decay", "0.9"],
    "the lowest 2 layers frozen": ["--freeze_layers", "2"],
    "average of the last 3 evaluations": ["--average_last", "3"],
    "cosine schedule": ["--lr_scheduler", "cosine"],
    "constant rate": ["--lr_scheduler", "constant"],
}


def main(argv: list[str] | None = None) -> None:
    """Run what is missing, and add it to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a BERT with real weights")
    parser.add_argument("--data", type=Path, required=True, help="the folder of the official files of GLUE")
    parser.add_argument("--work_dir", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=[*CONTROLS], default=[*CONTROLS], help="these rows alone")
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS], default=[*TASKS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--examples", type=int, default=2000, help="of the training data, the first ones (2000)")
    args = parser.parse_args(argv)
    for control in dict.fromkeys(["none", *args.only]):
        for task in args.tasks:
            row = measured(args, control, task)
            record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
            record[f"{task}, {control}"] = provenance("lab/benchmarks/controls.py", argv) | row
            write_json(RECORD, record)
            print(f"{task}, {control}: {row}", flush=True)


def measured(args: argparse.Namespace, control: str, task: str) -> dict[str, Any]:
    """The scores of a series, and its paired differences from the series without a control."""
    data, metric = TASKS[task]
    folder = args.work_dir / f"{task}-{control.replace(' ', '_')}"
    words = ["run_glue.py", "--model_name_or_path", args.model, "--task_name", task, "--data_dir", args.data / data]
    words += ["--max_seq_length", 128, "--max_train_samples", args.examples, "--num_train_epochs", 3]
    words += ["--learning_rate", "1e-4", "--save_steps", 0, "--seeds", args.seeds, "--output_dir", folder]
    if control != "none":
        words += ["--compare_to", args.work_dir / f"{task}-none"]
    subprocess.run([sys.executable, *map(str, words), *CONTROLS[control]], cwd=ROOT, check=True)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    found = summary["settings"][0]["metrics"][metric]
    row = {"task": task, "control": control, "metric": metric, "examples": args.examples}
    row |= {name: found[name] for name in ("n", "mean", "std", "interval")}
    return row | ({"compared": summary["comparison"][metric]} if control != "none" else {})


if __name__ == "__main__":
    main()
