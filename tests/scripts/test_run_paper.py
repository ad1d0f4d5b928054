"""run_paper.py from its command to its report, also after it was killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.repository import ROOT
from training.paper.places import CELLS

KILLS = 5


def start(table: str, folder: Path) -> subprocess.Popen:
    """Start a smoke run in a process group of its own."""
    flags = ["--table", table, "--smoke", "--seeds", "2", "--jobs", "2", "--output_dir", str(folder)]
    command = [sys.executable, str(ROOT / "run_paper.py"), *flags]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True, **pipes)


def finish(process: subprocess.Popen) -> None:
    _, errors = process.communicate()
    assert process.returncode == 0, errors


@pytest.mark.slow
@pytest.mark.parametrize("table", ["5", "6", "7", "8", "figure5"])
def test_a_smoke_run_makes_every_table(table, tmp_path):
    finish(start(table, tmp_path / "out"))
    found = json.loads((tmp_path / "out/report.json").read_text())
    assert found["table"] == table and found["seeds"] == [42, 43]
    assert all(claim["contrasts"] for claim in found["claims"])
    assert (tmp_path / "out/report.md").read_text().count("\n| ") > len(found["rows"]) + len(found["claims"])
    assert (tmp_path / "out/report.png").is_file()
    finish(start(table, tmp_path / "out"))  # All runs are there, and only the report is made again.
    assert json.loads((tmp_path / "out/report.json").read_text()) == found


@pytest.mark.slow
def test_killed_at_random_the_same_table_comes_out(tmp_path):
    """It is killed together with the runs that it started, or alone. In the second case the runs go on, and the next
    start waits for them.
    """
    begun = time.time()
    finish(start("7", tmp_path / "whole"))
    length, draw = time.time() - begun, random.Random(7)
    for number in range(KILLS):
        process = start("7", tmp_path / "killed")
        time.sleep(draw.uniform(0.1, 0.5) * length)
        if process.poll() is None:
            (os.killpg if number % 2 else os.kill)(process.pid, signal.SIGKILL)
        process.communicate()
    finish(start("7", tmp_path / "killed"))
    for name in ("report.md", "report.json", "report.png", "plan.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()
    models = sorted((tmp_path / "whole" / CELLS).glob("*/model.safetensors"))
    assert len(models) == 16
    for model in models:
        assert model.read_bytes() == (tmp_path / "killed" / CELLS / model.parent.name / model.name).read_bytes()


@pytest.mark.slow
def test_a_signal_stops_with_checkpoints_and_status_75(tmp_path):
    process = start("7", tmp_path / "out")
    while not list((tmp_path / "out").glob(f"{CELLS}/*/metrics.jsonl")):
        assert process.poll() is None
        time.sleep(0.1)
    process.terminate()
    process.communicate()
    assert process.returncode == 75
    finish(start("7", tmp_path / "out"))
