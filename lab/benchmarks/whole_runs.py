"""Time whole runs, from typing the command to the finished folder, beside transformers' Trainer with dynamic padding.

    python lab/benchmarks/whole_runs.py                             # on made-up text with the lengths of the real data
    BERT_REPRO_DATA=DIR python lab/benchmarks/whole_runs.py --config_name small
    python lab/benchmarks/whole_runs.py --only mrpc "cold start" --repetitions 5
    python lab/benchmarks/whole_runs.py --smoke                     # tiny sizes, to see that everything works

Both sides are programs that a user would start: `python run_glue.py ...`, and a program of some lines around `datasets`
and Trainer (whole_run_programs.py). They read the same files, begin with the same weights and have the same learning
rate, batches, epochs, warm-up and checkpoints, and evaluate once, after the training. Every run is a process of its
own; the sides take turns. What counts is wall-clock time and the peak of the resident memory.

- Training and scoring, twice: with the defaults of both sides, as a user gets them (on a processor that computes with
  bfloat16, ours takes it), and with float32 on both sides.
- Training: MRPC, pairs in the number of RTE, 10,000 sentences of SST-2, 10,000 questions of SQuAD.
- Scoring only: the validation data of MRPC and of SQuAD.
- Cold start: from the command to the end of the first optimiser step, with the seconds of each part.
- Corpus: text to ids on the disk. Ours also finds documents and sentences, which next sentence prediction needs.
- Pre-training on a GPU, only if named: 200 steps in bfloat16 on the text of the corpus. Ours has next sentence
  prediction, too; the other side is transformers' run_mlm, with sdpa, or with torch's FlashAttention for variable
  lengths ("varlen"), which has no dropout; there, both sides have none.

    python lab/benchmarks/whole_runs.py --config_name base --repetitions 1 --output lab/records/whole_runs_cuda.json \
        --only "pre-training 128" "pre-training 512" "pre-training 128, varlen" "pre-training 512, varlen"

Every row of lab/records/whole_runs.json is written as soon as it is measured, with its own commit and load; rows
that the command does not name stay as they were.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.models import bert_config
from bert_training.tasks.classification.sources import load_data
from bert_training.tasks.squad.questions import read_squad
from lab.benchmarks import idle, whole_run_programs
from lab.benchmarks.provenance import ROOT, provenance
from lab.benchmarks.workloads import stored_lengths
from lab.tables import whole_runs
from modeling_bert_repro import BertForPreTraining, BertForQuestionAnswering, BertForSequenceClassification
from tokenization import build_tokenizer

RECORD = Path(__file__).parents[1] / "records" / "whole_runs.json"
MARKS = ("imports", "data", "network", "first step")
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SEED = 42
NEVER = "1000000000"  # steps between two evaluations, so that both sides evaluate once, after the training


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        data: the files of the data, see ``prepare``.
        script: this project's script; "" for the corpus.
        stock: the other side's program, a key of ``whole_run_programs.PROGRAMS``.
        length, batch, epochs, rate: the settings of both sides.
        train: whether it trains; otherwise it only scores.
        max_steps: optimiser steps; -1 for all epochs.
        aim: how many times as fast ours should be.
        flags: more flags of ours.
        more: more settings of the other side.
    """

    data: str
    script: str
    stock: str
    length: int = 128
    batch: int = 32
    epochs: int = 3
    rate: float = 5e-5
    train: bool = True
    max_steps: int = -1
    aim: float = 2.0
    flags: tuple[str, ...] = ()
    more: tuple[tuple[str, Any], ...] = ()


