"""Time the whole demo beside the same runs, written with transformers' examples and Trainer.

    python lab/benchmarks/whole_demo.py             # about half an hour
    python lab/benchmarks/whole_demo.py --smoke     # few steps, to see that everything works

Ours is examples/demo.sh, from its first command to its last. The other side consists of the programs that a user of
transformers would start one after the other: one that learns a vocabulary and pre-trains (whole_demo_pretraining.py),
and those of whole_runs.py for pairs of texts and for questions, each from the pre-trained and from random weights.
Network, size of the vocabulary, steps, batches, learning rates, epochs, numbers of examples and greatest lengths are
the same on both sides, and neither drops anything in pre-training.

What differs:

- run_mlm knows one length, where ours begins with two fifths of the steps at half of it, and it computes the whole
  vocabulary at every position. It has no next sentence prediction.
- Our first run reads the documentation of the installation, because the demo begins without the cache of an earlier
  one, and each run makes its examples from it. The other side is given the text and the examples as files.
- Our runs evaluate after every epoch. The other side evaluates only after its training, and makes no report.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.builtin_data import documentation
from bert_training.files.atomic import write_json
from bert_training.flags.recipes import peak_rate
from bert_training.networks.configuration import bert_config
from lab.benchmarks import idle, whole_demo_pretraining
from lab.benchmarks.provenance import ROOT, provenance, sha256
from lab.benchmarks.speedrun import write_documents
from lab.benchmarks.whole_runs import SEED, make_run, resident_peak

RESULTS = Path(__file__).parents[1] / "records" / "whole_demo.json"
DEMO = "examples/demo.sh"
VOCABULARY = 8192
STARTS = {"pretrained": "trained", "random": "random"}  # the demo's name of a start, and the other side's folder


class Task(NamedTuple):
    """A task of the demo: the program of the other side, and the settings that the demo gives to its script."""

    program: str
    length: int
    kind: str  # of the files


TASKS = {"pair": Task("stock classifier", 96, "jsonl"), "answers": Task("stock questions", 128, "json")}
PARTS = ("pretrained", *(f"{task}-{start}" for task in TASKS for start in STARTS))


class Size(NamedTuple):
    """How much the demo does."""

    steps: int = 2400
    examples: int = 4000
    questions: int = 1000  # of the validation


def prepare(data: Path, size: Size) -> None:
    """Write the text and the examples of the demo as the files of the other side."""
    shutil.rmtree(data, ignore_errors=True)
    bert_config("tiny", VOCABULARY).save_pretrained(data / "config")
    write_documents(documentation.documents(), data / "train.txt")
    for split, count in (("train", size.examples), ("validation", None)):
        rows = [row | {"label": str(row["label"])} for row in documentation.pair_examples(split)[:count]]
        (data / f"pair_{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        questions = documentation.question_answering(split)
        content = first_questions(questions, size.questions if split == "validation" else size.examples)
        (data / f"answers_{split}.json").write_text(json.dumps(content), encoding="utf-8")


def first_questions(content: dict[str, Any], count: int) -> dict[str, Any]:
    """The first questions of a file in the form of SQuAD, each with a paragraph of its own."""
    paragraphs = [
        {"context": paragraph["context"], "qas": [question]}
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs[:count]}]}


def stock_commands(data: Path, output: Path, size: Size) -> dict[str, list[str] | dict[str, Any]]:
    """What the other side starts for each part: a command line, or the description of a program of whole_runs.py."""
    pretraining = {
        "config": str(data / "config"),
        "train": str(data / "train.txt"),
        "output": str(output / "pretrained"),
        "length": 64,
        "batch": 64,
        "epochs": 1,  # max_steps decides
        "learning_rate": peak_rate(2, 128),
        "max_steps": size.steps,
        "seed": SEED,
        "marked": True,  # no time of a first step is noted
    }
    write_json(data / "pretraining.json", pretraining)
    program = [sys.executable, whole_demo_pretraining.__file__, str(data / "pretraining.json")]
    commands: dict[str, list[str] | dict[str, Any]] = {"pretrained": program}
    for name, task in TASKS.items():
        for start, folder in STARTS.items():
            commands[f"{name}-{start}"] = {
                "program": task.program,
                "model": str(output / "pretrained" / folder),
                "train": str(data / f"{name}_train.{task.kind}"),
                "validation": str(data / f"{name}_validation.{task.kind}"),
                "output": str(output / f"{name}-{start}"),
                "length": task.length,
                "batch": 32,
                "epochs": 3,
                "learning_rate": 3e-4,
                "max_steps": -1,
                "seed": SEED,
            }
    return commands


def run_demo(output: Path, size: Size) -> dict[str, Any]:
    """The seconds of the demo and of its parts, and the peak memory in MB of its largest process.

    Raises:
        SystemExit: it failed.
    """
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    environment = os.environ | {"DEMO_DIR": str(output), "DEMO_STEPS": str(size.steps)}
    environment |= {"HF_ASSETS_CACHE": str(output / "assets")}  # the cache begins empty
    environment |= {"DEMO_EXAMPLES": str(size.examples), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    started, began = time.monotonic(), time.time()
    with open(output / "output.txt", "w", encoding="utf-8") as log:
        process = subprocess.Popen(["bash", ROOT / DEMO], env=environment, stdout=log, stderr=subprocess.STDOUT)
        peak = 0
        while process.poll() is None:
            peak = max([peak, *(resident_peak(child.pid) for child in children(process.pid))])
            time.sleep(0.05)
    seconds = time.monotonic() - started
    if process.returncode:
        raise SystemExit(f"{DEMO}: status {process.returncode}: see {output / 'output.txt'}")
    return {"seconds": seconds, "mb": peak, "parts": parts_of(output, began)}


def children(pid: int) -> list[psutil.Process]:
    """The processes that a process has started; none if it has ended."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def parts_of(output: Path, began: float) -> dict[str, float]:
    """The seconds of each part of the demo, which ends when its results are written.

    Args:
        began: the time of the start of the demo, in seconds since 1970.
    """
    ends = [began, *((output / name / "all_results.json").stat().st_mtime for name in PARTS)]
    return dict(zip(PARTS, (later - earlier for earlier, later in pairwise(ends))))


