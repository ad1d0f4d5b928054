"""Checkpoints that TensorFlow wrote (tests/data/tensorflow), and such weights in files of older PyTorch programs."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig

from bert_tools.old_checkpoints import read_old_checkpoint
from tests.helpers.repository import ROOT

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


def old_names(name: str) -> str:
    """The name that pytorch-pretrained-bert under DataParallel gave to a tensor."""
    ends = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for now, then in ends.items():
        name = name.replace(now, then)
    return f"module.{name}"


def nvidia_names(name: str) -> str:
    """The name that NVIDIA's DeepLearningExamples gave to a tensor."""
    for place in ("intermediate", "pooler", "transform"):
        name = name.replace(f"{place}.dense.", f"{place}.dense_act.")
    return name


def write_sentence_transformers(folder: Path, encoder: dict[str, torch.Tensor], path: str = "0_Transformer") -> Path:
    """A folder of sentence-transformers with the weights of a BertModel below ``path``."""
    if path:
        folder.mkdir(parents=True)
    saved_as(folder / path, encoder)
    modules = [
        {"idx": 0, "path": path, "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def add_modules(folder: Path, *kinds: str, encoder: str = "") -> None:
    """Add what sentence-transformers has beside an encoder of 32 units: modules, the longest text and the prompts."""
    listed = [("Transformer", encoder), *((kind, f"x{number} {kind}") for number, kind in enumerate(kinds))]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(listed)
    ]
    for kind, path in listed[1:]:
        (folder / path).mkdir()
        if kind == "Pooling":
            pooling = {
                "word_embedding_dimension": 32,
                "pooling_mode_mean_tokens": False,
                "pooling_mode_max_tokens": True,
            }
            (folder / path / "config.json").write_text(json.dumps(pooling))
        if kind == "Dense":
            dense = {"in_features": 32, "out_features": 8, "activation_function": "torch.nn.modules.activation.Tanh"}
            (folder / path / "config.json").write_text(json.dumps(dense))
            torch.manual_seed(0)
            weights = torch.nn.Linear(32, 8).state_dict()
            save_file(
                {f"linear.{name}": tensor for name, tensor in weights.items()}, folder / path / "model.safetensors"
            )
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / encoder / "sentence_bert_config.json").write_text('{"max_seq_length": 9, "do_lower_case": false}')
    prompts = {"prompts": {"query": "the "}, "default_prompt_name": None, "similarity_fn_name": "dot"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))


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
