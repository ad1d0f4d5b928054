"""The demo, small: every part runs, stops and goes on, and the folder it promises is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.repository import ROOT


@pytest.mark.slow
def test_the_demo_runs_and_keeps_what_has_finished(tmp_path):
    environment = os.environ | {
        "DEMO_DIR": str(tmp_path),
        "DEMO_STEPS": "4",
        "DEMO_EXAMPLES": "64",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", ROOT / "examples" / "demo.sh"], env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "| pair task | accuracy |" in done.stdout
    assert "fill_mask(" in done.stdout
    assert (tmp_path / "report" / "report.png").stat().st_size > 10_000
    names = ("pretrained", "pair-pretrained", "pair-random", "answers-pretrained", "answers-random")
    finished = {name: (tmp_path / name / "all_results.json").stat().st_mtime_ns for name in names}
    (tmp_path / "answers-random" / "all_results.json").unlink()
    again = subprocess.run(
        ["bash", ROOT / "examples" / "demo.sh"], env=environment, capture_output=True, text=True, timeout=900
    )
    assert again.returncode == 0, again.stderr[-2000:]
    for name in names[:-1]:
        assert (tmp_path / name / "all_results.json").stat().st_mtime_ns == finished[name]
    assert (tmp_path / "answers-random" / "all_results.json").exists()
