"""lab/benchmarks/compatibility.py: tests become rows, a failure records nothing, and the page gets its table."""

import importlib.metadata
import json
import subprocess
import sys

import pytest

from lab import tables
from tests.helpers.repository import ROOT

TESTS = """
import pytest

@pytest.mark.tried("torch", "three ways")
@pytest.mark.parametrize("way", ["our class", "plain transformers", "trust_remote_code"])
def test_ways(way, record_property):
    for value in (0.25, len(way) / 100):
        record_property("largest difference", value)
        record_property("smallest share", value)

@pytest.mark.tried("torch", "something | else")
@pytest.mark.xfail(strict=True, raises=ValueError, reason="it is new")
def test_failure():
    raise ValueError

def test_without_a_row():
    pass

@pytest.mark.tried("numpy", "once")
def test_once():
    assert {outcome}
"""
PROGRAM = """
import sys, pytest
from pathlib import Path
sys.path.insert(0, {root!r})
from lab.benchmarks import compatibility
compatibility.TESTS = ["-p", "no:cacheprovider", "-c", {config!r}, {tests!r}]
compatibility.RECORD = Path({results!r})
compatibility.write_pages = lambda: None
sys.argv = ["compatibility.py"]
compatibility.main()
"""


def record_of(folder, outcome: str) -> dict | None:
    """The record that a suite gives; None if there is none."""
    (folder / "test_some.py").write_text(TESTS.replace("{outcome}", outcome))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    tried\n")
    names = {"tests": folder / "test_some.py", "config": folder / "pytest.ini", "results": folder / "found.json"}
    program = PROGRAM.format(root=str(ROOT), **{key: str(path) for key, path in names.items()})
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode == 0) == names["results"].exists(), done.stdout + done.stderr
    return json.loads(names["results"].read_text()) if done.returncode == 0 else None


def test_rows_of_a_suite(tmp_path):
    record = record_of(tmp_path, "True")
    rows = {row["test"].partition("::")[2]: row for row in record["results"]}
    assert list(rows) == ["test_once", "test_ways", "test_failure"]
    ways = rows["test_ways"]
    assert ways["works"] and ways["ways"] == ["our class", "plain transformers", "trust_remote_code"]
    assert ways["cases"] == 3 and ways["measured"] == {"largest difference": 0.25, "smallest share": 0.09}
    assert ways["version"] == importlib.metadata.version("torch")
    assert not rows["test_failure"]["works"] and rows["test_failure"]["reason"] == "it is new"
    assert record["command"] == "python lab/benchmarks/compatibility.py" and record["load_at_start"]
    lines = tables.compatibility(record).splitlines()
    result = "works (our class, plain, trusted); largest difference 2.5e-01; smallest share 0.09"
    assert lines[3] == f"| torch | {ways['version']} | three ways | {result} |"
    assert lines[4].endswith("| something \\| else | does not work: it is new |")


@pytest.mark.parametrize("outcome", ["False", "pytest.skip('no display')"])
def test_a_failed_or_skipped_test_records_nothing(outcome, tmp_path):
    assert record_of(tmp_path, outcome) is None
