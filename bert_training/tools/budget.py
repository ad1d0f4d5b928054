"""Say how much pre-training fits into a number of hours, after timing a few real steps on this machine; or say
what a text of any size costs. The flags after `--` are those of run_pretraining.py.

    bert-repro plan --config_name base --hours 6
    bert-repro plan --config_name mini --hours 2 --phases 128:0.9:32,512:0.1:8 -- --mixed_precision bf16
    bert-repro plan --config_name mini --hours 1 --recipe fast
    bert-repro plan --recipe adapt --config_name base --hours 2
    bert-repro plan --hours 24 --launcher "accelerate launch --multi_gpu --num_processes 8"

With --words, it says what the vocabulary, the corpus and an epoch need of time, disk, memory and open files:

    bert-repro plan --words 3.3e9

With --hours, the command runs run_pretraining.py in a separate process and a temporary folder, on made-up text. The
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

from bert_training.files.json_files import read_object
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.phases import Phase, phases_in_words, phases_of, with_steps
from bert_training.inputs.flags.pretraining import CONFIG_SIZES
from bert_training.inputs.flags.recipes import FAST, short_to_long
from bert_training.inputs.flags.scripts import path_of
from bert_training.inputs.models import check_fields
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.tools.corpus_costs import ROWS, print_costs
from tokenization.errors import UserError

SCRIPT = "run_pretraining.py"
TIMED_STEPS = 4  # in each phase; the first of them is ignored
TRAINING_SHARE = 0.97  # the share of the time for training; the rest is for evaluations, checkpoints and the start
PUBLISHED = 1_000_000 * 256  # sequences that the published models were trained on
SHORT = 0.01  # a plan for less than this share of them is short: for it, the fast recipe is proposed
PAPER_PHASES = "128:0.9,512:0.1"
ADAPT_BATCH = 32  # the default of run_pretraining.py
PIECES_A_WORD = 1.3  # of English, with Google's vocabulary
# Flags of the script that are left out of the timed run: it has made-up text, mostly a made-up vocabulary, and new
# weights, and it must neither be uploaded nor reported.
UNTIMED = (
    *("train_file", "validation_file", "validation_split", "dataset_name", "dataset_config_name", "streaming"),
    *("text_column", "corpus_dir", "mixture", "max_train_documents", "deduplicate"),
    *("do_lower_case", "extend_vocab", "max_position_embeddings"),
    *("push_to_hub", "hub_model_id", "report_to"),
)
# Flags of the script that this command has as well.
OWN = ("config_name", "vocab_size", "recipe", "phases", "per_device_train_batch_size", "gradient_accumulation_steps")
# Further flags of the script that the plan sets, or would contradict: it times new weights, and finds the steps.
NOT_PLANNED = ("config", "max_steps", "num_train_epochs", "max_seq_length", "model_name_or_path", "keep_layers")
Records = list[dict[str, Any]]
Facts = dict[str, Any]


def write_vocabulary(folder: Path, vocab_size: int) -> list[str]:
    """Write a vocabulary of `vocab_size` rows to `vocabulary/`; return its words."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
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
        vocabulary = {} if words else {"tokenizer_name": folder / "vocabulary"}
        write_text(folder, words or write_vocabulary(folder, vocab_size))
        share = 1 / len(phases)
        parts = ",".join(f"{phase.length}:{share:.9f}:{phase.size}x{phase.accumulation}" for phase in phases)
        timing = {
            "output_dir": folder / "run",
            "train_file": folder / "text.txt",
            "validation_file": folder / "text.txt",
            **vocabulary,
            "config_name": config_name,
            "phases": parts,
            "max_steps": TIMED_STEPS * len(phases),
            "logging_steps": 1,
            "eval_steps": 0,
            "save_steps": 0,
            "max_eval_instances": 1,
            "warmup_steps": 0,  # those of the training may be more than the steps that are timed
        }
        flags = [*script_flags]
        for flag, value in timing.items():
            flags += [f"--{flag}", str(value)]
        run_script(flags)
        lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        results = json.loads((folder / "run" / "all_results.json").read_text(encoding="utf-8"))
        facts = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))
    records = [event for event in map(json.loads, lines) if event["event"] == "train"]
    return records, results, facts


