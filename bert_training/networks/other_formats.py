"""The files of weights in a folder, and what it holds in place of those that are read here."""

from pathlib import Path

from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME

from bert_training.files.json_files import is_plain_name, read_object
from tokenization.errors import UserError

# An index lists the files of a sharded checkpoint. The names are in the order in which transformers looks for them.
WEIGHT_FILES = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME)
ADAPTER = "adapter_config.json"
SHOWN = 9  # names


def check_holds_weights(folder: Path, place: str) -> None:
    """Raise ValueError for a folder that holds no weights that are read here, with what it holds and a remedy.

    Names on the Hub, and folders that do not exist, are left to others.

    Args:
        place: how the message begins, such as "--model_name_or_path runs/x".
    """
    if folder.is_dir() and (found := found_instead(folder)):
        raise UserError(f"{place}: expected a folder with the weights of a model; {found}")


def found_instead(folder: Path) -> str:
    """What a folder holds in place of weights that are read here, and what to do; "" if it may hold such weights."""
    if (folder / ADAPTER).is_file():  # where peft is installed, transformers would take the weights of another folder
        return (
            f"it holds an adapter ({ADAPTER}), which changes another model; merge it into the weights, "
            f"PeftModel.from_pretrained(MODEL, {str(folder)!r}).merge_and_unload().save_pretrained('NEW'), and give NEW"
        )
    if any((folder / name).is_file() for name in WEIGHT_FILES):
        return ""
    held = ", ".join(sorted(path.name for path in folder.iterdir())[:SHOWN]) or "nothing"
    lacks = "" if (folder / CONFIG_NAME).is_file() else f"it has no {CONFIG_NAME} and no weights; "
    return (
        f"{lacks}it holds {held}; give a folder with {SAFE_WEIGHTS_NAME} or {WEIGHTS_NAME} (weights of TensorFlow 2 or "
        "Flax must be saved anew with transformers 4: from_pretrained with from_tf=True or from_flax=True)"
    )


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
