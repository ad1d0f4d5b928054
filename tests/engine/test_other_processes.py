"""A run goes on with another number of processes: the same data and, except for rounding, the same numbers."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bert_training.engine.checkpoint import load_checkpoint, save_checkpoint
from tests.helpers.tiny_training import new_state
from tests.helpers.torchrun import torchrun

PROGRAM = "tests/programs/stopped_training.py"
# (processes, sequences of a micro-batch, micro-batches of a step, the step after which SIGUSR1 arrives)
PARTS = ((1, 8, 1, 3), (2, 2, 2, 5), (4, 2, 1, 7), (1, 4, 2, 0))


def numbers(folder: Path) -> list[float]:
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = [event for event in events if event["event"] == "train"]
    assert [event["step"] for event in found] == list(range(1, 10))
    return [event[name] for event in found for name in ("loss", "mlm_loss", "nsp_loss", "grad_norm")]


@pytest.mark.slow
def test_one_two_four_and_one_process(tmp_path, text_file, tokenizer_folder, network_shape):
    """Each goes on from the checkpoint that the one before has written when it was signalled; without dropout."""
    common = (
        f"--train_file {text_file} --validation_split 0.2 --max_seq_length 32 --tokenizer_name {tokenizer_folder} "
        f"--config_name {network_shape} --dropout 0 --max_steps 9 --logging_steps 1 --save_steps 0 --eval_steps 0 "
        "--learning_rate 3e-3 --warmup_steps 2"
    ).split()

    def train(folder, processes, size, accumulation, stop):
        batch = ("--per_device_train_batch_size", size, "--gradient_accumulation_steps", accumulation)
        flags = (*common, *batch, "--output_dir", folder, "--resume_from_checkpoint", "auto")
        return torchrun(PROGRAM, [stop, *flags], processes).stdout

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, 1, 8, 1, 0)
    for number, part in enumerate(PARTS):
        printed = train(parts, *part)
        assert ("resuming from" in printed) == (number > 0)
        assert (parts / "all_results.json").exists() == (part is PARTS[-1])
    assert numbers(parts) == pytest.approx(numbers(whole), rel=1e-4)
    expected = load_file(whole / "model.safetensors")
    for name, tensor in load_file(parts / "model.safetensors").items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=2e-5)
    facts = json.loads((parts / "run.json").read_text())
    assert [start["processes"] for start in facts["earlier"]] == [1, 2, 4] and facts["processes"] == 1


@pytest.mark.parametrize(
    ("size", "accumulation", "world", "message"),
    [
        (
            8,
            1,
            2,
            r"batches 8 -> 16 = --per_device_train_batch_size 8 x --gradient_accumulation_steps 1 x 2 processes; "
            r"with 2 processes, the first two must make 4 for 8 sequences a step\); resume with the same ones",
        ),
        (2, 1, 3, r"batches 8 -> 6 = .* x 3 processes; 8 sequences cannot be divided among 3 processes, but among 1, "),
        (4, 4, 1, r"batches 8 -> 16 = .* 4 x .* 4 x 1 process; with 1 process, the first two must make 8 for"),
        (4, 2, 1, None),
        (2, 1, 4, None),
        (1, 4, 2, None),
    ],
)
def test_only_the_product_of_the_batch_must_stay(make_run, small_config, tmp_path, size, accumulation, world, message):
    run = make_run(output_dir=str(tmp_path / "run"), per_device_train_batch_size=8)
    folder = save_checkpoint(run, 3, new_state(small_config))
    again = make_run(
        output_dir=str(tmp_path / "run"), per_device_train_batch_size=size, gradient_accumulation_steps=accumulation
    )
    again.world_size = world
    if message is None:
        assert load_checkpoint(again, folder, new_state(small_config)) == 3
    else:
        with pytest.raises(ValueError, match=message):
            load_checkpoint(again, folder, new_state(small_config))
