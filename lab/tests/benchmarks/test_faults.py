"""lab/faults.py: every row counts its faults, and a row that is not whole is not recorded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab import tables
from tests.helpers.repository import ROOT

TESTS = """
import pytest
from lab.tests.helpers.fault_campaign import faults

@faults("signals", 50)
def test_stopped(seed, record_property):
    assert {outcome}
    record_property("outcome", "stopped" if seed % 2 else "stopped | twice")

@faults("a long run", 1)
def test_alone(seed, record_property):
    record_property("open files", 7)

@faults("hostile input", 1)
def test_of_another_row(seed):
    raise ValueError
"""
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from lab import faults
faults.TESTS = ["-p", "no:cacheprovider", "-c", {config!r}, {tests!r}]
faults.RECORD = Path({results!r})
faults.write_pages = lambda: None
sys.argv = ["faults.py", "--rows", "a long run", "signals"]
faults.main()
"""


def campaign(folder: Path, outcome: str) -> tuple[int, str]:
    """Run a campaign of two rows. Return the exit status and what was printed."""
    (folder / "test_some.py").write_text(TESTS.replace("{outcome}", outcome))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    faults\n    slow\n")
    names = {"tests": folder / "test_some.py", "config": folder / "pytest.ini", "results": folder / "found.json"}
    program = PROGRAM.format(root=str(ROOT), **{key: str(path) for key, path in names.items()})
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_rows_are_recorded_and_others_stay(tmp_path):
    (tmp_path / "found.json").write_text(json.dumps({"damaged files": {"faults": 1}, "signals": {"faults": 2}}))
    status, printed = campaign(tmp_path, "True")
    assert status == 0, printed
    record = json.loads((tmp_path / "found.json").read_text())
    assert list(record) == ["signals", "damaged files", "a long run"]  # in the order of ROWS
    signals = record["signals"]
    assert signals["faults"] == 50 and signals["outcomes"] == {"stopped | twice": 25, "stopped": 25}
    ((test, number),) = signals["seeds"].items()
    assert test.endswith("test_some.py::test_stopped") and number == 50
    assert signals["commit"] and signals["date"]
    assert record["a long run"]["measured"] == {"open files": 7}
    assert record["damaged files"] == {"faults": 1}
    del record["damaged files"]
    assert tables.faults(record).splitlines()[2:] == [
        "| signals | 25 stopped \\| twice; 25 stopped | 50 |",
        "| a long run | open files: 7 | 1 |",
    ]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("seed != 7", ["failed or skipped: test_some.py::test_stopped[7]", "expected 50 faults, got 49"]),
        (
            "pytest.skip('no disk')",
            ["failed or skipped: test_some.py::test_stopped[49]", "expected 50 faults, got 0"],
        ),
    ],
)
def test_a_row_with_a_failed_or_skipped_test_is_not_recorded(outcome, expected, tmp_path):
    status, printed = campaign(tmp_path, outcome)
    lines = printed.splitlines()
    assert status == 1 and "not recorded: signals" in lines and lines[-2:] == [f"  {line}" for line in expected]
    assert list(json.loads((tmp_path / "found.json").read_text())) == ["a long run"]
