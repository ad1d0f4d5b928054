"""Load data sets from the Hub, or from folders in the form of the library ``datasets``."""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from tokenization.errors import UserError

Result = TypeVar("Result")

AS_FILES = (
    "save the splits that you mean as files, and give these with --train_file and --validation_file instead of "
    "--dataset_name"
)


def from_hub(name: str, instead: str, work: Callable[[ModuleType], Result]) -> Result:
    """``work(datasets)``, where every error of the library ``datasets`` becomes one ValueError.

    Args:
        name: the data set, for the error message.
        instead: what to do without the Hub, for the error message.

    Raises:
        ValueError: the library is not installed, or ``work`` raised something.
    """
    try:
        import datasets  # imported here because it is optional and slow

        if not sys.stderr.isatty():
            datasets.disable_progress_bars()
        return work(datasets)
    except Exception as error:  # the types are those of datasets, its HTTP library and huggingface_hub
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"--dataset_name {name}: cannot be loaded ({reason}); check the name, --dataset_config_name and the "
            f"network, or {instead}"
        ) from error


def load_dataset(datasets: ModuleType, name: str, config_name: str | None, **options: Any) -> Any:
    """``datasets.load_dataset``, also for a folder that ``save_to_disk`` wrote.

    load_dataset itself refuses such a folder or, if it has splits, also reads the rows that ``map`` has cached there.

    Args:
        options: ``split``, with which the rows of that split are returned, and ``streaming``.
    """
    if not is_saved_data_set(Path(name)):
        return datasets.load_dataset(name, config_name, **options)
    loaded = datasets.load_from_disk(name)
    splits = loaded if isinstance(loaded, dict) else {"train": loaded}
    split = options.get("split")
    return splits if split is None else splits[split]


def is_saved_data_set(folder: Path) -> bool:
    """Whether a folder is one that ``save_to_disk`` of ``datasets`` wrote, with splits or without."""
    # os.path, because Path.is_file raises an error for a name that is too long.
    single = all(os.path.isfile(folder / name) for name in ("state.json", "dataset_info.json"))
    return single or os.path.isfile(folder / "dataset_dict.json")


def usual_splits(there: Iterable[str]) -> dict[str, str]:
    """The splits train, validation and test of a data set, with their names in it; those that it has."""
    names = {"train": ("train",), "validation": ("validation", "dev", "valid", "val"), "test": ("test",)}
    return {split: found[0] for split, known in names.items() if (found := [one for one in known if one in there])}


def load_from_hub(name: str, config_name: str | None, instead: str, divides: bool = False) -> dict[str, Any]:
    """The splits of a data set by name, as ``datasets.Dataset``; a missing validation split is replaced by "test".

    Args:
        instead: what to do without the Hub, for the error message.
        divides: whether a part of the training split will be held out; then there need be no validation split.

    Raises:
        ValueError: the data set cannot be loaded, or has neither of these splits.
    """
    loaded = from_hub(name, instead, lambda datasets: dict(load_dataset(datasets, name, config_name)))
    splits: dict[str, Any] = {split: loaded[name] for split, name in usual_splits(loaded).items()}
    if "validation" not in splits and "test" in splits and not divides:
        splits["validation"] = splits.pop("test")
    if "validation" not in splits and not (divides and "train" in splits):
        raise UserError(
            f"--dataset_name {name}: expected a split called validation or test to evaluate on; got {list(loaded)}; "
            f"{AS_FILES} (run_glue.py and run_ner.py can hold some of it out: --validation_split 0.1)"
        )
    return splits
