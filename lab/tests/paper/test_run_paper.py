"""lab/run_paper.py from its command to its report, also after it was killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.paper.record import results_of
from lab.paper.scales import CELLS, RECORD
from lab.tests.paper.test_record import differences, read
from tests.helpers.repository import ROOT


def start(table: str, folder: Path) -> subprocess.Popen:
    """Start a smoke run in a process group of its own."""
    flags = ["--table", table, "--smoke", "--seeds", "2", "--jobs", "2", "--output_dir", str(folder)]
    command = [sys.executable, str(ROOT / "lab/run_paper.py"), *flags]
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
    corpora = list((tmp_path / "out/cells").glob("pretrain-*/corpus/train/shard-00000/tokens.bin"))
    assert len(corpora) >= 2 and all(path.samefile(corpora[0]) for path in corpora)  # one cell has built it
    assert differences(*read(tmp_path / "out")) == []
    finish(start(table, tmp_path / "out"))  # All runs are there, and only the report is made again.
    assert json.loads((tmp_path / "out/report.json").read_text()) == found


def processes_below(parent: int) -> dict[int, str]:
    """The number of each process that a process has started -> its command."""
    command = ["ps", "-axwwo", "pid=,ppid=,command="]  # ww: a line is never cut to the width of a terminal
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()]
    return {int(pid): command[0] if command else "" for pid, ppid, *command in rows if int(ppid) == parent}


def server_of(command: int) -> int | None:
    """The process that forks a child for every cell; None before it has started."""
    return next((pid for pid, words in processes_below(command).items() if "forkserver" in words), None)


def kill(kind: str, process: subprocess.Popen, draw: random.Random) -> None:
    """Kill the command alone, with all processes of its group, the server, or one of the cells; or ask it to stop."""
    server = server_of(process.pid)
    assert server is not None and process.poll() is None
    if kind == "group":
        os.killpg(process.pid, signal.SIGKILL)
    elif kind == "cell":
        os.kill(draw.choice(sorted(processes_below(server))), signal.SIGKILL)
    elif kind == "server":
        os.kill(server, signal.SIGKILL)
    else:
        process.send_signal(signal.SIGKILL if kind == "command" else signal.SIGTERM)


@pytest.mark.slow
def test_killed_at_random_the_same_table_comes_out(tmp_path):
    """After each kill the same command is given again. Where runs have outlived it, the new ones wait for them."""
    begun = time.time()
    finish(start("7", tmp_path / "whole"))
    length, draw = time.time() - begun, random.Random(7)
    statuses = {}
    for kind in ("command", "cell", "group", "server", "signal"):
        process = start("7", tmp_path / "killed")
        while (server := server_of(process.pid)) is None or not processes_below(server):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 0.1) * length)
        while kind == "cell" and not processes_below(server):  # between two cells
            time.sleep(0.01)
        kill(kind, process, draw)
        process.communicate()
        statuses[kind] = process.returncode
    assert statuses == {"command": -signal.SIGKILL, "cell": 2, "group": -signal.SIGKILL, "server": 2, "signal": 75}
    finish(start("7", tmp_path / "killed"))
    for name in ("report.md", "report.json", "report.png", "plan.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()
    models = sorted((tmp_path / "whole" / CELLS).glob("*/model.safetensors"))
    assert len(models) == 16
    for model in models:
        assert model.read_bytes() == (tmp_path / "killed" / CELLS / model.parent.name / model.name).read_bytes()
    whole, killed = (json.loads((tmp_path / name / RECORD).read_text()) for name in ("whole", "killed"))
    assert whole["outline"] == killed["outline"] and whole["sha256"] == killed["sha256"]
    assert results_of(whole["cells"]) == results_of(killed["cells"])
