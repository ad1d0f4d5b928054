"""Which faults of the campaign run: all of them, one that is named, or every tenth."""

import os

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect nine of ten seeds unless BERT_REPRO_FAULTS is "all" or the test is named with its seed."""
    if os.environ.get("BERT_REPRO_FAULTS") == "all":
        return
    named = {argument.replace(os.sep, "/").removeprefix("./") for argument in config.args}
    kept, left = [], []
    for item in items:
        seed = item.callspec.params.get("seed", 0) if hasattr(item, "callspec") else 0
        mark = item.get_closest_marker("faults")
        left_out = mark is not None and (seed % 10 or not mark.kwargs["in_ci"])
        (left if left_out and item.nodeid not in named else kept).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept
