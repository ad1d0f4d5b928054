"""Does it help to leave repeated text out? Pre-training at equal steps, with and without --deduplicate.

    python lab/benchmarks/deduplication.py --text wiki.txt.xz --held_out wiki_heldout.txt --work_dir /tmp/texts
    python lab/benchmarks/deduplication.py --text wiki.txt.xz --held_out wiki_heldout.txt --work_dir /tmp/texts --smoke

The first documents of a real text are trained on as they are, and with what texts of the web have: copies of a share of
the documents, and lines of a menu and a licence under many of them. The repeated text is read without the flag and with
each of its values, with one vocabulary, from the same seeds, for the same number of steps, and evaluated on the same
held-out text. The result is the record deduplication.json. Finished runs in the work folder are not repeated.
"""

import argparse
import itertools
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from bert_training.inputs.texts import read_documents
from lab.benchmarks.provenance import ROOT, provenance

RECORD = ROOT / "lab" / "records" / "deduplication.json"
BOILERPLATE = [
    *("Home", "About us", "Contact", "Terms of use", "Share this page", "Subscribe to our newsletter"),
    "This text is available under a free licence; additional terms may apply.",
    "All rights reserved. No part of this page may be reproduced without permission.",
]
VARIANTS = {  # name: (text, flags)
    "as it is": ("plain.txt", []),
    "repeated": ("repeated.txt", []),
    "repeated, without documents": ("repeated.txt", ["--deduplicate", "documents"]),
    "repeated, without lines": ("repeated.txt", ["--deduplicate", "lines"]),
    "repeated, without both": ("repeated.txt", ["--deduplicate", "both"]),
}
KEPT = ("eval_mlm_loss", "eval_mlm_accuracy", "eval_nats_per_word")


def main(argv: list[str] | None = None) -> None:
    """Run what is missing, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="a real text, as run_pretraining.py reads it")
    parser.add_argument("--held_out", type=Path, required=True, help="other text of the same kind")
    parser.add_argument("--work_dir", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=4000, help="of the text, the first ones (4000)")
    parser.add_argument("--copied", type=float, default=0.3, help="share of the documents that are copied (0.3)")
    parser.add_argument("--copies", type=int, default=4, help="of each of these (4)")
    parser.add_argument("--config_name", default="mini", help="the size of the network (mini)")
    parser.add_argument("--steps", type=int, default=2000, help="optimiser steps of 32 x 128 (2000)")
    parser.add_argument("--seeds", type=int, default=3, help="of each variant (3)")
    parser.add_argument("--smoke", action="store_true", help="a few steps, and no record: to see that it works")
    args = parser.parse_args(argv)
    if args.smoke:
        args.documents, args.steps, args.seeds, args.config_name = 60, 3, 1, "tiny"
    origin = provenance("lab/benchmarks/deduplication.py", argv)
    write_texts(args)
    rows = {name: [measured(args, name, seed) for seed in range(1, args.seeds + 1)] for name in VARIANTS}
    settings = {
        name: getattr(args, name) for name in ("config_name", "documents", "copied", "copies", "steps", "seeds")
    }
    if not args.smoke:
        write_json(RECORD, origin | {"text": args.text.name, "settings": settings, "variants": rows})
    print(json.dumps(rows, indent=1))


def write_texts(args: argparse.Namespace) -> None:
    """plain.txt, repeated.txt and a vocabulary of the first."""
    args.work_dir.mkdir(parents=True, exist_ok=True)
    if (args.work_dir / "vocabulary" / "vocab.txt").is_file():
        return
    rng = random.Random(42)
    documents = list(itertools.islice(read_documents([args.text]), args.documents))
    everything = [[*lines, *footer(rng)] for lines in documents]
    everything += rng.sample(everything, round(args.copied * len(documents))) * args.copies
    rng.shuffle(everything)
    for name, texts in (("plain.txt", documents), ("repeated.txt", everything)):
        content = "\n\n".join("\n".join(lines) for lines in texts)
        (args.work_dir / name).write_text(content + "\n", encoding="utf-8")
    words = ["vocabulary", "--train_file", args.work_dir / "plain.txt", "--vocab_size", 8192]
    run(["-m", "bert_training", *words, "--output_dir", args.work_dir / "vocabulary"])


def footer(rng: random.Random) -> list[str]:
    """The lines under a document; half of them have none."""
    return rng.sample(BOILERPLATE, 4) if rng.random() < 0.5 else []


def measured(args: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    """The results of one run, and what was left out of its text."""
    text, flags = VARIANTS[name]
    folder = args.work_dir / f"{name.replace(',', '').replace(' ', '_')}-{seed}"
    words = ["run_pretraining.py", "--recipe", "fast", "--config_name", args.config_name]
    words += ["--train_file", args.work_dir / text, "--validation_file", args.held_out, *flags, "--seed", seed]
    words += ["--tokenizer_name", args.work_dir / "vocabulary", "--max_steps", args.steps, "--eval_steps", 0]
    if args.smoke:
        words += ["--initial_weights", "random", "--max_eval_instances", 16]
    run([*words, "--resume_from_checkpoint", "auto", "--output_dir", folder])
    results = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    found = {key: results[key] for key in KEPT if key in results}
    return found | {"corpus": facts["corpus"], "deduplicated": facts.get("deduplicated")}


def run(words: list[Any]) -> None:
    """Start a script of the project with this Python."""
    subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
