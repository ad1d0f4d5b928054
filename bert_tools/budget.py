"""Say how much pre-training fits into a number of hours, after timing a few real steps on this machine. The flags
after `--` are those of run_pretraining.py.

    bert-repro plan --config_name base --hours 6
    bert-repro plan --config_name mini --hours 2 --phases 128:0.9:32,512:0.1:8 -- --mixed_precision bf16
    bert-repro plan --config_name mini --hours 1 --recipe fast
    bert-repro plan --recipe adapt --config_name base --hours 2
    bert-repro plan --hours 24 --launcher "accelerate launch --multi_gpu --num_processes 8"

The command runs run_pretraining.py in a separate process and a temporary folder, on made-up text. The
network, the optimiser, the batches and the flags are those of the planned training; the flags after `--` are passed to
the script, except those of its text and its vocabulary, of weights that are given and of an upload, which only the
printed flags have. In each phase the first step is ignored, because it allocates memory and loads kernels, and the
median of the others counts. The result has two errors: real text fills instances a little more or less than made-up
text does, and evaluations and checkpoints may need more or less than the 3 % that are reserved for them.
"""

import argparse
import functools
import json
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import BertConfig, BertTokenizer

from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.phases import Phase, phases_in_words, phases_of, with_steps
from bert_training.inputs.flags.pretraining import CONFIG_SIZES
from bert_training.inputs.flags.recipes import FAST, short_to_long
from bert_training.inputs.flags.scripts import path_of
from bert_training.inputs.reading import read_object
from bert_training.inputs.tokenizers import load_tokenizer
from tokenization.errors import UserError

SCRIPT = "run_pretraining.py"
TIMED_STEPS = 4  # in each phase; the first of them is ignored
TRAINING_SHARE = 0.97  # the share of the time for training; the rest is for evaluations, checkpoints and the start
PUBLISHED = 1_000_000 * 256  # sequences that the published models were trained on
PAPER_PHASES = "128:0.9,512:0.1"
ROWS = 30522  # of Google's English vocabulary
ADAPT_BATCH = 32  # the default of run_pretraining.py
# Flags of the script that are left out of the timed run: it has made-up text, mostly a made-up vocabulary, and new
# weights, and it must neither be uploaded nor reported.
UNTIMED = (
    *("train_file", "validation_file", "validation_split", "dataset_name", "dataset_config_name", "streaming"),
    *("text_column", "corpus_dir", "mixture", "max_train_documents"),
    *("do_lower_case", "extend_vocab", "max_position_embeddings"),
    *("push_to_hub", "hub_model_id", "report_to"),
)
# Flags of the script that this command has as well, and those that the plan sets or would contradict: it times new
# weights, and finds the steps.
OWN = ("config_name", "vocab_size", "recipe", "phases", "per_device_train_batch_size", "gradient_accumulation_steps")
NOT_PLANNED = ("config", "max_steps", "num_train_epochs", "max_seq_length", "model_name_or_path", "keep_layers")
Records = list[dict[str, Any]]
Facts = dict[str, Any]


def write_vocabulary(folder: Path, vocab_size: int) -> list[str]:
    """Write a vocabulary of `vocab_size` rows to `vocabulary/`; return its words."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s"]  # the last one for --whole_word_mask
    words = [f"w{number}" for number in range(vocab_size - len(specials))]
    vocab = {word: number for number, word in enumerate([*specials, *words])}
    BertTokenizer(vocab=vocab).save_pretrained(folder / "vocabulary")
    return words


def write_text(folder: Path, words: Sequence[str]) -> None:
    """Write made-up documents of these words to `text.txt`."""
    rng = np.random.default_rng(0)
    lines = []
    for _document in range(60):
        lines += [" ".join(words[number] for number in rng.integers(0, len(words), 25)) for _sentence in range(40)]
        lines.append("")
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")


def run_script(flags: Sequence[str], launcher: Sequence[str] = (sys.executable,)) -> None:
    """Run run_pretraining.py with `flags`. Raises ValueError with its message if it fails.

    The message is the script's own last line on stderr, because a launcher may print more behind it; if there is none,
    the last line of all.

    Args:
        launcher: the words before the path of the script.
    """
    done = subprocess.run([*launcher, path_of(SCRIPT), *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [""]
        own = [line for line in lines if re.match(r"(\[rank\d+\]: ?)?run_pretraining(\.py)?: ", line)]
        raise UserError(f"run_pretraining.py ended with status {done.returncode}: {[*lines, *own][-1]}")


def timed_run(
    config_name: str,
    vocab_size: int,
    phases: Sequence[Phase],
    script_flags: Sequence[str],
    run_script: Callable[..., None],
    words: Sequence[str] = (),
) -> tuple[Records, Facts, Facts]:
    """Train a few steps of each phase; returns (training records, all_results.json, run.json).

    Args:
        script_flags: flags for the script; those of the timing come after them.
        run_script: runs the script with the flags that it is given; the function of this name, or what a test gives.
        words: those of the text if ``script_flags`` name the vocabulary; otherwise one of ``vocab_size`` rows is made.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder, words or write_vocabulary(folder, vocab_size))
        share = 1 / len(phases)
        parts = ",".join(f"{phase.length}:{share:.9f}:{phase.size}x{phase.accumulation}" for phase in phases)
        files = {
            "output_dir": folder / "run",
            "train_file": folder / "text.txt",
            "validation_file": folder / "text.txt",
        }
        files |= {} if words else {"tokenizer_name": folder / "vocabulary"}
        # Warm-up steps of the training may be more than the steps that are timed.
        timing = {"logging_steps": 1, "eval_steps": 0, "save_steps": 0, "max_eval_instances": 1, "warmup_steps": 0}
        planned = {"config_name": config_name, "phases": parts, "max_steps": TIMED_STEPS * len(phases)}
        own = [word for flag, value in (files | planned | timing).items() for word in (f"--{flag}", str(value))]
        run_script([*script_flags, *own])
        lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        results, facts = (read_object(folder / "run" / name) for name in ("all_results.json", "run.json"))
    return [event for event in map(json.loads, lines) if event["event"] == "train"], results, facts


