"""Whether training in bfloat16 ends where training in float32 ends: the same runs in both types, seed by seed.

    python lab/benchmarks/two_types.py --model CHECKPOINT --data DATA --work_dir /tmp/two_types

A pre-training of the smallest network on the built-in text, and fine-tuning on three tasks. Runs of one seed see the
same batches and differ in --mixed_precision alone. The scores and their paired differences go into the record
two_types.json as soon as a task has been measured. Finished runs in the work folder are not repeated.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from bert_training.tasks.statistics import compare, statistics
from lab.benchmarks.provenance import ROOT, provenance

RECORD = ROOT / "lab" / "records" / "two_types.json"
TYPES = ("no", "bf16")
TINY = "--recipe fast --config_name tiny --max_seq_length 64 --max_steps 300 --eval_steps 300"
SHORT = "--max_seq_length 128 --num_train_epochs 3 --learning_rate 1e-4"
QUESTIONS = "--max_seq_length 384 --doc_stride 128 --num_train_epochs 1 --learning_rate 1e-4"
# Of each task: the script, its flags, the files under DATA that it reads, and its metrics.
TASKS: dict[str, tuple[str, str, dict[str, str], tuple[str, ...]]] = {
    "tiny": ("run_pretraining.py", TINY, {}, ("eval_loss", "eval_mlm_loss", "eval_nsp_accuracy")),
    "mrpc": (
        "run_glue.py",
        f"--task_name mrpc {SHORT}",
        {"--data_dir": "glue/MRPC"},
        ("eval_accuracy", "eval_f1"),
    ),
    "stsb": (
        "run_glue.py",
        f"--task_name stsb {SHORT}",
        {"--data_dir": "glue/STS-B"},
        ("eval_pearson", "eval_spearmanr"),
    ),
    "squad": (
        "run_squad.py",
        QUESTIONS,
        {"--train_file": "squad/train-v1.1.reconstructed.json.xz", "--validation_file": "squad/dev-v1.1.json.xz"},
        ("eval_exact_match", "eval_f1"),
    ),
}


def main(argv: list[str] | None = None) -> None:
    """Run what is missing, and add it to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a BERT with real weights")
    parser.add_argument("--data", type=Path, required=True, help="a folder with glue/MRPC, glue/STS-B and squad/")
    parser.add_argument("--work_dir", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS], default=[*TASKS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--questions", type=int, default=10_000, help="of the training data of SQuAD, the first ones")
    parser.add_argument("--eval_questions", type=int, default=2_000, help="of its validation data, the first ones")
    args = parser.parse_args(argv)
    for task in args.tasks:
        runs = [[run(args, task, of_type, seed) for of_type in TYPES] for seed in range(args.seeds)]
        record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
        record[task] = provenance("lab/benchmarks/two_types.py", argv) | {"metrics": scores(runs, TASKS[task][-1])}
        write_json(RECORD, record)
        print(task, record[task]["metrics"], flush=True)


def run(args: argparse.Namespace, task: str, of_type: str, seed: int) -> dict[str, Any]:
    """The results of one run, as ``compare`` takes them."""
    script, flags, files, _ = TASKS[task]
    folder = args.work_dir / f"{task}-{of_type}-{seed}"
    if not (folder / "all_results.json").is_file():
        words = [script, *flags.split(), "--output_dir", folder, "--seed", seed, "--mixed_precision", of_type]
        words += ["--save_steps", 0, "--resume_from_checkpoint", "auto"]
        words += [word for name, file in files.items() for word in (name, args.data / file)]
        if task != "tiny":
            words += ["--model_name_or_path", args.model]
        if task == "squad":
            words += ["--max_train_samples", args.questions, "--max_eval_samples", args.eval_questions]
        subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, check=True)
    results = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    return {"seed": seed, "results": results}


def scores(runs: list[list[dict[str, Any]]], metrics: tuple[str, ...]) -> dict[str, Any]:
    """Of each metric: its statistics in both types, and bfloat16 minus float32, seed by seed."""
    full, half = zip(*runs, strict=True)
    compared = compare(list(half), list(full), list(metrics))
    found: dict[str, Any] = {}
    for metric in metrics:
        both = [[each["results"][metric] for each in side] for side in (full, half)]
        statistics_of = {of_type: statistics(values, 0) for of_type, values in zip(TYPES, both, strict=True)}
        found[metric] = {"runs": both, "types": statistics_of, "compared": compared[metric]}
    return found


if __name__ == "__main__":
    main()