DEFAULTS = {
    "mrpc": Row("mrpc", "run_glue", "stock classifier"),
    "rte-sized": Row("rte", "run_glue", "stock classifier"),
    "sst2": Row("sst2", "run_glue", "stock classifier", flags=("--text_column", "sentence1")),
    "squad": Row("squad", "run_squad", "stock questions", length=384, batch=12, epochs=2, rate=3e-5),
    "scoring mrpc": Row("mrpc", "run_glue", "stock classifier", train=False, aim=1.3),
    "scoring squad": Row("squad", "run_squad", "stock questions", length=384, train=False, aim=1.3),
    "cold start": Row("mrpc", "run_glue", "stock classifier", max_steps=1),
}
PRETRAINING = Row(
    "corpus",
    "run_pretraining",
    "stock pre-training",
    batch=256,
    rate=1e-4,
    max_steps=200,
    aim=1.4,
    flags=("--mixed_precision", "bf16"),
    more=(("bf16", True),),
)
WITHOUT_DROPOUT = {
    "flags": (*PRETRAINING.flags, "--dropout", "0"),
    "more": (*PRETRAINING.more, ("dropout", 0.0), ("attention", "varlen")),
}
GPU_ROWS = {
    "pre-training 128": PRETRAINING,
    "pre-training 512": PRETRAINING._replace(length=512, batch=64),
    "pre-training 128, varlen": PRETRAINING._replace(**WITHOUT_DROPOUT),
    "pre-training 512, varlen": PRETRAINING._replace(length=512, batch=64, **WITHOUT_DROPOUT),
}
CPU_ROWS = {
    **DEFAULTS,
    **{
        f"{name}, float32": row._replace(aim=min(row.aim, 1.6), flags=(*row.flags, "--mixed_precision", "no"))
        for name, row in DEFAULTS.items()
        if name != "cold start"
    },
    "corpus": Row("corpus", "", "stock corpus", aim=1.3),
}
ROWS = {**CPU_ROWS, **GPU_ROWS}
# The rows of each data set: for training, and for validation.
SIZES = {"mrpc": (3668, 408), "rte": (2490, 277), "sst2": (10_000, 872), "squad": (10_000, 10_570)}


# --- data --------------------------------------------------------------------------------------------------------