def plan_text(
    hours: float,
    phases: Sequence[Phase],
    records: Records,
    results: Facts,
    facts: Facts,
    recipe: str = "paper",
    script_flags: Sequence[str] = (),
    vocab_size: int = ROWS,
    size: int | None = None,
) -> str:
    """The table of speeds and the training that fits into `hours`, from the records of a timed run.

    Args:
        phases: without their steps, as `phases_of` returns them.
        records, results, facts: as `timed_run` returns them.
        recipe: of the planned training.
        script_flags: further flags of the planned training.
        vocab_size: of the network that was timed.
        size: of the vocabulary that the planned training makes; None if it has one already.

    Raises:
        ValueError: not even one step of each phase fits.
    """
    world = facts["processes"]
    table, seconds = _speeds(phases, records, world)
    mean_seconds = sum(phase.share * seconds[phase.length] for phase in phases)
    total_steps = int(hours * 3600 * TRAINING_SHARE / mean_seconds)
    planned = with_steps(phases, total_steps)
    counts = [(phase.stop - phase.start) * phase.size * phase.accumulation * world for phase in planned]
    sequences, tokens = sum(counts), sum(count * phase.length for count, phase in zip(counts, planned))
    return "\n".join(
        [
            f"{facts['device']}, {world} process(es), mixed precision {facts['mixed_precision']}",
            f"{facts['parameters']:,} parameters, with a vocabulary of {vocab_size:,} rows; peak memory "
            f"{results['peak_memory_gb']:.1f} GB in a process",
            "",
            *table,
            "",
            f"In {hours:g} hours: {total_steps:,} steps ({phases_in_words(planned, world)})",
            f"= {sequences:,} sequences, {tokens:,} tokens with padding; {sequences / PUBLISHED:.2g} of the published "
            "models' 256 million sequences.",
            _flags(facts["flags"]["config_name"], total_steps, phases, recipe, script_flags, size),
        ]
    )


def _flags(
    config_name: str,
    total_steps: int,
    phases: Sequence[Phase],
    recipe: str,
    script_flags: Sequence[str],
    vocab_size: int | None,
) -> str:
    """The flags of the planned training; to adapt a model, those of a folder with this config.json, if it is one."""
    parts = ",".join(f"{phase.length}:{phase.share:g}:{phase.size}x{phase.accumulation}" for phase in phases)
    name = ["--config_name", config_name]
    if recipe == "adapt":
        name = ["--model_name_or_path", config_name if Path(config_name).is_dir() else "CHECKPOINT"]
    elif vocab_size:
        name += ["--vocab_size", str(vocab_size)]
    chosen = [] if recipe == "paper" else ["--recipe", recipe]
    return f"Flags: {shlex.join([*name, '--max_steps', str(total_steps), '--phases', parts, *chosen, *script_flags])}"


def _speeds(phases: Sequence[Phase], records: Records, world: int) -> tuple[list[str], dict[int, float]]:
    """The lines of the table of speeds, and the seconds of a step by the length of its instances.

    Args:
        world: the number of processes.
    """
    table = [f"{'length':>6} {'batch':>12} {'s/step':>8} {'tokens/s':>10}"]
    seconds = {}
    for phase in phases:
        timed = [record for record in records if record["max_seq_length"] == phase.length][1:]
        names = ("seconds_per_step", "tokens_per_second")
        step, tokens = (statistics.median(record[name] for record in timed) for name in names)
        batch = f"{phase.size * phase.accumulation * world} x {phase.length}"
        table.append(f"{phase.length:6} {batch:>12} {step:8.3f} {tokens:10,.0f}")
        seconds[phase.length] = step
    return table, seconds


