"""Banking77 with few examples a class: run_glue.py's defaults beside examples/few_examples.py, on the same rows.

    python lab/benchmarks/few_examples.py --data FOLDER --model DIR          # with sentence-transformers

FOLDER has banking77_train.csv and banking77_test.csv (text, category). Every count and seed draws its own rows.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bert_training.files.atomic import write_json
from lab.benchmarks.markdown import markdown
from lab.benchmarks.provenance import ROOT, provenance


def run_glue(model: Path, train: Path, test: Path, output_dir: Path) -> float:
    """The accuracy of the script with its defaults."""
    flags = ["--train_file", train, "--validation_file", test, "--max_seq_length", 64, "--save_steps", 0]
    flags += ["--model_name_or_path", model, "--output_dir", output_dir]
    subprocess.run([sys.executable, "run_glue.py", *map(str, flags)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return json.loads((output_dir / "all_results.json").read_text(encoding="utf-8"))["eval_accuracy"]


def example(model: Path, train: Path, test: Path, epochs: str) -> float:
    """The accuracy that the example prints."""
    words = [sys.executable, "examples/few_examples.py", *map(str, (model, train, test)), epochs]
    done = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    return float(re.findall(r"^accuracy ([\d.]+)", done.stdout, re.MULTILINE)[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--counts", type=int, nargs="+", default=[8, 16, 64], help="examples a class")
    parser.add_argument("--epochs", nargs="+", default=["10", "10", "3"], help="of the example, for each count")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    record: dict[str, Any] = provenance("lab/benchmarks/few_examples.py") | {"scores": {}}
    tables = {
        name: pandas.read_csv(args.data / f"banking77_{name}.csv").rename(columns={"category": "label"})
        for name in ("train", "test")
    }
    with tempfile.TemporaryDirectory() as work:
        test = Path(work, "test.csv")
        tables["test"].to_csv(test, index=False)
        for count, epochs in zip(args.counts, args.epochs, strict=True):
            found = record["scores"][str(count)] = {"run_glue.py": [], "few_examples.py": []}
            for seed in range(args.seeds):
                train = Path(work, f"{count}_{seed}.csv")
                tables["train"].sample(frac=1, random_state=seed).groupby("label").head(count).to_csv(
                    train, index=False
                )
                found["run_glue.py"].append(run_glue(args.model, train, test, Path(work, f"run_{count}_{seed}")))
                found["few_examples.py"].append(example(args.model, train, test, epochs))
                print(count, seed, {name: scores[-1] for name, scores in found.items()}, flush=True)
                write(record)
    print(*record["table"], sep="\n")


def write(record: dict[str, Any]) -> None:
    """The record of what has been measured so far, with its table."""
    rows = [
        [
            str(count),
            *(" ".join(f"{100 * score:.1f}" for score in sorted(scores)) for scores in found.values()),
        ]
        for count, found in record["scores"].items()
    ]
    heads = ("examples a class", "`run_glue.py`, defaults", "`examples/few_examples.py`")
    record["table"] = markdown(heads, rows).splitlines()
    write_json(ROOT / "lab" / "records" / "few_examples.json", record)


if __name__ == "__main__":
    main()
