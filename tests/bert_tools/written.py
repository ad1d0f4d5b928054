"""The checkpoint that TensorFlow wrote, as bert_tools reads it, and old folders that are made from it."""

import json
from pathlib import Path

import torch
from transformers import BertConfig

from bert_tools.old_checkpoints import read_old_checkpoint
from tests.helpers.old_checkpoints import WRITTEN, saved_as


def state_and_config() -> tuple[dict[str, torch.Tensor], BertConfig]:
    old = read_old_checkpoint(WRITTEN / "pretrained")
    return old.tensors, old.config


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
