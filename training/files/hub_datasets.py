"""Load data sets from the Hub."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

Result = TypeVar("Result")


def from_hub(name: str, instead: str, work: Callable[[ModuleType], Result]) -> Result:
    """``work(datasets)``, where every error of the library ``datasets`` becomes one ValueError.

    Args:
        name: the data set, for the error message.
        instead: what to do without the Hub, for the error message.

    Raises:
        ValueError: the library is not installed, or ``work`` raised something.
    """
    try:
        import datasets  # imported here because it is optional and slow, and most runs read files
    except ImportError:
        raise ValueError(f"--dataset_name needs the package datasets: pip install datasets, or {instead}") from None
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        return work(datasets)
    except Exception as error:  # the types are those of datasets, its HTTP library and huggingface_hub
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"--dataset_name {name}: cannot be loaded ({reason}); check the name, --dataset_config_name and the "
            f"network, or {instead}"
        ) from error


def load_from_hub(name: str, config_name: str | None, instead: str) -> dict[str, Any]:
    """The splits of a data set by name, as ``datasets.Dataset``; a missing validation split is replaced by "test".

    Args:
        instead: what to do without the Hub, for the error message.

    Raises:
        ValueError: the data set cannot be loaded, or has neither of these splits.
    """
    loaded = from_hub(name, instead, lambda datasets: dict(datasets.load_dataset(name, config_name)))
    splits = {split: loaded[split] for split in ("train", "validation", "test") if split in loaded}
    if "validation" not in splits and "test" in splits:
        splits["validation"] = splits.pop("test")
    if "validation" not in splits:
        raise ValueError(f"--dataset_name {name}: expected the splits train, validation or test; got {list(loaded)}")
    return splits
