"""SIGTERM and Ctrl-C at any moment: a documented status, a checkpoint, no process left behind, and the same end."""

import functools
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from bert_training.files.atomic import damage
from bert_training.files.processes import SIGNALS, STOPPED
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.fault_runs import Ended, run
from lab.tests.helpers.kills import INJECTION, QUICK_ORPHANS
from tests.helpers import short_runs
from tests.helpers.repository import ROOT
from tests.helpers.same_runs import check_same

STEPS = 6
AUTO = ["--resume_from_checkpoint", "auto"]


class Kind(NamedTuple):
    """A script, what is added to its flags, and its number of processes."""

    script: str
    flags: str = ""
    ranks: int = 1


SMALL = "--per_device_train_batch_size 2"
KINDS = {
    "pretraining": Kind("run_pretraining", "--eval_steps 2"),
    "two processes": Kind("run_pretraining", f"--eval_steps 2 {SMALL}", ranks=2),
    "accumulation": Kind("run_pretraining", f"--eval_steps 2 {SMALL} --gradient_accumulation_steps 2"),
    "glue": Kind("run_glue", "--load_best_model_at_end --eval_steps 2"),
    "squad": Kind("run_squad", "--eval_steps 2"),
    "ner": Kind("run_ner", "--eval_steps 2"),
    "series": Kind("run_glue", "--seeds 2"),
}
# Moments of a training -> their calls before the last step; every rank makes these calls.
STEP = {
    "bert_training.engine.loop:_forward_backward": range(1, STEPS),
    "bert_training.engine.loop:_global_sums": range(1, STEPS),
    "bert_training.engine.loop:_update": range(1, STEPS),
    "bert_training.engine.checkpoint:save_checkpoint": (1,),
}
# Only the main process makes these.
SAVE = {
    "torch:save": (1,),
    "bert_training.engine.checkpoint:_drop_old": (1, 2),
    "bert_training.engine.run:Run.log": (2, 4),
}
# The first of several evaluations.
EVALUATION = {
    "run_pretraining": "bert_training.pretraining.evaluation:evaluate",
    **dict.fromkeys(("run_glue", "run_squad", "run_ner"), "bert_training.tasks.fine_tuning:_evaluated"),
}
BEFORE = {
    "run_pretraining": (
        "bert_training.pretraining.build_corpus:make_shard",
        "bert_training.pretraining.encoding:encode_lines",
    ),
    "run_glue": ("run_glue:build_task_network", "bert_training.tasks.fine_tuning:record_origin"),
    "run_squad": ("run_squad:build_task_network", "bert_training.tasks.fine_tuning:record_origin"),
    "run_ner": ("run_ner:build_task_network", "bert_training.tasks.fine_tuning:record_origin"),
}
AFTER = (
    "bert_training.engine.checkpoint:save_model_folder",
    "bert_training.engine.run:Run.finish",
    "bert_training.files.hashing:hashes_of",
)


@pytest.fixture(scope="module")
def flags(pretrained, short_data) -> Callable[[str], list[str]]:
    """The flags of a kind, without the output folder."""

    def make(kind: str) -> list[str]:
        script, more, _ = KINDS[kind]
        given = short_runs.flags(script, short_data, Path("unused"), pretrained)
        return [*given[2:], "--max_steps", str(STEPS), "--save_steps", "2", *more.split()]

    return make


@pytest.fixture(scope="module")
def whole(flags, tmp_path_factory) -> Callable[[str], Path]:
    """The output folder of a run of a kind that was never stopped."""

    @functools.cache
    def make(kind: str) -> Path:
        folder = tmp_path_factory.mktemp("whole")
        given = [*flags(kind), "--output_dir", folder / "run"]
        ended = run(KINDS[kind].script, given, folder, ranks=KINDS[kind].ranks)
        assert set(ended.statuses) == {0}, ended.printed
        return folder / "run"

    return make


def start(kind: str, given: list, folder: Path, fault: dict | None = None) -> Ended:
    prepare = [QUICK_ORPHANS, (f"{INJECTION}:at_call", fault)] if fault else []
    ended = run(KINDS[kind].script, given, folder, prepare=prepare, ranks=KINDS[kind].ranks, patience=5 * bool(fault))
    assert not ended.left_behind and not ended.timed_out, ended.printed
    assert "Traceback" not in ended.printed, ended.printed
    return ended


def during_training(draw: random.Random, kind: str) -> tuple[dict, int]:
    """A signal to one rank, or to all processes with their workers; or the same signal twice, as under torchrun."""
    places = STEP if draw.random() < 0.6 else SAVE
    function = draw.choice(list(places))
    call, rank = draw.choice(list(places[function])), draw.randrange(KINDS[kind].ranks) if places is STEP else 0
    if draw.random() < 0.2 and kind != "series":
        function, call = EVALUATION[KINDS[kind].script], 1
    numbers = [draw.choice(SIGNALS)] * draw.choice([1, 1, 2])
    if draw.random() < 0.2:
        numbers = list(SIGNALS)  # two different ones, one after the other
    place = {"function": function, "call": call, "after": draw.random() < 0.3, "rank": rank}
    return place | {"numbers": numbers, "group": draw.random() < 0.4}, STOPPED


def twice_slowly(draw: random.Random, kind: str) -> tuple[dict, int]:
    """The second signal comes more than a second after the first, in the same step, and ends the process at once."""
    numbers = [draw.choice(SIGNALS), draw.choice(SIGNALS)]
    place = {
        "function": "bert_training.engine.loop:_forward_backward",
        "call": draw.randint(1, STEPS),
        "numbers": numbers,
    }
    return place | {"pause": 1.05}, -numbers[1]


