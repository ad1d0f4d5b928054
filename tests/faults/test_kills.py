"""Runs that are killed at random moments and started again end with the bits of a run that was never stopped."""

import random
import signal
from pathlib import Path

import pytest

from tests.helpers.fault_campaign import faults
from tests.helpers.fault_runs import run
from tests.helpers.small_networks import small_config

TRACED = [f"training.engine.{name}" for name in ("checkpoint", "launch", "loop", "run")]


@pytest.fixture(scope="module")
def flags(tmp_path_factory, text_file, tokenizer_folder, vocab) -> list[str]:
    shape = tmp_path_factory.mktemp("shape")
    small_config(vocab_size=len(vocab), hidden_size=16, num_hidden_layers=1, hidden_dropout_prob=0.2).save_pretrained(
        shape
    )
    return (
        f"--train_file {text_file} --max_train_documents 16 --validation_split 0.3 --tokenizer_name {tokenizer_folder} "
        f"--config_name {shape} --phases 16:0.65:4x2,32:0.35:4x2 --max_steps 11 --learning_rate 1e-2 "
        "--logging_steps 1 --eval_steps 4 --save_steps 3 --save_total_limit 1 --peak_tflops 1"
    ).split()


@pytest.fixture(scope="module")
def whole(flags, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    prepare = [("tests.helpers.fault_injection:at_line", {"modules": TRACED, "counted": str(folder / "lines")})]
    ended = run("run_pretraining", [*flags, "--output_dir", folder / "run"], folder, prepare=prepare)
    assert ended.statuses == [0], ended.printed
    return folder


@faults("kills of a pre-training", 20)
def test_a_killed_pretraining_goes_on(seed, flags, whole, tmp_path):
    draw = random.Random(seed)
    fatal = draw.randint(1, int((whole / "lines").read_text()))
    arguments = {"modules": TRACED, "counted": str(tmp_path / "lines"), "fatal": fatal}
    prepare = [("tests.helpers.fault_injection:at_line", arguments)]
    flags = [*flags, "--output_dir", tmp_path / "run"]
    ended = run("run_pretraining", flags, tmp_path, prepare=prepare)
    assert ended.statuses == [-signal.SIGKILL] and not ended.left_behind, ended.printed
    ended = run("run_pretraining", [*flags, "--resume_from_checkpoint", "auto"], tmp_path)
    assert ended.statuses == [0], ended.printed
    weights = "run/model.safetensors"
    assert (whole / weights).read_bytes() == (tmp_path / weights).read_bytes()
