"""The laboratory's runs: their records agree, and their statistics are what the code computes today."""

import json
from pathlib import Path

import pytest

from bert_training.__main__ import main
from bert_training.inputs.reading import read_events
from bert_training.record import read_summary
from bert_training.tasks.statistics import compare, statistics
from tests.helpers.repository import ROOT

RUNS = sorted(ROOT.glob("lab/records/runs/**/all_results.json"))
SERIES = sorted(ROOT.glob("lab/records/runs/*/summary.json"))


def test_all_are_verified(capsys, monkeypatch):
    """The series; the runs have no weights, so that only their records can be compared with each other."""
    monkeypatch.chdir(ROOT)
    assert main(["verify", "lab/records/runs", "--skip_evaluation", "--brief"]) in (None, 0), capsys.readouterr().out
    assert " 0 differs" in capsys.readouterr().out


@pytest.mark.parametrize("path", RUNS, ids=lambda path: str(path.parent.relative_to(ROOT / "lab/records/runs")))
def test_recorded_results_are_those_of_their_last_evaluation(path):
    """Or of the best one, if its weights were kept."""
    results = json.loads(path.read_text(encoding="utf-8"))
    events = read_events(path.with_name("metrics.jsonl"))
    step, found = results.get("best_step", results["train_steps"]), {}
    for event in events:
        found |= event if event["event"] == "eval" and event["step"] == step else {}
    names = [name for name in results if name.startswith("eval_")]
    assert names and {name: found[name] for name in names} == {name: results[name] for name in names}


@pytest.mark.parametrize("path", SERIES, ids=lambda path: path.parent.name)
def test_recorded_summaries_are_those_of_their_runs(path):
    """A record must not keep statistics that the code no longer computes."""
    summary = read_summary(path.parent)
    for run in summary["runs"]:
        results = path.parent / run["folder"] / "all_results.json"  # Of some series only the summary was kept.
        assert not results.exists() or run["results"] == json.loads(results.read_text(encoding="utf-8"))
    found = {"settings": [one["metrics"] for one in summary["settings"]]}
    expected: dict = {"settings": []}
    for one in summary["settings"]:
        runs = [run["results"] for run in summary["runs"] if run["learning_rate"] == one["learning_rate"]]
        constants = summary["baselines"].items()
        expected["settings"].append({name: statistics([run[name] for run in runs], value) for name, value in constants})
    if "comparison" in summary:
        other = ROOT / "lab/records/runs" / Path(summary["comparison"]["with"]).name / "summary.json"
        shared = [name for name in summary["comparison"] if name not in ("with", "pairs")]
        found["comparison"] = {name: value for name, value in summary["comparison"].items() if name != "with"}
        expected["comparison"] = compare(summary["runs"], json.loads(other.read_text())["runs"], shared)
    found, expected = flat(found), flat(expected)
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        assert found[path] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), path


def flat(content, path=()) -> dict:
    """Every value that is neither a list nor a dictionary, by its path."""
    if isinstance(content, dict | list):
        parts = content.items() if isinstance(content, dict) else enumerate(content)
        return {key: leaf for name, part in parts for key, leaf in flat(part, (*path, name)).items()}
    return {path: content}