def _positive(word: str) -> float:
    value = float(word)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {word}")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("plan", __doc__)
    parser.add_argument("--hours", type=_positive, required=True, help="the hours that are available for a training")
    parser.add_argument("--config_name", default="base", help="a size, or a folder with config.json (base)")
    parser.add_argument("--launcher", default=shlex.quote(sys.executable), help="what starts the script (this Python)")
    parser.add_argument("--vocab_size", type=int, help=f"rows (as its tokenizer or config.json, or {ROWS})")
    parser.add_argument("--recipe", choices=("paper", "fast", "adapt"), default="paper", help="of the training (paper)")
    parser.add_argument("--phases", help=f"of the training ({PAPER_PHASES}; 128:1 for adapt, or those of fast)")
    parser.add_argument("--per_device_train_batch_size", type=int, help="(8; 64 for fast, 32 for adapt)")
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1, help="as in run_pretraining.py (1)")
    return parser


def main(argv: list[str] | None = None, run_script: Callable[..., None] = run_script) -> None:
    """Print the plan; a mistake ends the command with status 2 and one line on stderr.

    Args:
        run_script: runs the script; tests replace it.
    """
    argv = sys.argv[1:] if argv is None else argv
    separator = argv.index("--") if "--" in argv else len(argv)
    parser, script_flags = _parser(), argv[separator + 1 :]
    arguments, given = parser.parse_args(argv[:separator]), _by_name(script_flags)
    for name, _ in given:
        if name in (*OWN, *NOT_PLANNED):
            parser.error(f"--{name} stands after --, but the plan sets it; leave it out, or give it before --")
    if "@" in (arguments.phases or ""):
        parser.error(f"--phases {arguments.phases}: no mixture changes the time of a step; leave out @ and its weights")
    arguments.phases = arguments.phases or {"fast": short_to_long(128, -1), "adapt": "128:1"}.get(
        arguments.recipe, PAPER_PHASES
    )
    sizes = {"fast": FAST["per_device_train_batch_size"], "adapt": ADAPT_BATCH}
    arguments.per_device_train_batch_size = arguments.per_device_train_batch_size or sizes.get(arguments.recipe, 8)
    phases = phases_of(vars(arguments))
    vocab_size, words = _vocabulary(arguments, given)
    untimed = UNTIMED if words else (*UNTIMED, "tokenizer_name")
    passed = [word for name, group in given if name not in untimed for word in group]
    # A step of new weights of the same shape takes as long as one of the model that is to be adapted.
    timed = ["paper", "--objective", "mlm"] if arguments.recipe == "adapt" else [arguments.recipe]
    launched = functools.partial(run_script, launcher=shlex.split(arguments.launcher))
    found = timed_run(arguments.config_name, vocab_size, phases, ["--recipe", *timed, *passed], launched, words)
    learnt = None if {"tokenizer_name", "teacher"} & {name for name, _ in given} else vocab_size
    print(plan_text(arguments.hours, phases, *found, arguments.recipe, script_flags, vocab_size, learnt))


def _by_name(script_flags: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The flags of the script in their order: the name of each, and its words."""
    given: list[tuple[str, list[str]]] = []
    for word in script_flags:
        if word.startswith("--") or not given:
            given.append((word.partition("=")[0].removeprefix("--").replace("-", "_"), []))
        given[-1][1].append(word)
    return given


def _vocabulary(arguments: argparse.Namespace, given: Sequence[tuple[str, list[str]]]) -> tuple[int, list[str]]:
    """The rows of the vocabulary of the planned training; of a teacher, whose own vocabulary is timed, also words."""
    values = {name: group[0].partition("=")[2] if "=" in group[0] else group[-1] for name, group in given}
    config = Path(arguments.config_name) / "config.json"
    if "teacher" in values:
        tokenizer = load_tokenizer(values["teacher"], quiet=True)
        return len(tokenizer), sorted(filter(str.isalnum, tokenizer.get_vocab()))
    rows = arguments.vocab_size
    if rows is None and "tokenizer_name" in values:
        rows = len(load_tokenizer(values["tokenizer_name"], quiet=True))
    elif rows is None and arguments.config_name not in CONFIG_SIZES and config.is_file():
        rows = read_object(config).get("vocab_size", BertConfig().vocab_size)
    return rows or ROWS, []
