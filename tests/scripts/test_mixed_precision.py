"""``--mixed_precision auto`` from the flags to a run that goes on, and to a series."""

import json

import pytest
import torch
from accelerate.state import AcceleratorState

from bert_training.engine import launch
from tests.helpers.pretraining_runs import pretrain
from tests.helpers.records import read
from tests.helpers.torchrun import torchrun

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def cpu(monkeypatch):
    """Sets whether this machine multiplies in bfloat16, for networks of every width."""
    monkeypatch.setattr(launch, "NARROWEST", 1)
    return lambda has: monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": has})


def unfinish(folder):
    """As if the run had been killed just before its end."""
    for name in ("all_results.json", "model.safetensors", "config.json"):
        (folder / name).unlink()
    AcceleratorState._reset_state(reset_partial_state=True)  # the next start may have another type


@pytest.mark.parametrize(("first", "later"), [(True, False), pytest.param(False, True, marks=pytest.mark.slow)])
def test_a_run_keeps_its_type_on_another_machine(cpu, pretraining_flags, tmp_path, capsys, first, later):
    began, other = ("bf16", "no (float32)") if first else ("no", "bf16")
    cpu(first)
    argv = pretraining_flags("run", mixed_precision="auto", max_steps=4, save_steps=2)
    pretrain(argv)
    assert f"--mixed_precision auto: {began}" in capsys.readouterr().out
    facts = read(tmp_path / "run", "run.json")
    assert (facts["flags"]["mixed_precision"], facts["mixed_precision"]) == ("auto", began)
    chosen = facts["precision_chosen"]
    cpu(later)
    unfinish(tmp_path / "run")
    pretrain([*argv, "--resume_from_checkpoint", "auto", "--mixed_precision", "no"])  # of this start alone
    unfinish(tmp_path / "run")
    pretrain([*argv, "--resume_from_checkpoint", "auto"])
    out = capsys.readouterr().out
    assert f"--mixed_precision auto: {began}; as the run began; for this machine, auto would choose {other}" in out
    facts = read(tmp_path / "run", "run.json")
    assert facts["mixed_precision"] == began and facts["precision_chosen"] == chosen
    pretrain([*argv, "--resume_from_checkpoint", "auto"])
    assert "finished" in capsys.readouterr().out


def series(pretrained, tmp_path) -> list[str]:
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "".join(f"the {('red', 'old')[n % 2]} house,{n % 2}\n" for n in range(8)))
    argv = f"--model_name_or_path {pretrained} --train_file {table} --validation_file {table} --max_seq_length 16"
    argv += f" --output_dir {tmp_path / 'runs'} --max_steps 1 --save_steps 0 --mixed_precision auto"
    return argv.split()


@pytest.mark.slow
def test_processes_take_the_type_of_the_first(pretrained, tmp_path):
    """Each would measure for itself, and autocast of another type on one of them would only be slow or wrong."""
    done = torchrun("run_glue.py", series(pretrained, tmp_path))
    facts = json.loads((tmp_path / "runs" / "run.json").read_text(encoding="utf-8"))
    assert facts["processes"] == 2 and done.stdout.count(f"auto: {facts['mixed_precision']}") == 1
