"""The shapes of the tensors in safetensors files, without their numbers, and the files that an index names."""

import math
from pathlib import Path

from safetensors import SafetensorError, safe_open

from bert_training.files.json_files import is_plain_name, read_object
from tokenization.errors import UserError


def shapes_in(path: Path) -> dict[str, list[int]]:
    """The shape of every tensor of a safetensors file. Raises ValueError if the file is damaged."""
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - it is no dict
    except SafetensorError as error:
        raise UserError(f"{path}: its header is damaged ({error}); copy or download it again") from None


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
