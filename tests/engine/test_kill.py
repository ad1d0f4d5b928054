"""A run that was killed at any place and resumed ends with the same bits as a run that was never stopped."""

import json
from pathlib import Path

import pytest
import torch

import run_pretraining
from tests.helpers.clean_process import run_program
from tests.helpers.small_networks import small_config
from training.pretraining.instances import PretrainingInstances
from training.tools.audit import open_run, read_pretraining_facts

STEPS, FIRST_PHASE = 11, 7
CLOCK = ("tokens_per_second", "mfu", "seconds_per_step")


@pytest.fixture
def flags(tmp_path, text_file, tokenizer_folder, vocab) -> list[str]:
    """Flags for dropout, accumulation and two phases, of which each is longer than an epoch of its length."""
    config = small_config(vocab_size=len(vocab), hidden_size=16, num_hidden_layers=1, hidden_dropout_prob=0.2)
    config.save_pretrained(tmp_path / "shape")
    return (
        f"--train_file {text_file} --max_train_documents 16 --validation_split 0.3 --tokenizer_name {tokenizer_folder} "
        f"--config_name {tmp_path / 'shape'} --phases 16:0.65:4x2,32:0.35:4x2 --max_steps {STEPS} --learning_rate 1e-2 "
        "--logging_steps 1 --eval_steps 4 --save_steps 3 --save_total_limit 1 --peak_tflops 1"
    ).split()


def records(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]


def training_state(folder: Path) -> dict:
    (checkpoint,) = folder.glob("checkpoint-*")  # --save_total_limit is 1, and no draft is left.
    state = torch.load(checkpoint / "training_state.pt", weights_only=True)
    del state["totals"]["seconds"], state["metrics_bytes"]  # The records contain times, so their length differs.
    del state["metrics_sha256"]
    return state


def assert_equal(a, b):
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for name in a:
            assert_equal(a[name], b[name])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(a, b):
            assert_equal(one, other)
    else:
        assert a == b


def assert_same_run(whole: Path, other: Path):
    assert (whole / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert records(whole) == records(other)
    assert_equal(training_state(whole), training_state(other))
    assert not [path.name for path in other.rglob("*") if path.name.endswith((".incomplete", ".tmp"))]


@pytest.mark.parametrize("points", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_anywhere_and_resumed_is_bit_equal(flags, tmp_path, points):
    settings = json.dumps({"flags": flags, "folder": str(tmp_path), "points": points, "seed": points})
    print(run_program("tests/programs/forked_runs.py", "killed", settings))
    whole = tmp_path / "whole"
    run_flags = read_pretraining_facts(whole)["flags"]
    for length, steps in ((16, FIRST_PHASE), (32, STEPS - FIRST_PHASE)):
        assert open_run(whole, run_flags, length)[0].epoch_size(0) < 8 * steps, "expected more than one epoch"
    for number in range(points):
        assert_same_run(whole, tmp_path / f"killed-{number}")


@pytest.mark.slow
def test_a_resumed_run_asks_for_the_data_of_its_steps_only(flags, tmp_path, monkeypatch):
    """No data is read again: the first positions that are asked for are those of the next step."""
    flags += ["--output_dir", str(tmp_path / "run")]
    run_pretraining.main([*flags, "--save_total_limit", "0"])
    asked = []
    batch = PretrainingInstances.batch

    def noted(self, start, stop):
        if not self.settings.fixed:
            asked.append((self.settings.max_seq_length, start, stop))
        return batch(self, start, stop)

    monkeypatch.setattr(PretrainingInstances, "batch", noted)
    for step, first in ((6, (16, 48, 52)), (9, (32, 16, 20))):
        asked.clear()
        (tmp_path / "run" / "all_results.json").unlink()  # Without this file the run is not finished.
        run_pretraining.main([*flags, "--resume_from_checkpoint", str(tmp_path / "run" / f"checkpoint-{step}")])
        assert asked[0] == first
        assert len(asked) == 2 * (STEPS - step)
