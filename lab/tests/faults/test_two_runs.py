"""Two commands with one output folder: the second is refused with one line, and the first ends as if it were alone."""

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bert_training.files import processes as locks
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.fault_runs import run
from tests.helpers import short_runs
from tests.helpers.same_runs import check_same, names

INJECTION = "lab.tests.helpers.fault_injection"
BUSY = "another process is at work there"
AUTO = ["--resume_from_checkpoint", "auto"]
SERIES = ["--seeds", "2"]
# What is done to the program -> (script, more flags, function and its call during which the second command is given,
# more flags of the second command, its status, a part of what it prints).
SECOND = {
    "while the corpus is built": (
        "pretraining",
        [],
        "bert_training.pretraining.build_corpus:make_shard",
        1,
        [],
        2,
        BUSY,
    ),
    "while it trains": ("pretraining", [], "bert_training.engine.loop:_update", 4, [], 2, "already holds a run"),
    "to resume while it trains": ("pretraining", [], "bert_training.engine.loop:_update", 4, AUTO, 2, BUSY),
    "to resume while a checkpoint is written": ("pretraining", [], "torch:save", 1, AUTO, 2, BUSY),
    "while the network is loaded": ("glue", [], "run_glue:build_task_network", 1, [], 2, BUSY),
    "for a series, between its runs": ("glue", SERIES, "run_glue:run_alone", 2, SERIES, 2, BUSY),
}


@pytest.fixture
def flags(pretrained, short_data) -> Callable[..., list[str]]:
    """The flags of a script for 4 steps, without the output folder."""

    def make(script: str, *more: str) -> list[str]:
        given = short_runs.flags(f"run_{script}", short_data, Path("unused"), pretrained)
        return [*given[2:], "--max_steps", "4", "--save_steps", "2", *map(str, more)]

    return make


def whole(script: str, given: list[str], folder: Path) -> Path:
    """The output folder of a run that was alone."""
    ended = run(script, [*given, "--output_dir", folder / "alone" / "run"], folder)
    assert ended.status == 0, ended.printed
    return folder / "alone" / "run"


def check_refused(status: int, printed: str, expected: str) -> None:
    assert status == 2 and expected in printed and "Traceback" not in printed, printed
    assert printed.count("error: ") == 1, printed


def a_second_start(seed, flags, tmp_path) -> str:
    script, first, function, call, second, status, said = SECOND[list(SECOND)[seed]]
    argv = [f"run_{script}", *flags(script, *second, "--output_dir", tmp_path / "run")]
    if random.Random(seed).random() < 0.5:  # The folder has two names.
        (tmp_path / "link").symlink_to(tmp_path / "run")
        argv[-1] = str(tmp_path / "link")
    fault = {"function": function, "call": call, "argv": argv, "report": str(tmp_path / "report")}
    given = flags(script, *first)
    ended = run(
        f"run_{script}",
        [*given, "--output_dir", tmp_path / "run"],
        tmp_path,
        prepare=[(f"{INJECTION}:second_run", fault)],
    )
    assert ended.status == 0 and not ended.left_behind, ended.printed
    report = json.loads((tmp_path / "report").read_text())
    assert report["status"] == status
    check_refused(report["status"], report["printed"], said)
    check_same(whole(f"run_{script}", given, tmp_path), tmp_path / "run")
    return "refused"


def a_start_after_a_kill(_, flags, tmp_path) -> str:
    """The processes that prepared batches for the killed run still live, and have copies of its open files."""
    given = flags("pretraining")
    output = ["--output_dir", str(tmp_path / "run"), "--dataloader_num_workers", "2"]
    argv = ["run_pretraining", *given, *output, *AUTO]
    fault = {
        "function": "bert_training.engine.loop:_update",
        "call": 4,
        "argv": argv,
        "report": str(tmp_path / "report"),
    }
    prepare = [(f"{INJECTION}:second_run", fault | {"at_death": True})]
    ended = run("run_pretraining", [*given, *output], tmp_path, prepare=prepare, patience=2)
    assert ended.status == -signal.SIGKILL
    end = time.monotonic() + 60
    while not (tmp_path / "report").exists() and time.monotonic() < end:
        time.sleep(0.05)
    report = json.loads((tmp_path / "report").read_text())
    assert report["status"] == 0 and "resuming from" in report["printed"], report["printed"]
    check_same(whole("run_pretraining", given, tmp_path), tmp_path / "run")
    return "resumed"


def two_processes_are_refused(_, flags, tmp_path) -> str:
    """The error is printed once, by the main process."""
    (tmp_path / "run").mkdir()
    given = [*flags("glue"), "--output_dir", tmp_path / "run"]
    locks.hold(tmp_path / "run" / ".lock", "busy")
    ended = run("run_glue", given, tmp_path, ranks=2, patience=10)
    locks.release(tmp_path / "run" / ".lock")
    assert ended.statuses == [2, 2], ended.printed
    check_refused(2, ended.printed, f"{BUSY}; wait until it has ended, or give another folder")
    assert names(tmp_path / "run") == set()
    return "refused"


OTHERS = (a_start_after_a_kill, two_processes_are_refused)


@faults("a world that changes", len(SECOND) + len(OTHERS))
def test_one_output_folder_has_one_run(seed, flags, tmp_path, record_property):
    fault = a_second_start if seed < len(SECOND) else OTHERS[seed - len(SECOND)]
    record_property("outcome", fault(seed, flags, tmp_path))
