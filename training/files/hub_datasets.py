"""Load data sets from the Hub."""


def load_from_hub(name: str, config_name: str | None, instead: str) -> dict:
    """The splits of a data set by name, as ``datasets.Dataset``; a missing validation split is replaced by "test".

    Args:
        instead: what to do without the Hub, for the error message.

    Raises:
        ValueError: the data set cannot be loaded, or has neither of these splits.
    """
    try:
        import datasets  # imported here because that is slow, and most runs read files
    except ImportError:
        raise ValueError(f"--dataset_name needs the package datasets: pip install datasets, or {instead}") from None
    try:
        found = dict(datasets.load_dataset(name, config_name))
    except Exception as error:  # the types are those of datasets, its HTTP library and huggingface_hub
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"--dataset_name {name}: cannot be loaded ({reason}); check the name, --dataset_config_name and the "
            f"network, or {instead}"
        ) from error
    splits = {split: found[split] for split in ("train", "validation", "test") if split in found}
    if "validation" not in splits and "test" in splits:
        splits["validation"] = splits.pop("test")
    if "validation" not in splits:
        raise ValueError(f"--dataset_name {name}: expected the splits train, validation or test; got {list(found)}")
    return splits
