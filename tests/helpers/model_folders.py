"""Small saved models with random weights, one for every head, as the page of ``bert_deploy`` opens them."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import BertConfig


def save_model(
    folder: Path, source: Path, class_name: str, library: Any = transformers, run: dict | None = None, **fields: Any
) -> Path:
    """A folder with a network of a class and the tokenizer of ``source``.

    Args:
        source: a folder with config.json and tokenizer, whose sizes the network gets.
        library: transformers or modeling_bert_repro.
        run: the content of run.json, if there is to be one.
        fields: further fields of the config, such as ``id2label``.
    """
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(source / name, folder / name)
    sizes = copy.deepcopy(BertConfig.from_pretrained(source)).to_dict() | {"initializer_range": 0.5} | fields
    torch.manual_seed(0)
    getattr(library, class_name)(BertConfig.from_dict(sizes)).save_pretrained(folder)
    if run is not None:
        (folder / "run.json").write_text(json.dumps(run))
    return folder


def edit_json(path: Path, **fields: Any) -> None:
    """Change fields of a JSON file; a field that is None is removed."""
    content = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
