"""Which learning rate suits a network of which width: three tasks of 1,000 rows, a grid of rates, five seeds.

    python lab/benchmarks/fine_tuning_rate.py --models CHECKPOINT ... --data DATA --work_dir /tmp/rates

The tasks are SST-2, twenty intents of CLINC150, and the names of WNUT 2017; everything but the rate is the default
of the script. A score is added to the record fine_tuning_rate.json as soon as its run is done, and is not repeated.
"""

import argparse
import itertools
import json
import random
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import run_glue
import run_ner
from bert_training.files.atomic import write_json
from lab.benchmarks.provenance import ROOT, provenance

RECORD = ROOT / "lab" / "records" / "fine_tuning_rate.json"
OWN = ("--train_file", "{}/train.jsonl", "--validation_file", "{}/dev.jsonl")
WNUT = ("--train_file", "{}/spans/wnut17train.conll", "--validation_file", "{}/spans/emerging.dev.conll")
# Of each task: the script, its flags, and its metric.
TASKS = {
    "sst2": (run_glue, ("--task_name", "sst2", "--data_dir", "{}/glue/SST-2"), "eval_accuracy"),
    "intents": (run_glue, OWN, "eval_f1_macro"),
    "names": (run_ner, (*WNUT, "--context", "sentence"), "eval_f1"),
}
RATES = [5e-5 * 2**power for power in range(7)]
INTENTS = 20


def main(argv: list[str] | None = None) -> None:
    """Run what is missing, and add it to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, nargs="+", required=True, help="folders with BERTs of several widths")
    parser.add_argument("--data", type=Path, required=True, help="a folder with glue/SST-2, intents/ and spans/")
    parser.add_argument("--work_dir", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS], default=[*TASKS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--mixed_precision", default="no", help="for all runs of this command (no)")
    parser.add_argument("--rows", type=int, default=1000, help="of the training data, the first ones (1000)")
    args = parser.parse_args(argv)
    for model in args.models:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        for task in args.tasks:
            record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
            width = config["hidden_size"]
            origin = provenance("lab/benchmarks/fine_tuning_rate.py", argv)
            facts = {"width": width, "layers": config["num_hidden_layers"], "task": task, "rows": args.rows}
            cell = record.setdefault(f"{width}, {task}, {args.rows}", origin | facts | {"scores": {}})
            for seed, rate in itertools.product(range(args.seeds), args.rates):
                scores = cell["scores"].setdefault(f"{rate:g}", [])
                if len(scores) == seed:
                    scores.append(score(args, model, task, rate, 42 + seed))
                    write_json(RECORD, record)
                    print(f"{width}, {task}, {rate:g}: {scores}", flush=True)


def score(args: argparse.Namespace, model: Path, task: str, rate: float, seed: int) -> float:
    """The score of one run on the validation data; its folder is removed."""
    script, flags, metric = TASKS[task]
    folder = args.work_dir / "run"
    words: list[object] = [word.format(data_of(args, task)) for word in flags]
    words += ["--model_name_or_path", model, "--learning_rate", rate, "--seed", seed, "--output_dir", folder]
    words += ["--max_train_samples", args.rows, "--mixed_precision", args.mixed_precision]
    words += ["--save_steps", 0, "--eval_steps", 10**6]  # evaluated at the end
    shutil.rmtree(folder, ignore_errors=True)
    script.main([*map(str, words)])
    return float(json.loads((folder / "all_results.json").read_text(encoding="utf-8"))[metric])


def data_of(args: argparse.Namespace, task: str) -> Path:
    """The folder with the data of a task; the files of the intents are made first: the first ones by name, shuffled."""
    folder = args.work_dir / "intents"
    if task != "intents":
        return Path(args.data)
    if not (folder / "dev.jsonl").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        content = json.loads((args.data / "intents" / "clinc_full.json").read_text(encoding="utf-8"))
        kept = sorted({label for _, label in content["train"]})[:INTENTS]
        for name, split in (("train", "train"), ("dev", "val")):
            rows = [json.dumps({"text": text, "label": label}) for text, label in content[split] if label in kept]
            random.Random(0).shuffle(rows)
            (folder / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return Path(folder)


if __name__ == "__main__":
    main()
