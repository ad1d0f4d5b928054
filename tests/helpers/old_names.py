"""Folders as the most downloaded BERTs are stored: ``LayerNorm.gamma`` and ``beta``, and what else old files hold."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]


def old_name(name: str) -> str:
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


def with_old_names(tensors: Tensors) -> Tensors:
    return {old_name(name): tensor for name, tensor in tensors.items()}


def with_copies(tensors: Tensors) -> Tensors:
    """With the copy of the decoder and the buffer that transformers before version 5 stored."""
    positions = tensors["bert.embeddings.position_embeddings.weight"]
    return with_old_names(tensors) | {
        "bert.embeddings.position_ids": torch.arange(len(positions))[None],
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"].clone(),
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"].clone(),
    }


def of_the_encoder_alone(tensors: Tensors) -> Tensors:
    parts = with_copies(tensors).items()
    return {name.removeprefix("bert."): tensor for name, tensor in parts if name.startswith("bert.")}


def as_dtype(dtype: torch.dtype) -> Callable[[Tensors], Tensors]:
    def cast(tensors: Tensors) -> Tensors:
        parts = with_copies(tensors).items()
        return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in parts}

    return cast


def write_one_file(tensors: Tensors, folder: Path) -> None:
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def write_pickle(tensors: Tensors, folder: Path) -> None:
    torch.save(tensors, folder / "pytorch_model.bin")


def write_shards(tensors: Tensors, folder: Path) -> None:
    """Two files, and an index that says in which one a tensor is."""
    weight_map = {}
    for number in (0, 1):
        part = dict(list(tensors.items())[number::2])
        file = f"model-{number + 1:05}-of-00002.safetensors"
        save_file(part, folder / file, {"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


# How old folders are stored: what is in them, how it is written, and fields of the config.
FORMS: dict[str, tuple[Callable[[Tensors], Tensors], Callable[[Tensors, Path], None], dict]] = {
    "old names": (with_old_names, write_one_file, {}),
    "copies": (with_copies, write_one_file, {}),
    "encoder alone": (of_the_encoder_alone, write_one_file, {"architectures": ["BertModel"]}),
    "float16": (as_dtype(torch.float16), write_one_file, {"torch_dtype": "float16"}),
    "bfloat16": (as_dtype(torch.bfloat16), write_one_file, {"dtype": "bfloat16"}),
    "shards": (with_copies, write_shards, {}),
    "pickle": (with_copies, write_pickle, {"num_beams": 5, "do_sample": True, "gradient_checkpointing": False}),
}


def stored_as(form: str, source: Path, target: Path) -> Path:
    """A copy of a folder of ``BertForPreTraining`` in one of ``FORMS``; the code files are left out."""
    change, write, fields = FORMS[form]
    target.mkdir(parents=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        if (source / file).is_file():
            shutil.copy(source / file, target)
    config = json.loads((source / "config.json").read_text())
    del config["auto_map"], config["dtype"]
    (target / "config.json").write_text(json.dumps(config | fields))
    tensors = change(load_file(source / "model.safetensors"))
    write({name: tensor.contiguous() for name, tensor in tensors.items()}, target)
    return target


def names_in(folder: Path) -> set[str]:
    return set(load_file(folder / "model.safetensors"))
