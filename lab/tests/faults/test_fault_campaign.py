"""The fault campaign: lab/tests/programs/fault_runs.py does to a run what it says, and CI runs a tenth of all seeds."""

import json
import os
import signal
import subprocess
import sys

import pytest

from lab.tests.helpers.fault_campaign import ROWS
from lab.tests.helpers.fault_runs import run
from tests.helpers.repository import ROOT

HERE = "lab.tests.faults.test_fault_campaign"


def wait_forever() -> None:
    while True:
        signal.pause()


def leave_a_process() -> None:
    if not os.fork():
        os.close(1)
        wait_forever()


def fail_on_rank_0() -> None:
    if os.environ["RANK"] == "0":
        sys.exit(3)
    wait_forever()


def test_a_run_ends_with_its_status_and_its_words(tmp_path):
    ended = run("run_glue", [], tmp_path)
    assert ended.status == 2 and "--output_dir" in ended.printed and not ended.timed_out
    assert run("bert_training", [], tmp_path).status in (0, 2)


def test_a_run_gets_signals_after_some_seconds(tmp_path):
    prepare = [(f"{HERE}:wait_forever", {})]
    for number in (signal.SIGTERM, signal.SIGKILL):
        ended = run("run_glue", [], tmp_path, prepare=prepare, signals=[(0.1, number, "0")])
        assert ended.status == -number and ended.seconds >= 0.1
    assert run("run_glue", [], tmp_path, prepare=prepare, signals=[(0.1, signal.SIGINT, "group")]).status == 130


def test_a_run_that_hangs_is_killed(tmp_path):
    ended = run("run_glue", [], tmp_path, prepare=[(f"{HERE}:wait_forever", {})], seconds=0.2)
    assert ended.timed_out and ended.status == -signal.SIGKILL


def test_the_other_ranks_of_a_failed_run_are_killed(tmp_path):
    ended = run("run_glue", [], tmp_path, prepare=[(f"{HERE}:fail_on_rank_0", {})], ranks=2)
    assert ended.statuses == [3, -signal.SIGKILL]


@pytest.mark.slow
def test_a_process_that_is_left_behind_is_noticed(tmp_path):
    ended = run("run_glue", [], tmp_path, prepare=[(f"{HERE}:leave_a_process", {})])
    assert ended.status == 2 and ended.left_behind


def collected(*arguments: str, **environment: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_every_tenth_seed_runs_or_all_or_the_one_that_is_named():
    test = "lab/tests/faults/test_kills.py::test_a_killed_pretraining_goes_on"
    everything = collected(test, BERT_REPRO_FAULTS="all")
    assert everything == [f"{test}[{seed}]" for seed in range(len(everything))]
    assert collected(test, BERT_REPRO_FAULTS="") == everything[::10]
    assert collected(f"{test}[17]", BERT_REPRO_FAULTS="") == [f"{test}[17]"]
    assert collected(test, "-m", "not slow", BERT_REPRO_FAULTS="all") == []


def test_every_recorded_row_has_the_faults_that_it_promises():
    record = json.loads((ROOT / "lab" / "records" / "faults.json").read_text(encoding="utf-8"))
    assert list(record) == [row for row in ROWS if row in record]
    assert {row: found["faults"] for row, found in record.items() if found["faults"] < ROWS[row]} == {}
