"""Measure what practitioners ask for: abstaining, finding wrong labels, and LoRA beside full fine-tuning.

    python lab/benchmarks/practice.py abstention --data clinc_full.json --model MODEL --work_dir DIR
    python lab/benchmarks/practice.py doubts --data MRPC/train.tsv --model MODEL --work_dir DIR
    python lab/benchmarks/practice.py lora --data SST-2 --model MODEL --work_dir DIR

Each writes a record with its table into lab/records/; finished runs in DIR are not done again. MODEL is any BERT;
the records are of all-MiniLM-L6-v2 (6 layers, 384 units). abstention: CLINC150 (Larson et al. 2019) with 50 texts of
each of the 150 classes and all texts of none. doubts: the first 1,800 pairs of MRPC, of which every twentieth got the
wrong label. lora: the first 2,000 sentences of SST-2, with its validation data.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bert_tools.doubts import Judged, doubts, judged_labels
from bert_training.tasks.classification.abstention import abstention, find_threshold
from lab.benchmarks.markdown import markdown
from lab.benchmarks.provenance import ROOT, provenance
from lab.tables import write_pages

OTHER = "oos"  # the label of CLINC150's texts of none of the classes
PAIRS, WRONG = 1800, 0.05
EXAMPLES = 2000


def run(script_flags: dict[str, Any], folder: Path) -> None:
    """Fine-tune with run_glue.py in a process of its own, unless that is done."""
    if (folder / "all_results.json").exists() or (folder / "summary.json").exists():
        return
    words = [f"--{name}={value}" for name, value in script_flags.items()]
    command = [sys.executable, "run_glue.py", *words, f"--output_dir={folder}", "--save_steps=0"]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def write_rows(path: Path, rows: list[dict[str, str | None]]) -> Path:
    """Write .jsonl unless it is there; return the path."""
    if not path.exists():
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def results_of(folder: Path) -> dict[str, Any]:
    """What is in all_results.json."""
    return json.loads((folder / "all_results.json").read_text(encoding="utf-8"))


def shares_of(path: Path) -> np.ndarray:
    """The probabilities (rows, classes) in a file of predictions."""
    return np.array([[*json.loads(line)["probabilities"].values()] for line in path.read_text().splitlines()])


# --- abstention ------------------------------------------------------------------------------------------------


def measure_abstention(data: Path, model: str, folder: Path) -> dict[str, Any]:
    """In-scope accuracy and recall of texts of none of the classes, by two thresholds and by a class of their own."""
    given = json.loads(data.read_text(encoding="utf-8"))
    seen: Counter[str] = Counter()
    few = []
    for text, label in given["train"]:
        seen[label] += 1
        few += [(text, label)] if seen[label] <= 50 else []
    parts: dict[str, list[Any]] = {
        "train": few,
        "train_oos": few + given["oos_train"],
        "validation": given["val"],
        "validation_oos": given["val"] + given["oos_val"],
        "test_oos": given["test"] + given["oos_test"],
    }
    rows = {name: [{"text": text, "label": label} for text, label in part] for name, part in parts.items()}
    files = {name: write_rows(folder / f"{name}.jsonl", part) for name, part in rows.items()}
    for name in ("validation", "test"):
        without = [row | ({"label": None} if row["label"] == OTHER else {}) for row in rows[f"{name}_oos"]]
        files[f"{name}_none"] = write_rows(folder / f"{name}_none.jsonl", without)
    training = {"model_name_or_path": model, "max_seq_length": 40, "num_train_epochs": 2, "learning_rate": 5e-4}
    own = {"train_file": files["train"], "validation_file": files["validation"]}
    run(training | own, folder / "classes")
    own = {"train_file": files["train_oos"], "validation_file": files["validation_oos"], "test_file": files["test_oos"]}
    run(training | own, folder / "class_oos")
    judged = {"validation_file": files["validation_none"], "test_file": files["test_none"], "calibrate": "abstain"}
    run({"model_name_or_path": folder / "classes"} | judged, folder / "abstains")

    shares = {
        name: shares_of(folder / "abstains" / f"predictions_{name}.jsonl")
        for name in ("validation", "other", "test", "test_other")
    }
    classes = [
        *json.loads((folder / "abstains" / "predictions_test.jsonl").read_text().splitlines()[0])["probabilities"]
    ]
    labels = {
        name: [classes.index(label) for _, label in given[key]]
        for name, key in (("validation", "val"), ("test", "test"))
    }
    found: dict[str, Any] = {"every text gets a class": 0.0}
    found["threshold, without other texts"] = find_threshold(shares["validation"], labels["validation"])
    found["threshold, with 100 other texts"] = find_threshold(
        shares["validation"], labels["validation"], shares["other"]
    )
    effects = {
        name: abstention(shares["test"], labels["test"], below, shares["test_other"]) for name, below in found.items()
    }
    ours = results_of(folder / "abstains")
    assert abs(effects["threshold, with 100 other texts"]["right"] - ours["test_abstention"]["right"]) < 1e-3
    of_class = results_of(folder / "class_oos")
    answers = [
        json.loads(line)["label"] for line in (folder / "class_oos" / "predictions_test.jsonl").read_text().splitlines()
    ]
    truth = [row["label"] for row in rows["test_oos"]]
    known = [answer == true for answer, true in zip(answers, truth) if true != OTHER]
    effects[f'class "{OTHER}" from 100 texts'] = {
        "right": float(np.mean(known)),
        "coverage": float(np.mean([answer != OTHER for answer, true in zip(answers, truth) if true != OTHER])),
        "other_recall": of_class["test_by_class"][OTHER]["recall"],
    }
    return effects


def abstention_table(effects: dict[str, Any]) -> str:
    """The table of abstention.json."""
    head = ("test data", "threshold", "answered", "right, of the 4,500 in scope", "left out, of the 1,000 of none")
    rows = [
        [
            name,
            f"{one['threshold']:.3f}" if "threshold" in one else "",
            *(f"{100 * one[key]:.1f} %" for key in ("coverage", "right", "other_recall")),
        ]
        for name, one in effects.items()
    ]
    return markdown(head, rows)


# --- doubts ----------------------------------------------------------------------------------------------------


def measure_doubts(data: Path, model: str, folder: Path) -> dict[str, Any]:
    """How many of the wrong labels stand among as many rows at the head of a ranking."""
    lines = [line.split("\t") for line in data.read_text(encoding="utf-8-sig").split("\n")[1:] if line]
    pairs = [cells for cells in lines if len(cells) == 5][:PAIRS]
    wrong = {*random.Random(0).sample(range(len(pairs)), round(WRONG * len(pairs)))}
    names = ("different", "equivalent")
    rows = [
        {"id": str(n), "sentence1": cells[3], "sentence2": cells[4], "label": names[int(cells[0]) ^ (n in wrong)]}
        for n, cells in enumerate(pairs)
    ]
    flags = {"model_name_or_path": model, "max_seq_length": 96, "num_train_epochs": 2, "learning_rate": 2e-4}
    flags |= {"per_device_train_batch_size": 16, "train_file": write_rows(folder / "rows.jsonl", rows), "folds": 3}
    run(flags, folder / "folds")
    (judged,) = judged_labels(folder / "folds")
    summary = json.loads((folder / "folds" / "summary.json").read_text(encoding="utf-8"))
    found = doubts(judged)

    def hits(ranked: list[Judged]) -> int:
        return sum(int(one.place) in wrong for one in ranked[: len(wrong)])

    probable = [one.judged for one in found if one.probable]
    right = [max(one.shares, key=one.shares.__getitem__) == names[int(pairs[int(one.place)][0])] for one in judged]
    return {
        "rows": len(judged),
        "wrong": len(wrong),
        "hits": {
            "bert-repro doubts": hits([one.judged for one in found]),
            "the loss of the given label": hits(sorted(judged, key=lambda one: one.shares[one.given])),
            "by chance": round(len(wrong) ** 2 / len(judged), 1),
        },
        "probable": len(probable),
        "probable_and_wrong": sum(int(one.place) in wrong for one in probable),
        "accuracy_on_given_labels": summary["settings"][0]["metrics"]["eval_accuracy"]["mean"],
        "accuracy_on_true_labels": float(np.mean(right)),
    }


def doubts_table(found: dict[str, Any]) -> str:
    """The table of doubts.json."""
    rows = [
        [name, f"{hits:g} of {found['wrong']}", f"{100 * hits / found['wrong']:.0f} %"]
        for name, hits in found["hits"].items()
    ]
    return markdown(
        (f"the first {found['wrong']} of {found['rows']:,} rows by", "wrong labels among them", "precision"), rows
    )


# --- LoRA ------------------------------------------------------------------------------------------------------

MEASURED = (
    "import sys, run_glue; from lab.benchmarks.peak import peak_bytes; run_glue.main(sys.argv[1:]); print(peak_bytes())"
)


def measure_lora(data: Path, model: str, folder: Path) -> dict[str, Any]:
    """Accuracy, seconds, and the peak of the process's memory, of full training and of LoRA, each with its rate."""
    flags = {"model_name_or_path": model, "task_name": "sst2", "data_dir": data, "max_train_samples": EXAMPLES}
    flags |= {"max_seq_length": 64, "num_train_epochs": 2, "per_device_train_batch_size": 32, "save_steps": 0}
    ways: dict[str, dict[str, Any]] = {
        "full training": {"learning_rate": 2e-4},
        "LoRA, rank 8": {"learning_rate": 2e-3, "lora_rank": 8},
        "LoRA, rank 8, layers computed twice": {"learning_rate": 2e-3, "lora_rank": 8, "gradient_checkpointing": True},
    }
    found = {}
    for number, (name, way) in enumerate(ways.items()):
        place = folder / str(number)
        words = [f"--{flag}={value}" for flag, value in (flags | way | {"output_dir": place}).items()]
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, *words], cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True
        )
        results, run = results_of(place), json.loads((place / "run.json").read_text(encoding="utf-8"))
        trained = re.search(r"([\d,]+) weights are trained", done.stdout)
        found[name] = way | {
            "eval_accuracy": results["eval_accuracy"],
            "train_runtime": results["train_runtime"],
            "peak_bytes": int(done.stdout.split()[-1]),
            "weights_trained": int(trained[1].replace(",", "")) if trained else run["parameters"],
        }
    return found


def lora_table(found: dict[str, Any]) -> str:
    """The table of lora.json."""
    head = ("SST-2", "learning rate", "weights trained", "accuracy", "peak of memory, MB", "seconds")
    rows = [
        [name, f"{one['learning_rate']:g}", f"{one['weights_trained']:,}", f"{100 * one['eval_accuracy']:.1f} %",
         f"{one['peak_bytes'] / 1e6:,.0f}", f"{one['train_runtime']:.0f}"]
        for name, one in found.items()
    ]  # fmt: skip
    return markdown(head, rows)


# --- the command -----------------------------------------------------------------------------------------------

MEASURES = {
    "abstention": (measure_abstention, abstention_table),
    "doubts": (measure_doubts, doubts_table),
    "lora": (measure_lora, lora_table),
}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=MEASURES)
    for name in ("data", "model", "work_dir"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    measure, table = MEASURES[args.what]
    folder = Path(args.work_dir).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    record = provenance("lab/benchmarks/practice.py", device="cpu")
    found = measure(Path(args.data), args.model, folder)
    record |= {"results": found, "table": table(found).splitlines()}
    path = ROOT / "lab" / "records" / f"{args.what}.json"
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_pages()


if __name__ == "__main__":
    main()
