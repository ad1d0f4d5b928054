"""The names and shapes of the tensors in safetensors files, from the headers, and the files that an index names."""

import json
import math
from pathlib import Path
from typing import Any

from bert_training.files.json_files import is_plain_name, parse_json, read_object
from tokenization.errors import UserError

# How TensorFlow calls the weight and the bias of a LayerNorm, and the most downloaded checkpoints to this day.
NAMES_OF_2018 = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
LARGEST_HEADER = 1 << 24  # bytes; of BERT-Large, 50,000. The format allows six times as many


def name_of_today(name: str) -> str:
    """The name that transformers gives to a tensor today; ``name`` itself if that is the one, or an unknown one."""
    for old, new in NAMES_OF_2018.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def shapes_in(path: Path) -> dict[str, list[int]]:
    """The shape of every tensor of a safetensors file. Nothing but the header is read.

    Raises:
        ValueError: the header is damaged, or longer than the file or than ``LARGEST_HEADER``.
    """
    with open(path, "rb") as file:
        size, found = int.from_bytes(file.read(8), "little"), path.stat().st_size
        if size > min(LARGEST_HEADER, found):
            raise UserError(
                f"{path}: damaged, its header would have {size:,} bytes in a file of {found:,}; copy or download it "
                "again"
            )
        try:
            header: Any = parse_json(file.read(size).decode())
            return {name: _shape(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__"}
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: its header is damaged ({error}); copy or download it again") from None


def _shape(shape: Any) -> list[int]:
    if not isinstance(shape, list) or not all(type(length) is int and 0 <= length < 1 << 48 for length in shape):
        raise TypeError(f"the shape {str(shape)[:60]!r}")
    return shape


def elements_in(path: Path) -> int:
    """The number of elements of all tensors in a safetensors file. Raises ValueError as ``shapes_in`` does."""
    return sum(math.prod(shape) for shape in shapes_in(path).values())


def files_of_index(index: Path) -> list[str]:
    """The names of the files with weights that an index names, each once and in order.

    Raises:
        ValueError: it is not such an index, or it names a file that is not beside it.
    """
    parts = read_object(index).get("weight_map")
    if not isinstance(parts, dict) or not parts:
        raise UserError(f"{index}: expected 'weight_map' with a file for every tensor")
    if wrong := [name for name in parts.values() if not is_plain_name(name)]:
        raise UserError(
            f"{index}: expected names of files beside it, got {str(wrong[0])[:80]!r}; nothing outside its folder is "
            "read"
        )
    return sorted(set(parts.values()))