def run_stock(commands: dict[str, list[str] | dict[str, Any]], output: Path) -> dict[str, Any]:
    """The seconds of the other side and of its parts, and the peak memory in MB of its largest process."""
    shutil.rmtree(output, ignore_errors=True)
    made = {name: make_run(command, output / name) for name, command in commands.items()}
    return {
        "seconds": sum(one["seconds"] for one in made.values()),
        "mb": max(one["mb"] for one in made.values()),
        "parts": {name: one["seconds"] for name, one in made.items()},
    }


def row_of(ours: dict[str, Any], stock: dict[str, Any]) -> dict[str, Any]:
    """The measured part of the record."""
    sides: dict[str, Any] = {}
    for name, side in (("ours", ours), ("stock", stock)):
        fine_tuning = sum(seconds for part, seconds in side["parts"].items() if part != "pretrained")
        parts = {"pre-training": side["parts"]["pretrained"], "fine-tuning": fine_tuning}
        sides[name] = {name: round(value, 1) for name, value in parts.items()}
    quotients = {name: round(value / sides["ours"][name], 2) for name, value in sides["stock"].items()}
    return {
        "ours_seconds": round(ours["seconds"], 1),
        "stock_seconds": round(stock["seconds"], 1),
        "ratio": round(stock["seconds"] / ours["seconds"], 2),
        "parts": sides,
        "part_ratios": quotients,
        "ours_mb": ours["mb"],
        "stock_mb": stock["mb"],
    }


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work_dir", type=Path, default=Path("runs/whole_demo"), help="data and runs")
    parser.add_argument("--smoke", action="store_true", help="few steps; the record is written to the work_dir")
    idle.add_flag(parser)
    argv = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(argv)
    logging.set_verbosity_error()
    work, size = args.work_dir.resolve(), Size(40, 100, 50) if args.smoke else Size()
    idle.demand_idle_cores(args.busy or args.smoke)
    prepare(work / "data", size)
    scripts = ["run_pretraining", "run_glue", "run_squad"]
    found = provenance("lab/benchmarks/whole_demo.py", argv, scripts) | idle.demand_idle_cores(args.busy or args.smoke)
    found["sources"][DEMO] = sha256(ROOT / DEMO)
    ours = run_demo(work / "ours", size)
    stock = run_stock(stock_commands(work / "data", work / "stock", size), work / "stock")
    record = found | {"threads": torch.get_num_threads()} | size._asdict() | row_of(ours, stock)
    write_json(work / RESULTS.name if args.smoke else RESULTS, record)
    print(json.dumps(row_of(ours, stock), indent=1))


if __name__ == "__main__":
    main()