def plan_text(
    hours: float,
    phases: Sequence[Phase],
    records: Records,
    results: Facts,
    facts: Facts,
    recipe: str = "paper",
    script_flags: Sequence[str] = (),
    vocab_size: int = ROWS,
    learns_vocabulary: bool = False,
) -> str:
    """The table of speeds and the training that fits into `hours`, from the records of a timed run.

    Args:
        phases: without their steps, as `phases_of` returns them.
        records, results, facts: as `timed_run` returns them.
        recipe: of the planned training.
        script_flags: further flags of the planned training.
        vocab_size: of the network that was timed.
        learns_vocabulary: whether the planned training has no vocabulary yet and makes one of this size.

    Raises:
        ValueError: not even one step of each phase fits.
    """
    table, seconds = _speeds(phases, records, facts["processes"])
    mean_seconds = sum(phase.share * seconds[phase.length] for phase in phases)
    total_steps = int(hours * 3600 * TRAINING_SHARE / mean_seconds)
    try:
        planned = with_steps(phases, total_steps)
    except ValueError as error:
        raise UserError(
            f"{hours:g} hours suffice for {total_steps} steps, too few for these phases ({error})"
        ) from error
    world = facts["processes"]
    sequences = tokens = 0
    for phase in planned:
        sequences_of_phase = (phase.stop - phase.start) * phase.size * phase.accumulation * world
        sequences += sequences_of_phase
        tokens += sequences_of_phase * phase.length
    size = vocab_size if learns_vocabulary else None
    parts = [f"{phase.length}:{phase.share:g}:{phase.size}x{phase.accumulation}" for phase in phases]
    lines = [
        f"{facts['device']}, {world} process(es), mixed precision {facts['mixed_precision']}",
        f"{facts['parameters']:,} parameters, with a vocabulary of {vocab_size:,} rows; peak memory "
        f"{results['peak_memory_gb']:.1f} GB in a process",
        "",
        *table,
        "",
        f"In {hours:g} hours: {total_steps:,} steps ({phases_in_words(planned, world)})",
        f"= {sequences:,} sequences, {tokens:,} tokens with padding; {sequences / PUBLISHED:.2g} of the published "
        "models' 256 million sequences.",
        _flags(facts["flags"]["config_name"], total_steps, parts, recipe, script_flags, size),
        *_advice(recipe, sequences, tokens),
    ]
    return "\n".join(lines)


def _advice(recipe: str, sequences: int, tokens: int) -> list[str]:
    """What else to know of a training of so many sequences and tokens: a line, or none."""
    if recipe == "adapt":
        words = round(tokens / PIECES_A_WORD)
        return [
            f"They hold about {words:,} words: your text once if it has so many, three times if it has {words // 3:,}."
        ]
    if sequences < SHORT * PUBLISHED and recipe != "fast":
        return [
            f"This is less than {SHORT:.0%} of the published training. --recipe fast is made for such short trainings "
            "(lab/notes/speedrun.md); give it to this command, too, to plan with it."
        ]
    return []


def _flags(
    config_name: str,
    total_steps: int,
    parts: Sequence[str],
    recipe: str,
    script_flags: Sequence[str],
    vocab_size: int | None,
) -> str:
    """The flags of the planned training; to adapt a model, those of a folder with this config.json, if it is one."""
    name = f"--config_name {config_name}"
    if recipe == "adapt":
        name = f"--model_name_or_path {config_name if Path(config_name).is_dir() else 'CHECKPOINT'}"
    size = f" --vocab_size {vocab_size}" if vocab_size and recipe != "adapt" else ""
    chosen = "" if recipe == "paper" else f" --recipe {recipe}"
    others = f" {shlex.join(script_flags)}" if script_flags else ""
    return f"Flags: {name}{size} --max_steps {total_steps} --phases {','.join(parts)}{chosen}{others}"


def _speeds(phases: Sequence[Phase], records: Records, world: int) -> tuple[list[str], dict[int, float]]:
    """The lines of the table of speeds, and the seconds of a step by the length of its instances.

    Args:
        world: the number of processes.
    """
    table = [f"{'length':>6} {'batch':>12} {'s/step':>8} {'tokens/s':>10} {'of peak':>8}"]
    seconds = {}
    for phase in phases:
        timed = [record for record in records if record["max_seq_length"] == phase.length][1:]
        step_seconds = statistics.median(record["seconds_per_step"] for record in timed)
        tokens_per_second = statistics.median(record["tokens_per_second"] for record in timed)
        share_of_peak = statistics.median(record["mfu"] for record in timed)
        batch = f"{phase.size * phase.accumulation * world} x {phase.length}"
        table.append(
            f"{phase.length:6} {batch:>12} {step_seconds:8.3f} {tokens_per_second:10,.0f} {share_of_peak:8.1%}"
        )
        seconds[phase.length] = step_seconds
    return table, seconds


def _positive(word: str) -> float:
    value = float(word)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {word}")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("plan", __doc__)
    parser.add_argument("--config_name", default="base", help="a size, or a folder with config.json")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--hours", type=_positive, help="the hours that are available for a training")
    asked.add_argument("--words", type=_positive, help="the words of a text whose cost is asked for, such as 3.3e9")
    parser.add_argument(
        "--launcher",
        default=shlex.quote(sys.executable),
        help="what starts the script, such as 'accelerate launch --num_processes 8' (this Python)",
    )
    parser.add_argument(
        "--vocab_size",
        type=int,
        help=f"the size of the vocabulary (that of --tokenizer_name after --, or of the config.json; otherwise {ROWS})",
    )
    parser.add_argument(
        "--recipe",
        choices=("paper", "fast", "adapt"),
        default="paper",
        help="as in run_pretraining.py (paper); for adapt, --config_name is the size or the folder of the model",
    )
    parser.add_argument(
        "--phases",
        help=f"as in run_pretraining.py; default: {PAPER_PHASES}; those of --recipe fast; 128:1 for adapt",
    )
    parser.add_argument(
        "--per_device_train_batch_size",
        type=int,
        help="as in run_pretraining.py, but 8 by default (64 with --recipe fast; 32 with adapt)",
    )
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1, help="as in run_pretraining.py (1)")
    costs = parser.add_argument_group("the cost of a text")
    costs.add_argument(
        "--words_per_second", type=_positive, help="words that one core encodes in a second (measured in a few seconds)"
    )
    costs.add_argument("--cores", type=int, help="cores that count words and encode (those that it may use)")
    costs.add_argument(
        "--train_tokens_per_second",
        type=_positive,
        help="tokens that all devices train on in a second (no line on training)",
    )
    costs.add_argument("--epochs", type=_positive, default=1.0, help="epochs of the training (1)")
    return parser


