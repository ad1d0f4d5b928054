"""lab/benchmarks/compatibility.py: tests become rows, a failure records nothing, and the page gets its table."""

import importlib.metadata
import json
import subprocess
import sys

import pytest

from lab import tables
from lab.benchmarks import compatibility
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
compatibility.conflict = lambda name: {{"package": name, "version": "1", "requires": ["torch<2, not 3"]}}
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
    assert (
        lines[5] == "| spacy-transformers | 1 | installation | cannot be installed here: it requires torch<2, not 3 |"
    )


@pytest.mark.parametrize("outcome", ["False", "pytest.skip('no display')"])
def test_a_failed_or_skipped_test_records_nothing(outcome, tmp_path):
    assert record_of(tmp_path, outcome) is None


def report_of_pip(requirements: list[str]) -> str:
    return json.dumps({"install": [{"metadata": {"version": "3.1", "requires_dist": requirements}}]})


def test_requirements_that_cannot_be_met_are_named(monkeypatch):
    version = importlib.metadata.version("torch")
    answer = ["torch<1.5", "numpy>=1", "transformers<2; extra == 'old'", "not-installed>=1"]
    done = subprocess.CompletedProcess([], 0, report_of_pip(answer), "")
    monkeypatch.setattr(compatibility.subprocess, "run", lambda *args, **more: done)
    assert compatibility.conflict("a") == {"package": "a", "version": "3.1", "requires": [f"torch<1.5, not {version}"]}
    done.stdout = report_of_pip(answer[1:])
    with pytest.raises(ValueError, match=r"a 3\.1 can be installed: test it"):
        compatibility.conflict("a")
    done.returncode, done.stderr = 1, "No matching distribution"
    with pytest.raises(ValueError, match="pip does not find a:\nNo matching distribution"):
        compatibility.conflict("a")
