"""A speed run: the seconds from the start of a pre-training until its held-out loss is at a target
(lab/notes/speedrun.md).

    python lab/benchmarks/speedrun.py --what "the recipe as it is"       # on the built-in documentation
    python lab/benchmarks/speedrun.py --text wiki.txt.xz --held_out heldout.txt --tokenizer_name vocab --config_name
    mini \
        --target 6.36 --steps 9000 --seconds 5000 --what "mini on Wikipedia"
    python lab/benchmarks/speedrun.py --smoke                            # a minute, to see that everything works

The contestants are run_pretraining.py with --recipe fast and with --recipe paper, and transformers' example run_mlm,
which was made for weights that are trained already and so gets the learning rate and the warm-up of the fast recipe.
Each reads the same text with the same vocabulary, and one judge measures all of them: the masked-LM loss of their
weights in transformers' own class, on the same held-out instances. The clock starts before the process of a run does,
so that imports and the preparation of the data count, and stands still while the judge works.

--flags "fast=--dropout 0.1" adds flags for a contestant: those of run_pretraining.py, or of transformers'
TrainingArguments. The record is added to lab/records/speedrun.json after every run. If the program is stopped, the same
command continues with the runs that are missing. tables.py writes the ledger into the page.
"""

import argparse
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.builtin_data import documentation
from bert_training.files.atomic import write_json
from bert_training.files.hashing import sha256
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.flags.recipes import peak_rate
from bert_training.inputs.models import bert_config
from bert_training.inputs.texts import check_files, read_documents
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.encoding import is_held_out
from lab.benchmarks import contestants, idle
from lab.benchmarks.held_out import OBJECTIVES, HeldOut
from lab.benchmarks.provenance import provenance
from lab.tables import speedrun_contestants
from tokenization.train_wordpiece import train_wordpiece

RECORD = Path(__file__).parents[1] / "records" / "speedrun.json"
HELD_OUT_SHARE = 0.02
LOOKS = 20  # the number of times that the judge looks at a run
CONFIRMED = 1e-3  # nats by which the saved folder may differ from what the judge saw


class Contestant(NamedTuple):
    """A contestant: the program, and the flags that make it what it is."""

    kind: str
    flags: tuple[str, ...]


CONTESTANTS = {
    "fast": Contestant("ours", ("--recipe", "fast")),
    "paper": Contestant("ours", ("--recipe", "paper")),
    "transformers": Contestant("transformers", ()),
    # The example with the peak learning rate, the warm-up and the batch of the fast recipe.
    "transformers-tuned": Contestant("transformers", ("--per_device_train_batch_size", "64")),
}


# --- the rules of a record ---------------------------------------------------------------------------------------


def prepare(args: argparse.Namespace) -> Path:
    """The folder with what all runs share: train.txt, heldout.txt, vocabulary, config and held-out corpus.

    A folder that was made from the same files with the same settings is used again.
    """
    texts = check_files(args.text) if args.text else []
    held_out_files = check_files([args.held_out]) if args.held_out else []
    documents = list(read_documents(texts) if texts else documentation.documents(not args.smoke))[: args.max_documents]
    content = hashlib.sha256(repr(documents).encode())
    key = json.dumps([content.hexdigest(), args.tokenizer_name, args.vocab_size, args.config_name, str(held_out_files)])
    data = args.work_dir / f"data-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if (data / "data.json").is_file():
        return data
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    if held_out_files:
        train, held_out = documents, list(read_documents(held_out_files))
    else:
        train = [document for document in documents if not is_held_out(document, HELD_OUT_SHARE)]
        held_out = [document for document in documents if is_held_out(document, HELD_OUT_SHARE)]
    write_documents(train, data / "train.txt")
    write_documents(held_out, data / "heldout.txt")
    if args.tokenizer_name:
        AutoTokenizer.from_pretrained(args.tokenizer_name).save_pretrained(data / "vocabulary")
    else:
        train_wordpiece(
            (line for document in train for line in document), args.vocab_size, output_dir=data / "vocabulary"
        )
    tokenizer = AutoTokenizer.from_pretrained(data / "vocabulary")
    bert_config(args.config_name, len(tokenizer), pad_token_id=tokenizer.pad_token_id).save_pretrained(data / "config")
    build_corpus([data / "heldout.txt"], tokenizer, data / "held_out")
    names = [path.name for path in texts] or ["the built-in documentation"]
    files = {name: sha256(data / name) for name in ("train.txt", "heldout.txt", "vocabulary/tokenizer.json")}
    write_json(data / "data.json", {"text": names, "sha256": files, "pieces": len(tokenizer)})
    return data


