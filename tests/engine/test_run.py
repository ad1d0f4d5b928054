"""training/engine/run.py: the folder of a run, its records, and how a script reports errors."""

import json
import sys

import pytest

from training.engine.run import check_output_dir, report_errors
from training.engine.versions import commit, versions


def test_a_folder_that_holds_a_run_is_not_overwritten(make_run):
    run = make_run()
    check_output_dir(run.args)
    (run.output_dir / "notes.txt").write_text("mine")
    check_output_dir(run.args)
    for name in ("run.json", "config.json", "model.safetensors"):
        (run.output_dir / name).write_text("{}")
        with pytest.raises(ValueError, match=f"already holds a run or a model .{name}.*--resume_from_checkpoint auto"):
            check_output_dir(run.args)
        (run.output_dir / name).unlink()
    run.args.output_dir = str(run.output_dir / "notes.txt")
    with pytest.raises(ValueError, match="is a file"):
        check_output_dir(run.args)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "README.md", "vocab.txt"])
def test_resuming_overwrites_nothing_that_is_no_run(make_run, name):
    """--output_dir may be the folder of the pre-trained model, or one with a README.md of the user's."""
    run = make_run(resume_from_checkpoint="auto")
    check_output_dir(run.args)
    (run.output_dir / name).write_text("precious")
    with pytest.raises(ValueError, match=f"holds {name} but no run.json, so there is no run to continue"):
        check_output_dir(run.args)
    (run.output_dir / "run.json").write_text("{}")
    check_output_dir(run.args)


def test_records_are_one_object_a_line(make_run):
    run = make_run()
    run.log(event="train", step=1, loss=0.5)
    run.log(event="eval", step=1)
    lines = (run.output_dir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"event": "train", "step": 1, "loss": 0.5},
        {"event": "eval", "step": 1},
    ]


def test_facts_are_added_to_those_of_run_json(make_run):
    run = make_run()
    run.record(a=1, b=2)
    run.record(b=3)
    assert json.loads((run.output_dir / "run.json").read_text()) == {"a": 1, "b": 3}


def test_versions_and_commit_are_found():
    found = versions()
    assert found["torch"].startswith("2.")
    assert found["python"].startswith("3.")
    assert len(commit().rstrip("+")) == 12 or commit() == "unknown"


def test_a_checkout_on_a_machine_without_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() == "unknown"


def test_a_users_mistake_is_one_line_and_status_2(capsys, monkeypatch):
    def mistake():
        raise ValueError("expected this, got that; do so")

    monkeypatch.setattr(sys, "argv", ["run_x.py"])
    assert report_errors(mistake) == 2
    assert capsys.readouterr().err == "run_x.py: error: expected this, got that; do so\n"
    monkeypatch.setenv("BERT_REPRO_TRACEBACK", "1")
    assert report_errors(mistake) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_error_of_the_program_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        report_errors(lambda: 1 / 0)


def test_divergence_is_one_line_and_status_1(capsys):
    def diverged():
        raise FloatingPointError("step 3: the loss is nan")

    assert report_errors(diverged) == 1
    assert capsys.readouterr().err.endswith(": error: step 3: the loss is nan\n")


def test_the_other_processes_exit_quietly_if_the_main_process_fails(make_run, monkeypatch):
    """The main process does the work first, and a broadcast tells the others whether it succeeded."""
    run, calls, sent = make_run(), [], []
    monkeypatch.setattr("training.engine.run.broadcast_object_list", lambda objects: sent.append(objects[0]))

    def work():
        calls.append(1)
        raise ValueError("mistake")

    with pytest.raises(ValueError, match="mistake"):
        run.main_first(work)
    assert (calls, sent) == ([1], [True])
    run.is_main = False
    with pytest.raises(SystemExit) as stop:
        run.main_first(work)
    assert stop.value.code == 2 and calls == [1]
    monkeypatch.setattr("training.engine.run.broadcast_object_list", lambda objects: objects.__setitem__(0, False))
    assert run.main_first(lambda: "found") == "found"
    run.is_main = True
    assert run.main_first(lambda: "made") == "made"
