"""Kills that are drawn at random: at a line, at an edge (a call of a function), or at a time."""

import json
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab.tests.helpers.fault_runs import run
from tests.helpers.small_networks import small_config

SAVE_STEPS = 3
INJECTION = "lab.tests.helpers.fault_injection"
# Without it, each kill of a run with workers would take five seconds more.
QUICK_ORPHANS = (f"{INJECTION}:quick_orphans", {})


class Whole(NamedTuple):
    """A run that was never stopped.

    Attributes:
        folder: its output folder.
        seconds: how long it took.
        lines: group of modules -> how many of their lines it executed.
    """

    folder: Path
    seconds: float
    lines: dict[str, int]


def pretraining_flags(shape: Path, text_file: Path, tokenizer_folder: Path, vocab_size: int) -> list[str]:
    """Flags of a pre-training of 11 steps with dropout, which is to be killed; the length and the batch are missing.

    Args:
        shape: the folder for a configuration, which is written.
    """
    config = small_config(vocab_size=vocab_size, hidden_size=16, num_hidden_layers=1, hidden_dropout_prob=0.2)
    config.save_pretrained(shape)
    return (
        f"--train_file {text_file} --max_train_documents 16 --validation_split 0.3 --tokenizer_name {tokenizer_folder} "
        f"--config_name {shape} --max_steps 11 --learning_rate 1e-2 --logging_steps 1 --eval_steps 4 "
        f"--save_steps {SAVE_STEPS} --save_total_limit 1"
    ).split()


def whole_run(
    script: str, flags: Sequence[str], folder: Path, groups: Mapping[str, list[str]], ranks: int = 1, rank: int = 0
) -> Whole:
    """Make a run in the sub-folder "run", and count the lines of ``groups`` on one of its ranks."""
    counted = {"groups": groups, "counted": str(folder / "lines"), "rank": rank}
    count = [(f"{INJECTION}:count_lines", counted)]
    ended = run(script, [*flags, "--output_dir", folder / "run"], folder, prepare=count, ranks=ranks)
    assert set(ended.statuses) == {0}, ended.printed
    return Whole(folder / "run", ended.seconds, json.loads((folder / "lines").read_text()))


def draw_kill(
    draw: random.Random,
    whole: Callable[[int], Whole],
    groups: Mapping[str, list[str]],
    edges: Mapping[str, Sequence[int]],
    folder: Path,
    ranks: int = 1,
) -> tuple[str, dict[str, Any]]:
    """A kill in words, and the arguments of ``run`` that make it.

    Args:
        whole: rank -> the run that was never stopped, with the lines that this rank executed.
        groups: names of modules. The group is drawn first: a step executes few lines of the checkpoints, and a line
            drawn from all of them would seldom be one of the short moments in which something could go wrong.
        edges: function -> the calls of it that may be drawn.
        folder: a folder for the files of the harness.
    """
    rank = draw.randrange(ranks)
    how = draw.choice(["line"] * 5 + ["edge"] * 3 + ["time"] * 2)
    if how == "edge":
        function = draw.choice(list(edges))
        place: dict[str, Any] = {"function": function, "call": draw.choice(edges[function])}
        place |= {"after": draw.random() < 0.5, "rank": rank}
        return str(place), {"prepare": [QUICK_ORPHANS, (f"{INJECTION}:at_call", place)]}
    if how == "line":
        group = draw.choice(list(groups))
        fatal = draw.randint(1, whole(rank).lines[group])
        place = {"modules": groups[group], "counted": str(folder / "lines"), "fatal": fatal, "rank": rank}
        return f"line {fatal} of {group}", {"prepare": [QUICK_ORPHANS, (f"{INJECTION}:at_line", place)]}
    after, to = draw.uniform(0, 0.8 * whole(0).seconds), draw.choice(["group", str(rank)])
    return f"{after:.2f} s, {to}", {"prepare": [QUICK_ORPHANS], "signals": [(after, signal.SIGKILL, to)]}
