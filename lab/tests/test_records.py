"""The laboratory's runs: their hashes and cards hold, and their statistics are what the code computes today."""

import json
import re
from pathlib import Path

import pytest

from bert_training.__main__ import main
from bert_training.tasks import seeds
from tests.helpers.repository import ROOT

SERIES = sorted(ROOT.glob("lab/records/runs/*/summary.json"))


def test_all_are_verified(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    status = main(["verify", "lab/records/runs", "--brief", "--skip_evaluation"])
    assert status in (None, 0), capsys.readouterr().out
    assert int(re.search(r"(\d+) verified, 0 differs", capsys.readouterr().out)[1]) > 20


@pytest.mark.parametrize("path", SERIES, ids=lambda path: path.parent.name)
def test_recorded_summaries_are_those_of_their_runs(path):
    """A record must not keep statistics that the code no longer computes."""
    summary = seeds.read_summary(path.parent)
    for run in summary["runs"]:
        results = path.parent / run["folder"] / "all_results.json"  # Of some series only the summary was kept.
        assert not results.exists() or run["results"] == json.loads(results.read_text(encoding="utf-8"))
    facts = {"splits": summary["validation"]}
    series = seeds.Series(summary["task"], facts, summary["metric"], summary["baselines"])
    expected = seeds.summarise(summary["runs"], series)
    if "comparison" in summary:
        other = ROOT / "lab/records/runs" / Path(summary["comparison"]["with"]).name / "summary.json"
        shared = [name for name in summary["comparison"] if name not in ("with", "pairs")]
        expected["comparison"] = {"with": summary["comparison"]["with"]}
        expected["comparison"] |= seeds.compare(summary["runs"], json.loads(other.read_text())["runs"], shared)
    found, expected = flat(summary), flat(expected)
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        assert found[path] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), path


def flat(content, path=()) -> dict:
    """Every value that is neither a list nor a dictionary, by its path."""
    if isinstance(content, dict | list):
        parts = content.items() if isinstance(content, dict) else enumerate(content)
        return {key: leaf for name, part in parts for key, leaf in flat(part, (*path, name)).items()}
    return {path: content}