def prepare(folder: Path, config_name: str, scale: float) -> str:
    """Write weights and data for all rows; returns where the data comes from.

    Args:
        scale: the share of the rows to make.
    """
    source = os.environ.get("BERT_REPRO_DATA")
    data = Path(source) if source else None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    vocabulary = [*SPECIALS, *(f"w{number}" for number in range(30522 - len(SPECIALS)))]
    if data:
        vocabulary = (data / "assets" / "uncased_vocab.txt").read_text(encoding="utf-8").splitlines()
    words = whole_words(vocabulary)
    tokenizer = build_tokenizer(vocabulary)
    config = bert_config(config_name, len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    torch.manual_seed(SEED)
    networks = {"model": BertForPreTraining, "mrpc-scorer": BertForSequenceClassification}
    for name, cls in (networks | {"squad-scorer": BertForQuestionAnswering}).items():
        if name == "mrpc-scorer":
            config.id2label, config.label2id = {0: "no", 1: "yes"}, {"no": 0, "yes": 1}
        cls(config).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    generator = np.random.default_rng(SEED)
    for name, sizes in SIZES.items():
        for split, rows in zip(("train", "validation"), sizes):
            count = max(8, round(rows * scale))
            path = folder / f"{name}_{split}.{'json' if name == 'squad' else 'jsonl'}"
            write = write_questions if name == "squad" else write_texts
            write(path, name, split, count, data, words, generator)
    for split, count in (("train", 200_000), ("validation", 2_000)):
        lines = [" ".join(generator.choice(words, 25)) for _ in range(max(200, round(count * scale)))]
        text = "\n".join("\n".join(lines[start : start + 40]) + "\n" for start in range(0, len(lines), 40))
        (folder / f"corpus_{split}.txt").write_text(text, encoding="utf-8")
    return "real data, and made-up pairs for rte-sized" if data else "made-up text with the lengths of the real data"


def whole_words(vocabulary: list[str]) -> np.ndarray:
    """The words of which each is one piece, so that made-up text has as many pieces as words."""
    return np.array([piece for piece in vocabulary if piece.isascii() and piece.isalnum()])


def write_texts(
    path: Path, name: str, split: str, count: int, data: Path | None, words: np.ndarray, generator: np.random.Generator
) -> None:
    """A file of labelled texts: real ones, or made-up words in texts of the same lengths."""
    rows: list[dict[str, str]] = []
    if data and name in ("mrpc", "sst2"):
        folder = data / "glue" / {"mrpc": "MRPC", "sst2": "SST-2"}[name]
        args = GlueArguments(output_dir="", model_name_or_path="-", task_name=name, data_dir=str(folder))
        examples = load_data(args).splits[split]
        columns = [column[:count] for column in examples.texts]
        answers = ["yes" if str(label) == "1" else "no" for label in examples.labels[:count]]
    else:
        lengths, _ = stored_lengths("sst2 train" if name == "sst2" else "mrpc train")
        drawn = np.maximum(generator.choice(lengths, count) - 3, 2)
        parts = [drawn] if name == "sst2" else [drawn // 2, drawn - drawn // 2]
        columns = [[" ".join(generator.choice(words, length)) for length in part] for part in parts]
        answers = generator.choice(["no", "yes"], count).tolist()
    names = ["sentence1", "sentence2"]
    for label, *texts in zip(answers, *columns):
        rows.append(dict(zip(names, texts)) | {"label": label})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_questions(
    path: Path, name: str, split: str, count: int, data: Path | None, words: np.ndarray, generator: np.random.Generator
) -> None:
    """A file in the form of SQuAD 1.1: real questions, or made-up words in windows of the same lengths."""
    paragraphs: list[dict[str, Any]] = []
    if data:
        file = "train-v1.1.reconstructed" if split == "train" else "dev-v1.1"
        for question in read_squad(data / "squad" / f"{file}.json.xz")[:count]:
            answers = [{"text": text, "answer_start": start} for text, start in question.answers]
            qas = [{"id": question.id, "question": question.text, "answers": answers}]
            paragraphs.append({"context": question.context, "qas": qas})
    else:
        lengths, _ = stored_lengths("squad train")
        for number, length in enumerate(np.maximum(generator.choice(lengths, count) - 13, 8)):
            context = generator.choice(words, length).tolist()
            place = int(generator.integers(0, length - 3))
            start = len(" ".join([*context[:place], ""]))
            answer = {"text": " ".join(context[place : place + 3]), "answer_start": start}
            question = " ".join(generator.choice(words, 10))
            qas = [{"id": f"q{number}", "question": question, "answers": [answer]}]
            paragraphs.append({"context": " ".join(context), "qas": qas})
    content = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(content), encoding="utf-8")


# --- runs --------------------------------------------------------------------------------------------------------


def shortened(row: Row) -> Row:
    """The row for --smoke."""
    return row._replace(length=64, epochs=1, batch=min(row.batch, 32), max_steps=min(row.max_steps, 2))


def commands(name: str, row: Row, data: Path, output: Path) -> dict[str, list[str] | dict[str, Any]]:
    """What each side is started with: a command line, or the description of a program."""
    kind = "json" if row.data == "squad" else "txt" if row.data == "corpus" else "jsonl"
    files = {split: str(data / f"{row.data}_{split}.{kind}") for split in ("train", "validation")}
    files["train"] = files["train"] if row.train else ""
    model = str(data / ("model" if row.train else f"{row.data}-scorer"))
    settings = {"length": row.length, "batch": row.batch, "epochs": row.epochs, "learning_rate": row.rate}
    shared = {"model": model, "max_steps": row.max_steps, "seed": SEED, **settings, **files}
    stock = shared | dict(row.more) | {"program": row.stock, "output": str(output / "stock")}
    if not row.script:
        return {"ours": shared | {"program": "own corpus", "output": str(output / "ours")}, "stock": stock}
    flags = ["--output_dir", str(output / "ours"), "--model_name_or_path", model]
    flags += [word for split, file in files.items() if file for word in (f"--{split}_file", file)]
    flags += ["--max_seq_length", str(row.length), *row.flags]
    if row.data == "squad" and row.length < 200:  # the smoke test: as in the other side's windows
        flags += ["--doc_stride", str(row.length // 3), "--max_query_length", "16"]
    if row.train:
        flags += ["--per_device_train_batch_size", str(row.batch), "--num_train_epochs", str(row.epochs)]
        flags += [
            "--eval_steps",
            NEVER,
            "--learning_rate",
            str(row.rate),
            "--max_steps",
            str(row.max_steps),
            "--seed",
            str(SEED),
        ]
    if name == "cold start":
        run = shared | {"program": "own script", "output": str(output / "ours")}
        return {"ours": run | {"script": row.script, "flags": flags}, "stock": stock}
    return {"ours": [sys.executable, str(ROOT / f"{row.script}.py"), *flags], "stock": stock}


def make_run(command: list[str] | dict[str, Any], output: Path) -> dict[str, Any]:
    """Start a side's process and wait for it; returns its seconds, its peak memory in MB and its marks.

    Raises:
        SystemExit: it failed.
    """
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    description = output / "run.json"
    started = time.monotonic()
    if isinstance(command, dict):
        description.write_text(json.dumps(command | {"started": started}), encoding="utf-8")
        command = [sys.executable, whole_run_programs.__file__, str(description)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
    with open(output / "output.txt", "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        peak = 0
        while process.poll() is None:
            peak = max(peak, resident_peak(process.pid))
            time.sleep(0.05)
    seconds = time.monotonic() - started
    if process.returncode:
        last = (output / "output.txt").read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise SystemExit(f"{' '.join(command)}: status {process.returncode}: {' '.join(last)}")
    marks = [json.loads(path.read_text(encoding="utf-8")) for path in output.glob("*.marks.json")]
    return {"seconds": round(seconds, 2), "mb": peak, "marks": marks[0] if marks else {}}


def resident_peak(pid: int) -> int:
    """The peak resident memory of a process in MB, or 0 if it has ended.

    getrusage would begin with the memory of this process, which the kernel hands down.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return int(status.split("VmHWM:")[1].split()[0]) // 1024 if "VmHWM:" in status else 0


def row_of(name: str, runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The row of the record; a ratio compares two runs of the same repetition."""
    last = "first step" if name == "cold start" else None
    times = {side: [one["marks"][last] if last else one["seconds"] for one in made] for side, made in runs.items()}
    ratios = [theirs / mine for mine, theirs in zip(times["ours"], times["stock"])]
    row = {
        "ours_seconds": times["ours"],
        "stock_seconds": times["stock"],
        "ratio": round(statistics.median(ratios), 3),
        "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "ratio_target": ROWS[name].aim,
        "ours_mb": max(one["mb"] for one in runs["ours"]),
        "stock_mb": max(one["mb"] for one in runs["stock"]),
    }
    if last:
        row["parts"] = {side: parts_of([one["marks"] for one in made]) for side, made in runs.items()}
    return row


def parts_of(marks: list[dict[str, float]]) -> dict[str, float]:
    """The median seconds of each part of a cold start: from the mark before it to its own."""
    before = (None, *MARKS)
    seconds = {}
    for name, earlier in zip(MARKS, before):
        seconds[name] = statistics.median(one[name] - (one[earlier] if earlier else 0) for one in marks)
    return {name: round(value, 2) for name, value in seconds.items()}


def read_records(path: Path, facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows that the file has already.

    Raises:
        SystemExit: they are of another size of the network, other data or another number of threads.
    """
    records = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for name, record in records.items():
        if found := {key: record[key] for key in facts if record[key] != facts[key]}:
            wanted = {key: facts[key] for key in found}
            raise SystemExit(f"{path} has a row {name!r} of {found}, expected {wanted}; give another --output")
    return records


def main(argv: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", choices=ROWS, nargs="+", default=[*CPU_ROWS], help="rows of the table; default: all for CPUs"
    )
    parser.add_argument("--config_name", default="mini", help="the size of the network (mini)")
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each side (3)")
    parser.add_argument("--work_dir", type=Path, default=Path("runs/whole_runs"), help="data and runs")
    parser.add_argument("--output", type=Path, help="the record; default: lab/records/whole_runs.json")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes; the record is written to the work_dir")
    idle.add_flag(parser)
    argv = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(argv)
    if args.repetitions < 1:
        parser.error(f"expected --repetitions of at least 1, got {args.repetitions}")
    logging.set_verbosity_error()
    work = args.work_dir.resolve()
    output = args.output or (work / "whole_runs.json" if args.smoke else RECORD)
    size, repetitions = ("tiny", 1) if args.smoke else (args.config_name, args.repetitions)
    idle.demand_idle_cores(args.busy or args.smoke)
    data = prepare(work / "data", size, 0.002 if args.smoke else 1.0)
    facts = {"threads": torch.get_num_threads(), "size": size, "data": data}
    records = read_records(output, facts)
    for name in args.only:
        row = shortened(ROWS[name]) if args.smoke else ROWS[name]
        origin = provenance("lab/benchmarks/whole_runs.py", argv)
        origin |= idle.demand_idle_cores(args.busy or args.smoke)
        runs: dict[str, list[dict[str, Any]]] = {"ours": [], "stock": []}
        for _ in range(repetitions):
            for side in runs:
                runs[side].append(make_run(commands(name, row, work / "data", work / side)[side], work / side))
        records[name] = origin | facts | row_of(name, runs)
        output.parent.mkdir(parents=True, exist_ok=True)
        write_json(output, {name: records[name] for name in ROWS if name in records})
        print(f"{name}: {records[name]['ratio']:.2f} times as fast", flush=True)
    print(whole_runs(records), end="")


if __name__ == "__main__":
    main()
