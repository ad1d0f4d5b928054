"""Pre-trainings that are killed at random moments and started again end like a run that was never stopped."""

import functools
import json
import random
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.fault_runs import run
from lab.tests.helpers.kills import SAVE_STEPS, Whole, draw_kill, pretraining_flags, whole_run
from tests.helpers.same_runs import check_same

# The modules of whose lines one is drawn.
ENGINE = [f"bert_training.engine.{name}" for name in ("launch", "loop", "run", "batches")]
FILES = [
    "bert_training.files.atomic",
    "bert_training.files.hashing",
    "bert_training.files.processes",
    "bert_training.engine.checkpoint",
]
CORPUS = [f"bert_training.pretraining.{name}" for name in ("build_corpus", "text", "corpus", "encoding")]
SCRIPT = [
    "run_pretraining",
    "bert_training.engine.run",
    "bert_training.engine.run",
    "bert_training.cards.model_card",
]
GROUPS = {"engine": ENGINE, "files": FILES, "corpus": CORPUS, "script": SCRIPT}
# Function -> its calls at the edges: of the phases (step 7), of an epoch, of checkpoints, and of the run.
EDGES = {
    "bert_training.engine.loop:_update": (1, 3, 4, 7, 8, 11),
    "bert_training.engine.checkpoint:_drop_old": (1, 2, 3),
    "bert_training.engine.checkpoint:save_model_folder": (1,),
    "bert_training.engine.run:Run.write_facts": (1,),
    "bert_training.engine.run:Run.finish": (1,),
    "bert_training.pretraining.build_corpus:_write_shard": (1, 2),
    "os:replace": tuple(range(1, 13)),
}


class Kind(NamedTuple):
    """A kind of pre-training.

    Attributes:
        flags: what is added to the flags that all kinds have.
        ranks: the number of processes.
    """

    flags: str
    ranks: int = 1


KINDS = {
    # The phases are 7 and 4 steps long, each longer than an epoch of its length; a step has two micro-batches.
    "phases": Kind("--phases 16:0.65:4x2,32:0.35:4x2"),
    "epochs": Kind("--max_seq_length 16 --per_device_train_batch_size 8 --objective mlm"),
    "two processes": Kind("--phases 16:0.65:2x2,32:0.35:2x2", ranks=2),
}


@pytest.fixture(scope="module")
def flags(tmp_path_factory, text_file, tokenizer_folder, vocab) -> list[str]:
    return pretraining_flags(tmp_path_factory.mktemp("shape"), text_file, tokenizer_folder, len(vocab))


@pytest.fixture(scope="module")
def whole(flags, tmp_path_factory) -> Callable[..., Whole]:
    """The run of a kind, in which the lines were counted on a rank."""

    @functools.cache
    def make(kind: str, rank: int = 0) -> Whole:
        given = [*flags, *KINDS[kind].flags.split()]
        return whole_run("run_pretraining", given, tmp_path_factory.mktemp("whole"), GROUPS, KINDS[kind].ranks, rank)

    return make


def steps_recorded(folder: Path) -> int:
    """The last step in metrics.jsonl; a line that the kill has cut does not count."""
    file = folder / "metrics.jsonl"
    last = 0
    for line in file.read_text().splitlines() if file.is_file() else []:
        if line.endswith("}"):
            last = max(last, json.loads(line).get("step", 0))
    return last


@faults("kills of a pre-training", 200)
def test_a_killed_pretraining_goes_on(seed, flags, whole, tmp_path, record_property):
    draw = random.Random(seed)
    kind = draw.choice(["phases", "phases", "phases", "epochs", "epochs", "two processes"])
    workers = draw.choice(["0", "0", "2"])
    flags = [*flags, *KINDS[kind].flags.split(), "--dataloader_num_workers", workers]
    (tmp_path / "drafts").mkdir()
    common = {"ranks": KINDS[kind].ranks, "environment": {"TMPDIR": str(tmp_path / "drafts")}}
    folder, resumed, outcome = tmp_path / "run", [], "killed after its end"
    flags += ["--output_dir", folder]
    for _ in range(draw.choice([1, 1, 1, 2])):  # The second kill may meet what the first has left.
        ranks, done = KINDS[kind].ranks, steps_recorded(folder)
        fault, arguments = draw_kill(draw, functools.partial(whole, kind), GROUPS, EDGES, tmp_path, ranks)
        ended = run("run_pretraining", [*flags, *resumed], tmp_path, **common, **arguments)
        print(f"{kind}, {workers} workers, {fault}: {ended.statuses}, {sorted(path.name for path in folder.glob('*'))}")
        assert not ended.left_behind and not ended.timed_out, ended.printed
        assert -signal.SIGKILL in ended.statuses or set(ended.statuses) == {0}, ended.printed
        check_repeated(ended.printed, done)
        if -signal.SIGKILL in ended.statuses:
            outcome = "resumed"
        resumed = ["--resume_from_checkpoint", "auto"]
    done = steps_recorded(folder)
    if not (folder / "run.json").exists() and draw.random() < 0.5:
        resumed = []  # Nothing was trained yet, so that the same command is accepted as it is.
    ended = run("run_pretraining", [*flags, *resumed], tmp_path, **common)
    assert set(ended.statuses) == {0}, ended.printed
    check_repeated(ended.printed, done)
    check_same(whole(kind).folder, folder)
    assert list((tmp_path / "drafts").iterdir()) == []
    record_property("outcome", outcome)


def check_repeated(printed: str, done: int) -> None:
    """Fail if a start that printed this repeated more of the steps done than lie between two checkpoints."""
    found = re.search(r"resuming from \S+ after step (\d+)", printed)
    if found:
        assert done - int(found[1]) <= SAVE_STEPS, printed
    elif "finished: " in printed:  # It has trained from the beginning to the end.
        assert done <= SAVE_STEPS, printed