def write_documents(documents: Iterable[list[str]], path: Path) -> None:
    """Write a text file with a line for each paragraph or sentence and a blank line between documents."""
    with open(path, "w", encoding="utf-8") as file:
        for number, document in enumerate(documents):
            lines = [" ".join(line.split()) for line in document]
            file.write("\n" * (number > 0) + "".join(f"{line}\n" for line in lines if line))


def rules_of(args: argparse.Namespace, data: Path) -> dict[str, Any]:
    """What is the same for all runs of a record; a record is continued only under the same rules."""
    return json.loads((data / "data.json").read_text(encoding="utf-8")) | {
        "config_name": args.config_name,
        "length": args.length,
        "judge": {"instances": args.judge, "count": args.instances},
        "target": args.target,
        "seconds": args.seconds,
        "steps": args.steps,
        "seeds": args.seeds,
        "contestants": {name: shlex.join(flags_of(name, args)) for name in args.contestants},
        "threads": torch.get_num_threads(),
    }


def flags_of(name: str, args: argparse.Namespace) -> list[str]:
    """The flags that make the contestant what it is, without those of a single run."""
    flags = [*CONTESTANTS[name].flags]
    if name == "transformers-tuned":
        config = bert_config(args.config_name, args.vocab_size)
        rate = peak_rate(config.num_hidden_layers, config.hidden_size)
        flags += ["--learning_rate", str(rate), "--warmup_steps", str(args.steps // 10)]
    given = (words.partition("=") for words in args.flags)
    return flags + [word for other, _, words in given for word in shlex.split(words) if other == name]


# --- runs --------------------------------------------------------------------------------------------------------


def describe_run(name: str, seed: int, args: argparse.Namespace, data: Path) -> dict[str, Any]:
    """What the process of a run is told; ``started`` is added when it starts."""
    kind, folder = CONTESTANTS[name].kind, args.work_dir / "runs" / f"{name}-{seed}"
    every = max(1, args.steps // LOOKS)
    shared = {"output_dir": folder / "run", "seed": seed, "max_steps": args.steps}
    if kind == "ours":
        given = flags_of(name, args)
        shared |= {"train_file": data / "train.txt", "validation_file": data / "heldout.txt"}
        shared |= {"tokenizer_name": data / "vocabulary", "config_name": args.config_name}
        shared |= {"save_steps": 0, "eval_steps": every} | (
            {} if "--phases" in given else {"max_seq_length": args.length}
        )
    else:
        shared |= {"save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    flags = [word for flag, value in shared.items() for word in (f"--{flag}", str(value))] + flags_of(name, args)
    return {
        "kind": kind,
        "flags": flags,
        "every": every,
        "length": args.length,
        "data": str(data),
        "folder": str(folder),
        "judge": [args.judge, args.length, args.instances],
        "target": args.target,
        "seconds": args.seconds,
    }


def make_run(name: str, seed: int, args: argparse.Namespace, data: Path, held_out: HeldOut) -> dict[str, Any]:
    """Make a run in a process of its own, and return its part of the record."""
    run = describe_run(name, seed, args, data)
    folder = Path(run["folder"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "description.json"
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
    with open(folder / "output.txt", "w", encoding="utf-8") as output:
        write_json(path, run | {"started": time.monotonic()})
        command = [sys.executable, contestants.__file__, str(path)]
        done = subprocess.run(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    if done.returncode:
        last = (folder / "output.txt").read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise SystemExit(f"{name}, seed {seed}: status {done.returncode}: {' '.join(last)} ({folder / 'output.txt'})")
    result = result_of((folder / "judged.jsonl").read_text(encoding="utf-8"))
    if result["reached"]:
        confirm(folder / "reached", result["loss"], held_out)
    return {"contestant": name, "seed": seed} | result


def result_of(judged: str) -> dict[str, Any]:
    """What the records of the judge say of a run; of one that did not reach the target, the smallest loss."""
    *looks, last = map(json.loads, judged.splitlines())
    best = looks[-1] if last["end"] == "reached" else min(looks, key=lambda look: look["loss"])
    return {
        "reached": last["end"] == "reached",
        "end": last["end"],
        **best,
        "curve": [[look["step"], look["seconds"], round(look["loss"], 4)] for look in looks],
    }


def confirm(folder: Path, loss: float, held_out: HeldOut) -> None:
    """Open the folder with plain transformers, and raise ValueError unless its loss is what the judge saw."""
    again = held_out.loss(AutoModelForMaskedLM.from_pretrained(folder).state_dict())
    if abs(again - loss) > CONFIRMED:
        raise ValueError(f"{folder} opens with a loss of {again:.4f}; the judge saw {loss:.4f}")


# --- the record --------------------------------------------------------------------------------------------------


def open_record(path: Path, what: str, rules: dict[str, Any], facts: dict[str, Any]) -> tuple[dict, dict]:
    """All records of the file, and the one to add runs to: the newest that is unfinished and agrees, or a new one."""
    records = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for date in sorted(records, reverse=True):
        record = records[date]
        same = record["what"] == what and record["rules"] == rules and record["commit"] == facts["commit"]
        if same and len(record["runs"]) < len(rules["contestants"]) * rules["seeds"]:
            return records, record
    records[facts["date"]] = {"what": what, **facts, "rules": rules, "runs": []}
    return records, records[facts["date"]]


SMALL = {"max_documents": 500, "vocab_size": 600, "length": 32, "steps": 20, "instances": 32, "seeds": 1}  # --smoke


def add_race_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of what two entries must have in common to be compared, and of the record."""
    parser.add_argument("--what", default="", help="what is new in this record, for the ledger")
    parser.add_argument("--text", nargs="+", help="files of text; default: the built-in documentation")
    parser.add_argument("--held_out", help="a file of held-out text; default: 2 per cent of the documents")
    parser.add_argument("--max_documents", type=int, help="read only the first documents")
    parser.add_argument("--tokenizer_name", help="default: a vocabulary is learnt before the clock starts")
    parser.add_argument("--vocab_size", type=int, default=8192, help="the size of that vocabulary (8192)")
    parser.add_argument("--config_name", default="tiny", help="the size of the network (tiny)")
    parser.add_argument("--length", type=int, default=128, help="tokens of a held-out instance (128)")
    parser.add_argument("--instances", type=int, default=512, help="the number of held-out instances (512)")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes; the record is written to the work_dir")
    idle.add_flag(parser)


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_race_flags(parser)
    parser.add_argument("--target", type=float, default=4.5, help="held-out masked-LM loss in nats (4.5)")
    parser.add_argument("--steps", type=int, default=3000, help="optimiser steps over which a run is planned (3000)")
    parser.add_argument("--seconds", type=float, default=1800, help="the most seconds that a run may take (1800)")
    parser.add_argument("--judge", choices=OBJECTIVES, default="pairs", help="the held-out instances (pairs)")
    parser.add_argument(
        "--contestants", nargs="+", choices=CONTESTANTS, default=["fast", "paper", "transformers-tuned"]
    )
    parser.add_argument("--flags", nargs="+", default=[], metavar="NAME=FLAGS", help="more flags of contestants")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each contestant, with the seeds 1, 2, ... (3)")
    parser.add_argument("--work_dir", type=Path, default=Path("runs/speedrun"), help="runs and data (runs/speedrun)")
    parser.add_argument("--output", type=Path, help="the record; default: lab/records/speedrun.json")
    args = parser.parse_args(argv)
    if args.smoke:
        vars(args).update(SMALL | {"target": 6.2, "seconds": 60.0})
    args.output = args.output or (args.work_dir / "speedrun.json" if args.smoke else RECORD)
    args.work_dir = args.work_dir.resolve()
    if min(args.seeds, args.steps, args.instances) < 1 or args.seconds <= 0:
        parser.error("expected --seeds, --steps and --instances of at least 1 and --seconds above 0")
    if unknown := {words.partition("=")[0] for words in args.flags} - set(args.contestants):
        parser.error(f"--flags {', '.join(unknown)}: expected NAME=FLAGS with {', '.join(args.contestants)}")
    return args


def main(argv: list[str] | None = None) -> None:
    """The command."""
    argv = sys.argv[1:] if argv is None else argv
    args = parse(argv)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    idle.demand_idle_cores(args.busy or args.smoke)
    data = prepare(args)
    for name in args.contestants:
        if CONTESTANTS[name].kind == "ours":  # a mistake in its flags ends the program before the first run
            parse_arguments(PretrainingArguments, describe_run(name, 1, args, data)["flags"])
    rules, origin = rules_of(args, data), provenance("lab/benchmarks/speedrun.py", argv)
    records, record = open_record(args.output, args.what, rules, origin)
    held_out = HeldOut(data, args.judge, args.length, args.instances)
    done = {(run["contestant"], run["seed"]) for run in record["runs"]}
    for seed in range(1, args.seeds + 1):
        for name in args.contestants:
            if (name, seed) in done:
                continue
            found = idle.demand_idle_cores(args.busy or args.smoke)
            run = make_run(name, seed, args, data, held_out) | found
            verdict = "target reached" if run["reached"] else f"not reached ({run['end']})"
            print(f"{name}, seed {seed}: {verdict}; loss {run['loss']:.3f} after {run['seconds']:.0f} s", flush=True)
            record["runs"].append(run)
            args.output.parent.mkdir(parents=True, exist_ok=True)
            write_json(args.output, records)
    print(speedrun_contestants(record), end="")


if __name__ == "__main__":
    main()
