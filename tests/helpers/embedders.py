"""Folders of sentence-transformers: an encoder, the modules behind it, and what else travels along."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

PLACES = ["", "1_Pooling", "2_Dense", "3_Normalize"]


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


def check_carried(source: Path, target: Path) -> None:
    modules, given = (json.loads((folder / "modules.json").read_text()) for folder in (target, source))
    assert [module["path"] for module in modules] == PLACES
    assert [module["type"] for module in modules] == [module["type"] for module in given]
    for module, before in zip(modules[1:], given[1:]):
        for file in (source / before["path"]).glob("*"):
            assert (target / module["path"] / file.name).read_bytes() == file.read_bytes()
    assert json.loads((target / "sentence_bert_config.json").read_text())["max_seq_length"] == 9
    name = "config_sentence_transformers.json"
    assert (target / name).read_bytes() == (source / name).read_bytes()
