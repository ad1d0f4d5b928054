"""Checkpoints that TensorFlow wrote (tests/data/tensorflow), and such weights in files of older PyTorch programs."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import BertConfig

from tests.helpers.old_names import old_name
from tests.helpers.repository import ROOT

WRITTEN = ROOT / "tests" / "data" / "tensorflow"


def edit_config(folder: Path, **fields) -> None:
    path = folder / "bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def saved_as(folder: Path, stored, name: str = "pytorch_model.bin") -> Path:
    folder.mkdir(parents=True)
    torch.save(stored, folder / name)
    for file in ("bert_config.json", "vocab.txt"):
        shutil.copy(WRITTEN / "pretrained" / file, folder)
    return folder


def old_names(name: str) -> str:
    """The name that pytorch-pretrained-bert under DataParallel gave to a tensor."""
    return f"module.{old_name(name)}"


def nvidia_names(name: str) -> str:
    """The name that NVIDIA's DeepLearningExamples gave to a tensor."""
    for place in ("intermediate", "pooler", "transform"):
        name = name.replace(f"{place}.dense.", f"{place}.dense_act.")
    return name


def aged(new: Path, target: Path) -> Path:
    """The checkpoint ``new`` as it would have been saved in 2018: old names, bert_config.json, vocab.txt."""
    target.mkdir()
    weights = load_file(new / "model.safetensors")
    torch.save({old_names(name): tensor for name, tensor in weights.items()}, target / "pytorch_model.bin")
    config = json.loads((new / "config.json").read_text())
    kept = {name: config[name] for name in BertConfig().to_dict() if name in config and name != "model_type"}
    (target / "bert_config.json").write_text(json.dumps(kept))
    shutil.copy(new / "vocab.txt", target)
    return target
