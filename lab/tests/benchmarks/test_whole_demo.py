"""lab/benchmarks/whole_demo.py: the other side has the settings of the demo, and what is measured is what the page
says.
"""

import json
import os

import pytest

from lab.benchmarks import whole_demo
from lab.benchmarks.whole_demo import PARTS, Size
from tests.helpers.repository import ROOT


@pytest.mark.parametrize("name", PARTS)
def test_the_other_side_has_the_settings_of_the_recorded_demo(tmp_path, name):
    """lab/records/runs/demo/ was written by ``make demo``."""
    (tmp_path / "data").mkdir()
    command = whole_demo.stock_commands(tmp_path / "data", tmp_path, Size())[name]
    stock = command if isinstance(command, dict) else json.loads((tmp_path / "data" / "pretraining.json").read_text())
    flags = json.loads((ROOT / "lab" / "records" / "runs" / "demo" / name / "run.json").read_text())["flags"]
    same = {"learning_rate": "learning_rate", "batch": "per_device_train_batch_size", "length": "max_seq_length"}
    if name == "pretrained":
        same["max_steps"] = "max_steps"
        assert (flags["config_name"], flags["vocab_size"]) == ("tiny", whole_demo.VOCABULARY)
    else:
        same["epochs"] = "num_train_epochs"
        assert flags["max_train_samples"] == Size().examples
        assert flags["max_eval_samples"] == (Size().questions if name.startswith("answers") else None)
        assert flags["config_name" if name.endswith("random") else "model_name_or_path"] is not None
    assert {key: stock[key] for key in same} == {key: flags[flag] for key, flag in same.items()}


def test_fine_tuning_begins_with_both_starts(tmp_path):
    (tmp_path / "data").mkdir()
    commands = whole_demo.stock_commands(tmp_path / "data", tmp_path, Size())
    models = {name: os.path.basename(commands[name]["model"]) for name in PARTS[1:]}
    expected = {"pretrained": "trained", "random": "random"}
    assert models == {name: expected[name.split("-")[1]] for name in PARTS[1:]}


def test_each_question_has_a_paragraph_of_its_own():
    paragraphs = [{"context": c, "qas": [{"id": c + i} for i in "12"]} for c in "abc"]
    content = whole_demo.first_questions({"data": [{"paragraphs": paragraphs[:1]}, {"paragraphs": paragraphs[1:]}]}, 3)
    found = [(paragraph["context"], paragraph["qas"]) for paragraph in content["data"][0]["paragraphs"]]
    assert found == [("a", [{"id": "a1"}]), ("a", [{"id": "a2"}]), ("b", [{"id": "b1"}])]


def test_a_part_ends_with_its_results(tmp_path):
    for number, name in enumerate(PARTS, 1):
        (tmp_path / name).mkdir()
        (tmp_path / name / "all_results.json").touch()
        os.utime(tmp_path / name / "all_results.json", (0, 1000 + number * number))
    found = whole_demo.parts_of(tmp_path, began=1000.0)
    assert found == dict(zip(PARTS, (1.0, 3.0, 5.0, 7.0, 9.0)))


def test_the_demo_is_timed_with_its_largest_process(tmp_path, monkeypatch):
    """A stand-in for examples/demo.sh, which is given the size and the folder."""
    monkeypatch.setenv("HF_ASSETS_CACHE", str(tmp_path))
    script = tmp_path / "demo.sh"
    lines = [f'mkdir -p "$DEMO_DIR/{name}"; echo $DEMO_STEPS > "$DEMO_DIR/{name}/all_results.json"' for name in PARTS]
    lines.append("python -S -c 'import time; held = bytearray(80_000_000); time.sleep(0.5)'")
    lines.append('[ ! -e "$HF_ASSETS_CACHE" ]')  # Nobody has read the documentation for this demo.
    script.write_text("set -e\n" + "\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(whole_demo, "DEMO", script)
    found = whole_demo.run_demo(tmp_path / "out", Size(7, 8, 9))
    assert 76 < found["mb"] < 120 and found["seconds"] > 0.5
    assert list(found["parts"]) == list(PARTS)
    assert (tmp_path / "out" / "pair-random" / "all_results.json").read_text() == "7\n"
    script.write_text("exit 3", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"status 3: see .*output\.txt"):
        whole_demo.run_demo(tmp_path / "out", Size())


def test_the_record_compares_both_sides():
    ours = {"seconds": 100.0, "mb": 400, "parts": dict(zip(PARTS, (40.0, 10.0, 10.0, 15.0, 15.0)))}
    stock = {"seconds": 300.0, "mb": 500, "parts": dict(zip(PARTS, (200.0, 25.0, 25.0, 25.0, 25.0)))}
    assert whole_demo.row_of(ours, stock) == {
        "ours_seconds": 100.0,
        "stock_seconds": 300.0,
        "ratio": 3.0,
        "parts": {
            "ours": {"pre-training": 40.0, "fine-tuning": 50.0},
            "stock": {"pre-training": 200.0, "fine-tuning": 100.0},
        },
        "part_ratios": {"pre-training": 5.0, "fine-tuning": 2.0},
        "ours_mb": 400,
        "stock_mb": 500,
    }


@pytest.mark.slow
def test_the_other_side_with_few_steps(tmp_path, monkeypatch):
    """The demo itself is run by other tests."""
    ours = {"seconds": 100.0, "mb": 400, "parts": dict.fromkeys(PARTS, 20.0)}
    monkeypatch.setattr(whole_demo, "run_demo", lambda output, size: ours)
    whole_demo.main(["--smoke", "--work_dir", str(tmp_path)])
    record = json.loads((tmp_path / "whole_demo.json").read_text())
    assert record["stock_mb"] > 300 and record["stock_seconds"] > 10
    assert {"commit", "sources", "versions", "busy_cores_at_start"} <= set(record)
    assert {whole_demo.DEMO, "run_squad.py", "bert_training/engine/launch.py"} <= set(record["sources"])
    weights = [tmp_path / "stock" / "pretrained" / start / "model.safetensors" for start in ("random", "trained")]
    assert weights[0].read_bytes() != weights[1].read_bytes()
    for name in PARTS[1:]:
        assert json.loads((tmp_path / "stock" / name / "results.json").read_text())["predictions"]
