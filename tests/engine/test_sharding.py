"""A network that FSDP2 shards over 2 processes computes what one process computes, and saves an ordinary model."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining

from bert_training.engine.checkpoint import load_checkpoint
from bert_training.files.atomic import damage
from tests.helpers.tiny_training import state_with_optimizer, train_and_save
from tests.helpers.torchrun import torchrun

pytestmark = pytest.mark.slow


def records(folder: Path) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "event"} for line in lines]


def test_a_sharded_network_trains_and_saves_as_one(make_run, tmp_path):
    torchrun("tests/programs/sharded_training.py", [tmp_path])
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    run = make_run(output_dir=str(tmp_path / "alone"), per_device_train_batch_size=8, seed=0)
    train_and_save(run, shard=False)
    for one, two in zip(records(run.output_dir), records(whole), strict=True):
        assert two == pytest.approx(one, rel=1e-5)
    expected, found = (load_file(folder / "model.safetensors") for folder in (run.output_dir, whole))
    assert list(expected) == list(found)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-5)
    again = load_file(resumed / "model.safetensors")
    assert all(torch.equal(found[name], again[name]) for name in found)
    assert records(resumed) == records(whole)
    assert damage(whole / "checkpoint-2") is None
    _, loading = AutoModelForPreTraining.from_pretrained(whole, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    with pytest.raises(ValueError, match="belongs to a run with FSDP; resume it so"):
        load_checkpoint(run, whole / "checkpoint-2", state_with_optimizer())
