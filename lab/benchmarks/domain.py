"""Is it worth adapting a model to a domain, and is it worth giving it the domain's words?

    python lab/benchmarks/domain.py --model CHECKPOINT --general wiki_heldout.txt --work_dir /tmp/domain
    python lab/benchmarks/domain.py --model CHECKPOINT --general wiki_heldout.txt --work_dir /tmp/domain --smoke

The domain is the documentation of this Python. One model is compared as it is, after continued pre-training with
`--recipe adapt`, and after that with new pieces: nats a word, pieces a word, the same on a general text (forgetting),
and three tasks of the domain, fine-tuned with few examples and several seeds. The result is the record domain.json.
Finished runs in the work folder are not repeated.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from lab.benchmarks.provenance import ROOT, provenance

RECORD = ROOT / "lab" / "records" / "domain.json"
NEVER = 10**9  # steps between two evaluations: there is one at the end
HELD_OUT = 50  # every so many documents, one is held out
VARIANTS = {
    "as it is": None,
    "continued": [],
    "continued with new pieces": ["--extend_vocab", "{pieces}"],
}
TASKS = {
    "pair": ("run_glue.py", "eval_accuracy", ["--task_name", "builtin_pair"]),
    "kind": ("run_glue.py", "eval_accuracy", ["--task_name", "builtin_classification"]),
    "questions": ("run_squad.py", "eval_f1", ["--max_seq_length", "192", "--doc_stride", "64"]),
}


def main(argv: list[str] | None = None) -> None:
    """Run what is missing, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a BERT with real weights")
    parser.add_argument("--general", type=Path, required=True, help="a general held-out text")
    parser.add_argument("--work_dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=150, help="optimiser steps of 32 x 128 (150)")
    parser.add_argument("--pieces", type=int, default=1000, help="new pieces (1000)")
    parser.add_argument("--seeds", type=int, default=5, help="of each fine-tuning (5)")
    parser.add_argument("--examples", type=int, default=800, help="of each task (800)")
    parser.add_argument("--smoke", action="store_true", help="a few steps, and no record: to see that it works")
    args = parser.parse_args(argv)
    if args.smoke:
        args.steps, args.pieces, args.seeds, args.examples = 4, 50, 2, 40
    write_texts(args.work_dir)
    origin = provenance("lab/benchmarks/domain.py", argv)
    rows = {name: measured(args, name, flags) for name, flags in VARIANTS.items()}
    rows["as it is"] |= first_evaluation(args.work_dir / "continued")
    settings = {name: getattr(args, name) for name in ("steps", "pieces", "seeds", "examples")}
    if not args.smoke:
        write_json(RECORD, origin | {"settings": settings, "variants": rows})
    print(json.dumps(rows, indent=1))


def write_texts(folder: Path) -> None:
    """The documentation of this Python, of which some documents are held out."""
    if (folder / "held_out.txt").is_file():
        return
    run(["-m", "bert_training", "builtin_data", "--output_dir", folder / "documentation"])
    documents = (folder / "documentation" / "corpus.txt").read_text(encoding="utf-8").split("\n\n")
    parts = {"train.txt": [], "held_out.txt": []}
    for number, document in enumerate(documents):
        parts["train.txt" if number % HELD_OUT else "held_out.txt"].append(document)
    for name, texts in parts.items():
        (folder / name).write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def measured(args: argparse.Namespace, name: str, more: list[str] | None) -> dict[str, Any]:
    """The losses and the scores of one variant."""
    model, row = args.model, {}
    if more is not None:
        model = args.work_dir / folder_of(name)
        pretrain(args, model, [word.format(pieces=args.pieces) for word in more])
        row = losses(json.loads((model / "all_results.json").read_text(encoding="utf-8")))
    more = ("--max_train_samples", args.examples, "--num_train_epochs", 2, "--learning_rate", "1e-4")
    tasks = {
        task: fine_tuned(args.work_dir / f"{task}-{folder_of(name)}", model, task, args.seeds, more) for task in TASKS
    }
    return row | {"tasks": tasks}


def pretrain(args: argparse.Namespace, folder: Path, more: list[str]) -> None:
    """Continue the model on the documentation."""
    texts = [args.work_dir / "held_out.txt", args.general]
    step = args.steps // 2
    words = ["run_pretraining.py", "--recipe", "adapt", "--model_name_or_path", args.model, "--output_dir", folder]
    words += ["--train_file", args.work_dir / "train.txt", "--validation_file", *texts, "--max_steps", args.steps]
    words += ["--eval_steps", step, "--max_eval_instances", 64, "--save_steps", step, "--save_total_limit", 1]
    run([*words, "--resume_from_checkpoint", "auto", *more])


def fine_tuned(folder: Path, model: str | Path, task: str, seeds: int, more: Iterable[Any]) -> dict[str, Any]:
    """Mean and interval of the scores of a task over the seeds; ``more`` are further flags."""
    script, metric, flags = TASKS[task]
    words = [script, "--model_name_or_path", model, *flags, "--seeds", seeds, "--output_dir", folder]
    words += ["--max_eval_samples", 200, "--per_device_train_batch_size", 16, "--save_steps", 0, "--eval_steps", NEVER]
    run([*words, *more])
    found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["settings"][0]["metrics"][metric]
    return {name: found[name] for name in ("n", "mean", "std", "interval")}


def folder_of(name: str) -> str:
    """The name of a variant as that of a folder."""
    return name.replace(",", "").replace(" ", "_")


def losses(results: dict[str, Any]) -> dict[str, Any]:
    """The results that can be compared between vocabularies, of the domain and of the general text."""
    kept = ("nats_per_word", "pieces_per_word", "unk_share")
    return {key: value for key, value in results.items() if key.startswith("eval_") and key.endswith(kept)}


def first_evaluation(folder: Path) -> dict[str, Any]:
    """The results before the first step."""
    events = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return losses(next(event for event in events if event["event"] == "eval" and event["step"] == 0))


def run(words: list[Any]) -> None:
    """Start a script of the project with this Python."""
    subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
