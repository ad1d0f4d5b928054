"""bert_training/engine/run.py: the records of a run, and what its processes do together."""

import json

import pytest


def test_facts_are_gathered_and_written_to_run_json(make_run):
    run = make_run()
    run.add_facts(a=1, b=2)
    run.add_facts(b=3)
    assert not (run.output_dir / "run.json").exists()  # A mistake found until then leaves the folder free.
    run.write_facts()
    assert json.loads((run.output_dir / "run.json").read_text()) == {"a": 1, "b": 3}


def test_the_other_processes_exit_quietly_if_the_main_process_fails(make_run, monkeypatch):
    """The main process does the work first, and a broadcast tells the others whether it succeeded."""
    run, calls, sent = make_run(), [], []
    monkeypatch.setattr("bert_training.engine.run.broadcast_object_list", lambda objects: sent.append(objects[0]))

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
    monkeypatch.setattr("bert_training.engine.run.broadcast_object_list", lambda objects: objects.__setitem__(0, False))
    assert run.main_first(lambda: "found") == "found"
    run.is_main = True
    assert run.main_first(lambda: "made") == "made"


def test_work_of_the_main_process_only(make_run, monkeypatch):
    run, calls, sent = make_run(), [], []
    monkeypatch.setattr("bert_training.engine.run.broadcast_object_list", lambda objects: sent.append(objects[0]))
    run.only_main(lambda: calls.append("main"))
    assert (calls, sent) == (["main"], [False])
    run.is_main = False
    monkeypatch.setattr("bert_training.engine.run.broadcast_object_list", lambda objects: objects.__setitem__(0, False))
    run.only_main(lambda: calls.append("other"))
    assert calls == ["main"]


def test_records_are_json_whatever_a_number_is(make_run):
    """Under fp16, gradients that overflow have an infinite norm."""
    run = make_run()
    run.log(event="train", step=1, loss=0.5, grad_norm=float("inf"), text="NaN")
    (line,) = (run.output_dir / "metrics.jsonl").read_text().splitlines()
    found = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found == {"event": "train", "step": 1, "loss": 0.5, "grad_norm": None, "text": "NaN"}
