"""Checkpoints are complete or absent, restore the run bit by bit, and are refused where they do not fit."""

import errno
import math
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from bert_training.engine.checkpoint import (
    UNKNOWN,
    Origin,
    TrainingState,
    begin_anew,
    find_checkpoint,
    load_checkpoint,
    resume,
    save_checkpoint,
)
from bert_training.files.atomic import damage
from bert_training.inputs.reading import read_events
from modeling_bert_repro import BertForSequenceClassification
from tests.helpers import short_runs


@pytest.fixture
def new_state(small_config):
    def make(seed=0):
        torch.manual_seed(seed)
        model = BertForSequenceClassification(small_config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scheduler = LambdaLR(optimizer, lambda step: 1 / (1 + step))
        return TrainingState(model, optimizer, scheduler, total_steps=20, origin=UNKNOWN)

    return make


def take_a_step(state):
    state.model(input_ids=torch.arange(5, 13).view(2, 4), labels=torch.tensor([0, 1])).loss.backward()
    state.optimizer.step()
    state.scheduler.step()
    state.optimizer.zero_grad()


def test_model_optimizer_and_schedule_are_restored(make_run, new_state):
    run, old = make_run(), new_state()
    take_a_step(old)
    folder = save_checkpoint(run, 7, old)
    run.args.resume_from_checkpoint = "auto"
    assert find_checkpoint(run) == folder
    new = new_state(seed=1)
    assert load_checkpoint(run, folder, new) == 7
    for state in (old, new):
        state.model.eval()
        take_a_step(state)
    for one, other in zip(old.model.parameters(), new.model.parameters()):
        assert torch.equal(one, other)
    assert old.scheduler.get_last_lr() == new.scheduler.get_last_lr()


def test_the_oldest_is_removed_only_after_the_newest_is_complete(make_run, new_state, monkeypatch):
    run, state, removed = make_run(save_total_limit=2), new_state(), []
    remove = shutil.rmtree

    def noted(folder, **options):
        if folder.exists():
            removed.append((folder.name, damage(run.output_dir / "checkpoint-10")))
        remove(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", noted)
    for step in (2, 9, 10):
        save_checkpoint(run, step, state)
    assert removed == [("checkpoint-2.old.incomplete", None)]  # None: no damage.
    kept = sorted(p.name for p in run.output_dir.glob("checkpoint-*"))
    assert kept == ["checkpoint-10", "checkpoint-9"]


def test_a_later_damaged_checkpoint_removes_no_other(make_run, new_state):
    run, state = make_run(save_total_limit=1), new_state()
    (run.output_dir / "checkpoint-12").mkdir()
    for step in (9, 10):
        save_checkpoint(run, step, state)
        assert sorted(p.name for p in run.output_dir.iterdir()) == sorted([f"checkpoint-{step}", "checkpoint-12"])


def test_what_a_kill_left_behind_is_removed_on_resuming(make_run, new_state):
    """The kill came after the new checkpoint was complete and before the old one was removed, or inside a new one."""
    run, state = make_run(save_total_limit=0), new_state()
    for step in (3, 6, 9):
        save_checkpoint(run, step, state)
    (run.output_dir / "checkpoint-12.incomplete").mkdir()
    run.args.save_total_limit = 1
    run.args.resume_from_checkpoint = str(run.output_dir / "checkpoint-6")
    assert resume(run, state) == 6
    names = ["checkpoint-12.incomplete", "checkpoint-3", "checkpoint-6", "left-checkpoint-9"]
    assert [*sorted(path.name for path in run.output_dir.glob("*checkpoint-*"))] == names  # nothing is removed
    run.args.resume_from_checkpoint = "auto"
    assert resume(run, state) == 6
    assert sorted(path.name for path in run.output_dir.glob("*checkpoint-*")) == ["checkpoint-6", "left-checkpoint-9"]


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def full_disk_in_torch(*_, **__):
    try:
        full_disk()
    except OSError:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")  # noqa: B904


WRITERS = {  # the functions that write, each with what it does when the disk is full
    "torch.save": full_disk_in_torch,
    "os.fsync": full_disk,
    "os.replace": full_disk,
    "modeling_bert_repro.BertForSequenceClassification.save_pretrained": full_disk,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_leaves_the_last_checkpoint(make_run, new_state, monkeypatch, writer):
    run, state = make_run(save_total_limit=1), new_state()
    save_checkpoint(run, 10, state)
    with monkeypatch.context() as patch:
        patch.setattr(writer, WRITERS[writer])
        message = r"checkpoint-11 could not be written \(No space left .*\)\. The newest checkpoint is checkpoint-10"
        with pytest.raises(OSError, match=message):
            save_checkpoint(run, 11, state)
    assert [path.name for path in run.output_dir.glob("checkpoint-*")] == ["checkpoint-10"]
    assert damage(run.output_dir / "checkpoint-10") is None
    assert run.saved_step == 10


def break_file(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1  # safetensors loads a file with one changed bit in its data without an error.
    path.write_bytes(data)


FAULTS = {
    "does not match its checksum": break_file,
    "training_state.pt is missing": lambda folder: os.remove(folder / "training_state.pt"),
    "not written completely, or another program's, which --model_name_or_path takes": lambda folder: os.remove(
        folder / "manifest.json"
    ),
    "cannot be read": lambda folder: (folder / "manifest.json").write_text("{"),
    "does not list config.json, model.safetensors, training_state.pt": lambda folder: (
        folder / "manifest.json"
    ).write_text('{"sha256": {}}'),
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_damaged_checkpoint_is_passed_over_and_refused_by_name(make_run, new_state, message):
    run, state = make_run(), new_state()
    good = save_checkpoint(run, 1, state)
    bad = save_checkpoint(run, 2, state)
    FAULTS[message](bad)
    run.args.resume_from_checkpoint = "auto"
    assert find_checkpoint(run) == good
    run.args.resume_from_checkpoint = str(bad)
    with pytest.raises(ValueError, match=message):
        find_checkpoint(run)


def test_another_run_is_refused(make_run, new_state):
    run, state = make_run(), new_state()
    folder = save_checkpoint(run, 7, state)
    with pytest.raises(ValueError, match="total_steps 20 -> 30"):
        load_checkpoint(run, folder, replace(state, total_steps=30))
    run.args.learning_rate = 1.0
    with pytest.raises(ValueError, match=r"learning_rate 5e-05 -> 1\.0"):
        load_checkpoint(run, folder, state)
    run.args.learning_rate = 5e-5
    run.args.gradient_accumulation_steps = 2
    with pytest.raises(ValueError, match="batches 4 -> 8"):
        load_checkpoint(run, folder, state)


def test_the_best_evaluation_is_one_of_the_same_kind(make_run, new_state):
    """Otherwise a score on four examples could win over one on all, and be reported as that of all."""
    run, state = make_run(), new_state()
    run.args.max_eval_samples = 4
    folder = save_checkpoint(run, 7, state)
    run.args.max_eval_samples = None
    assert load_checkpoint(run, folder, state) == 7
    run.args.load_best_model_at_end = True
    with pytest.raises(ValueError, match="max_eval_samples 4 -> None"):
        load_checkpoint(run, folder, state)
    run.args.max_eval_samples = 4
    assert load_checkpoint(run, folder, state) == 7


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tokenizer_sha256", "a run with another tokenizer; resume with the one that it was started with"),
        ("initial_weights", "a run from other weights; resume with the --model_name_or_path that it was started with"),
    ],
)
def test_another_start_is_refused(make_run, new_state, name, message):
    run, state = make_run(), new_state()
    folder = save_checkpoint(run, 7, replace(state, origin=Origin(**{name: "abc"})))
    assert load_checkpoint(run, folder, replace(state, origin=Origin(**{name: "abc"}))) == 7
    for other in (Origin(**{name: "xyz"}), Origin()):
        with pytest.raises(ValueError, match=message):
            load_checkpoint(run, folder, replace(state, origin=other))


def test_other_data_and_phases_are_refused(make_run, new_state):
    """The values that are passed count; what else run.json says does not."""
    run, state = make_run(), new_state()
    origin = Origin(data={"train": {"sha256": "abc", "rows": 3}}, phases="9 steps of 4 x 128, 1 steps of 4 x 512")
    folder = save_checkpoint(run, 7, replace(state, origin=origin))
    run.facts["data"] = {"train": {"sha256": "xyz"}}
    assert load_checkpoint(run, folder, replace(state, origin=origin)) == 7
    with pytest.raises(ValueError, match="a run on other data; resume with the files that it was started with"):
        load_checkpoint(run, folder, replace(state, origin=replace(origin, data={"train": {"sha256": "xyz"}})))
    with pytest.raises(ValueError, match="batches 9 steps of 4 x 128, 1 steps of 4 x 512 -> 4"):
        load_checkpoint(run, folder, replace(state, origin=replace(origin, phases=None)))


def test_another_model_is_refused(make_run, new_state, small_config):
    run = make_run()
    folder = save_checkpoint(run, 7, new_state())
    small_config.num_hidden_layers = 3
    with pytest.raises(
        ValueError, match=r"holds another model: 17 of its parts differ, such as bert\.encoder\.layer\.2\."
    ):
        load_checkpoint(run, folder, new_state())
    small_config.num_hidden_layers, small_config.intermediate_size = 2, 41
    with pytest.raises(ValueError, match=r"holds another model: .* \(37, 32\) -> \(41, 32\)"):
        load_checkpoint(run, folder, new_state())
    small_config.intermediate_size = 37
    small_config.num_attention_heads, small_config.hidden_act = 8, "relu"  # The shapes of the weights do not change.
    with pytest.raises(ValueError, match=r"another model: 2 of its parts differ, such as hidden_act gelu -> relu"):
        load_checkpoint(run, folder, new_state())


def recorded(run) -> list[tuple[str, int]]:
    return [(event["event"], event["step"]) for event in read_events(run.output_dir / "metrics.jsonl")]


def test_no_event_is_lost_or_doubled_wherever_the_run_goes_on(make_run, new_state):
    """The last evaluation follows the checkpoint of its step, while any other precedes it."""
    run, state = make_run(resume_from_checkpoint="auto", save_total_limit=0), replace(new_state(), total_steps=4)
    expected = []
    for step in (1, 2, 3, 4):
        events = [("train", step), ("eval", step)]
        for event, _ in events[: 1 + (step < 4)]:
            run.log(event=event, step=step)
        expected.append(events[: 1 + (step < 4)])
        save_checkpoint(run, step, state)
    run.log(event="eval", step=4)
    for step in (4, 2, 1):
        load_checkpoint(run, run.output_dir / f"checkpoint-{step}", state)
        assert recorded(run) == [event for events in expected[:step] for event in events]
        assert find_checkpoint(run).name == f"checkpoint-{step}"  # later ones are set aside
    assert len([*run.output_dir.glob("left-checkpoint-*")]) == 3


def test_the_evaluations_are_part_of_the_state(make_run, new_state):
    run, state = make_run(), new_state()
    state.evaluations.append((3, {"eval_f1": np.float64(0.5), "eval_loss": math.nan, "eval_names": ("a",)}))
    folder = save_checkpoint(run, 3, state)
    (run.output_dir / "metrics.jsonl").write_text("anything")  # which is not read
    state.evaluations.append((4, {}))
    load_checkpoint(run, folder, state)
    assert state.evaluations == [(3, {"eval_f1": 0.5, "eval_loss": None, "eval_names": ["a"]})]


@pytest.mark.parametrize("asked", ["auto", None])
def test_a_start_without_a_checkpoint_begins_anew(make_run, asked):
    """This concerns evaluations, too, which never have one. Only a start that resumes may remove anything."""
    run = make_run(resume_from_checkpoint=asked)
    run.log(event="eval", step=0)
    (run.output_dir / "checkpoint-2.incomplete").mkdir()
    begin_anew(run)
    assert (run.output_dir / "metrics.jsonl").exists() == (asked is None)
    assert (run.output_dir / "checkpoint-2.incomplete").exists() == (asked is None)


def test_an_evaluation_that_is_started_again_records_itself_once(pretrained, short_data, tmp_path):
    short_runs.start("run_glue", short_runs.flags("run_glue", short_data, tmp_path / "model", pretrained))
    flags = short_runs.flags("run_glue", short_data, tmp_path / "run", tmp_path / "model")
    at = flags.index("--train_file")
    flags = [*flags[:at], *flags[at + 2 :]]
    short_runs.start("run_glue", flags)
    once = (tmp_path / "run/metrics.jsonl").read_text()
    (tmp_path / "run/all_results.json").unlink()  # as if it had been killed just before
    short_runs.start("run_glue", [*flags, "--resume_from_checkpoint", "auto"])
    assert (tmp_path / "run/metrics.jsonl").read_text() == once and once.count("\n") == 1
    # Without its training data, the command of a training that is not finished would evaluate and end that run.
    shutil.copytree(tmp_path / "model", tmp_path / "training")
    (tmp_path / "training/all_results.json").unlink()
    before = {path.name: path.read_bytes() for path in (tmp_path / "training").iterdir()}
    flags[flags.index("--output_dir") + 1] = str(tmp_path / "training")
    with pytest.raises(ValueError, match=r"holds a run that trains \(metrics\.jsonl\), but this command gives no"):
        short_runs.start("run_glue", [*flags, "--resume_from_checkpoint", "auto"])
    after = {path.name: path.read_bytes() for path in (tmp_path / "training").iterdir() if path.name != ".lock"}
    assert before == after


def test_a_checkpoint_of_another_folder_brings_its_records(make_run, new_state, tmp_path, capsys):
    """The same command again, after its process was killed, begins with them again; nothing is recorded twice."""
    first, second = make_run(), make_run(output_dir=str(tmp_path / "second"))
    for step in (1, 2, 3):
        first.log(event="train", step=step, loss=0.5 * step)
        if step == 2:
            folder = save_checkpoint(first, 2, new_state())
    for _start in range(2):
        load_checkpoint(second, folder, new_state())
        assert [event["step"] for event in read_events(second.output_dir / "metrics.jsonl")] == [1, 2]
        for step in (3, 4, 5):
            second.log(event="train", step=step, loss=0.25)
    (first.output_dir / "metrics.jsonl").unlink()
    load_checkpoint(second, folder, new_state())  # what the second folder has is as good
    assert [event["step"] for event in read_events(second.output_dir / "metrics.jsonl")] == [1, 2]
    assert "warning" not in capsys.readouterr().out