def main(argv: list[str] | None = None, run_script: Callable[..., None] = run_script) -> None:
    """Print the plan or the costs; a mistake ends the command with status 2 and one line on stderr.

    Args:
        run_script: runs the script; tests replace it.
    """
    argv = sys.argv[1:] if argv is None else argv
    separator = argv.index("--") if "--" in argv else len(argv)
    arguments = _parser().parse_args(argv[:separator])
    if arguments.words is not None:
        print_costs(arguments)
    else:
        _plan_hours(arguments, argv[separator + 1 :], run_script)


def _plan_hours(arguments: argparse.Namespace, script_flags: Sequence[str], run_script: Callable[..., None]) -> None:
    """Time a few steps and print the plan."""
    if arguments.phases is None:
        arguments.phases = {"fast": short_to_long(128, -1), "adapt": "128:1"}.get(arguments.recipe, PAPER_PHASES)
    if arguments.per_device_train_batch_size is None:
        sizes = {"fast": FAST["per_device_train_batch_size"], "adapt": ADAPT_BATCH}
        arguments.per_device_train_batch_size = sizes.get(arguments.recipe, 8)
    if "@" in arguments.phases:
        raise UserError(
            f"--phases {arguments.phases}: no mixture changes the time of a step; leave out @ and its weights"
        )
    phases = phases_of(vars(arguments))
    given = _by_name(script_flags)
    _check_flags(given)
    vocab_size, words = _vocabulary(arguments, given)
    untimed = UNTIMED if words else (*UNTIMED, "tokenizer_name")
    passed = [word for name, group in given if name not in untimed for word in group]
    launched = functools.partial(run_script, launcher=shlex.split(arguments.launcher))
    # A step of new weights of the same shape takes as long as one of the model that is to be adapted.
    timed = ["paper", "--objective", "mlm"] if arguments.recipe == "adapt" else [arguments.recipe]
    flags = ["--recipe", *timed, *passed]
    records, results, facts = timed_run(arguments.config_name, vocab_size, phases, flags, launched, words)
    learns = not {"tokenizer_name", "teacher"} & {name for name, _ in given}
    recipe = arguments.recipe
    print(plan_text(arguments.hours, phases, records, results, facts, recipe, script_flags, vocab_size, learns))


def _by_name(script_flags: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The flags of the script in their order: the name of each, and its words."""
    given: list[tuple[str, list[str]]] = []
    for word in script_flags:
        if word.startswith("--") or not given:
            given.append((word.partition("=")[0].removeprefix("--").replace("-", "_"), []))
        given[-1][1].append(word)
    return given


def _check_flags(given: Sequence[tuple[str, list[str]]]) -> None:
    """Refuse the flags of the script that the plan would contradict."""
    for name, _ in given:
        if name in (*OWN, *NOT_PLANNED):
            raise UserError(
                f"--{name} stands after --, but the plan sets it; leave it out, or give the plan's own flag before --"
            )


def _vocabulary(arguments: argparse.Namespace, given: Sequence[tuple[str, list[str]]]) -> tuple[int, list[str]]:
    """The rows of the vocabulary of the planned training; with a teacher, also words, as its own vocabulary is timed.

    Raises:
        ValueError: the vocabulary or the config cannot be read, has too few rows, or two of them are given.
    """
    values = {name: group[0].partition("=")[2] if "=" in group[0] else group[-1] for name, group in given}
    chosen, config = values.get("tokenizer_name", values.get("teacher")), Path(arguments.config_name) / "config.json"
    rows, words = arguments.vocab_size, []
    if "teacher" in values and rows is not None:
        raise UserError(f"--vocab_size {rows} has no effect with --teacher, whose vocabulary is taken; leave it out")
    if rows is None and chosen is not None:
        tokenizer = load_tokenizer(chosen, quiet=True)
        rows = len(tokenizer)
        words = sorted(filter(str.isalnum, tokenizer.get_vocab())) if "teacher" in values else []
    elif rows is None and arguments.config_name not in CONFIG_SIZES and config.is_file():
        fields = read_object(config)
        check_fields(config, fields)
        rows = fields.get("vocab_size", BertConfig().vocab_size)
    rows = ROWS if rows is None else rows
    if rows < 16:
        raise UserError(f"the vocabulary has {rows} rows; expected at least 16; give another --vocab_size")
    return rows, words
