"""Checkpoints that TensorFlow wrote (tests/data/tensorflow), and such weights in files of older PyTorch programs."""

import json
import shutil
from pathlib import Path

import torch
from transformers import BertConfig

from tests.helpers.repository import ROOT
from training.networks.old_checkpoints import read_old_checkpoint

WRITTEN = ROOT / "tests" / "data" / "tensorflow"


def edit_config(folder: Path, **fields) -> None:
    path = folder / "bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def state_and_config() -> tuple[dict[str, torch.Tensor], BertConfig]:
    old = read_old_checkpoint(WRITTEN / "pretrained")
    return old.tensors, old.config


def saved_as(folder: Path, stored, name: str = "pytorch_model.bin") -> Path:
    folder.mkdir(parents=True)
    torch.save(stored, folder / name)
    for file in ("bert_config.json", "vocab.txt"):
        shutil.copy(WRITTEN / "pretrained" / file, folder)
    return folder
