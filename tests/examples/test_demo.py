"""examples/demo.sh at a small size: every part runs, can be started again, and leaves the promised folder."""

import subprocess

import pytest

from tests.helpers.no_network import guarded
from tests.helpers.repository import ROOT


@pytest.mark.slow
def test_the_demo_runs_and_keeps_what_has_finished(tmp_path):
    guard = tmp_path / "guard"
    guard.mkdir()
    environment = guarded(guard) | {"DEMO_DIR": str(tmp_path), "DEMO_STEPS": "4", "DEMO_EXAMPLES": "64"}
    command = ["bash", ROOT / "examples" / "demo.sh"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not (guard / "asked").exists(), (guard / "asked").read_text()
    assert "| pair task | accuracy, " in done.stdout
    assert "fill_mask(" in done.stdout
    assert len(done.stdout.splitlines()) <= 40  # a screen
    assert (tmp_path / "report" / "report.png").stat().st_size > 10_000
    names = ("pretrained", "pair-pretrained", "pair-random", "answers-pretrained", "answers-random")
    finished = {name: (tmp_path / name / "all_results.json").stat().st_mtime_ns for name in names}
    (tmp_path / "answers-random" / "all_results.json").unlink()
    again = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr[-2000:]
    for name in names[:-1]:
        assert (tmp_path / name / "all_results.json").stat().st_mtime_ns == finished[name]
    assert (tmp_path / "answers-random" / "all_results.json").exists()