def before_training(draw: random.Random, kind: str) -> tuple[dict, int]:
    place = {"function": draw.choice(BEFORE[KINDS[kind].script]), "call": 1, "after": draw.random() < 0.5}
    return at_once(draw, place)


def after_training(draw: random.Random, kind: str) -> tuple[dict, int]:
    return at_once(draw, {"function": draw.choice(AFTER), "call": 1, "after": draw.random() < 0.3})


def at_once(draw: random.Random, place: dict) -> tuple[dict, int]:
    """Outside of the training steps, SIGTERM ends the process as it ends any other, and Ctrl-C with one line."""
    number = draw.choice(SIGNALS)
    return place | {"numbers": [number]}, 130 if number == signal.SIGINT else -number


def in_the_last_step(draw: random.Random, kind: str) -> tuple[dict, int]:
    """Once the processes have asked each other whether to stop, the run has no further step, and ends as usual."""
    name, status = draw.choice([("_forward_backward", STOPPED), ("_update", 0)])
    call = {"function": f"bert_training.engine.loop:{name}", "call": STEPS, "after": draw.random() < 0.5}
    return call | {"numbers": [draw.choice(SIGNALS)]}, status


MOMENTS = [during_training] * 6 + [twice_slowly, before_training, after_training, after_training, in_the_last_step]


@faults("signals", 47)
def test_a_signal_ends_a_run_with_a_documented_status(seed, flags, whole, tmp_path, record_property):
    draw = random.Random(seed)
    moment = draw.choice(MOMENTS)
    kind = draw.choice([name for name in KINDS if moment is during_training or KINDS[name].ranks == 1])
    fault, status = moment(draw, kind)
    folder = tmp_path / "run"
    workers = draw.choice(["0", "0", "2"])
    given = [*flags(kind), "--output_dir", folder, "--dataloader_num_workers", workers]
    ended = start(kind, given, tmp_path, fault)
    print(f"{kind}, {workers} workers, {moment.__name__}, {fault}: {ended.statuses}\n{ended.printed}")
    assert set(ended.statuses) == {status}
    if status == STOPPED:
        (said,) = re.findall(r"stopped after step (\d+); resume with .* from (checkpoint-\d+)", ended.printed)
        checkpoints = list(folder.rglob(said[1]))
        assert said[1] == f"checkpoint-{said[0]}" and [damage(path) for path in checkpoints] == [None]
    if status == 130:
        assert ended.printed.splitlines()[-1].endswith(": interrupted")
    assert not list(folder.rglob("checkpoint-*.incomplete")) or status < 0
    ended = start(kind, [*given, *(AUTO if kind != "series" else [])], tmp_path)
    assert set(ended.statuses) == {0}, ended.printed
    # The run that was stopped has one more checkpoint.
    check_same(whole(kind), folder, but=r"(seed-\d+/)?checkpoint-\d+(/.*)?")
    outcomes = {STOPPED: "stopped with a checkpoint", 130: "interrupted", 0: "the last step: ended as usual"}
    record_property("outcome", outcomes.get(status, "ended at once"))


TORCHRUN = "-m torch.distributed.run --standalone --nproc_per_node 2"
ACCELERATE = "-m accelerate.commands.launch --cpu --num_processes 1"
# (launcher, signal, whether it goes to all processes of the session, as from a terminal)
LAUNCHERS = (
    (TORCHRUN, signal.SIGTERM, False),
    (TORCHRUN, signal.SIGINT, True),
    (ACCELERATE, signal.SIGINT, True),
)
LONG = "--max_steps 150 --save_steps 0 --logging_steps 1 --dataloader_num_workers 1 --per_device_train_batch_size 2"


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@faults("signals", 3)
def test_a_signal_to_the_launcher(seed, flags, tmp_path, record_property):
    """The launchers have statuses of their own; the checkpoint stands, and no process of the session is left."""
    launcher, number, to_all = LAUNCHERS[seed]
    given = [*flags("pretraining"), *LONG.split(), "--output_dir", str(tmp_path / "run")]
    command = [sys.executable, *launcher.split(), str(ROOT / "run_pretraining.py"), *given]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with open(tmp_path / "output", "w") as output:
        process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=output, stderr=output)
    records, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 180
    while process.poll() is None and time.monotonic() < deadline:
        if records.exists() and records.read_text().count("train") >= 3:
            break
        time.sleep(0.02)
    assert process.poll() is None, (tmp_path / "output").read_text()
    (os.killpg if to_all else os.kill)(process.pid, number)
    status = process.wait(timeout=60)
    while time.monotonic() < deadline and is_alive(process.pid):  # accelerate launch does not wait for its process
        time.sleep(0.02)
    assert not is_alive(process.pid)
    printed = (tmp_path / "output").read_text()
    (step,) = re.findall(r"stopped after step (\d+);", printed)
    assert status != 0 and damage(tmp_path / "run" / f"checkpoint-{step}") is None, printed
    ranks = 2 if launcher == TORCHRUN else 1
    for folder, more in (("run", AUTO), ("whole", [])):
        ended = run("run_pretraining", [*given[:-1], tmp_path / folder, *more], tmp_path, ranks=ranks)
        assert set(ended.statuses) == {0}, ended.printed
    check_same(tmp_path / "whole", tmp_path / "run", but=r"checkpoint-\d+(/.*)?")
    record_property("outcome", "stopped with a checkpoint")
