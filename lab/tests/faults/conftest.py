"""Which faults of the campaign run: all of them, one that is named, or every tenth; and runs without a fault."""

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.tests.helpers.fault_runs import run
from lab.tests.helpers.file_writers import Unbroken, files, writers
from tests.helpers import short_runs


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


@pytest.fixture
def folder(tmp_path) -> Path:
    """An empty folder in which a command is started; beside it there is room for what a test records."""
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.fixture(scope="session")
def unbroken(short_data, pretrained, network_shape, tmp_path_factory) -> Callable[[str], Unbroken]:
    """The unbroken runs of the command of a name."""
    place = tmp_path_factory.mktemp("finished")
    ended = run("run_glue", short_runs.flags("run_glue", short_data, Path("run"), pretrained), place)
    assert ended.statuses == [0], ended.printed
    every = writers(short_data, pretrained, network_shape, place / "run")

    @functools.cache
    def of(name: str) -> Unbroken:
        folders = [tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("whole")]
        for folder in folders:
            every[name].earlier(folder)
        made = Unbroken(every[name], folders, {n: path.read_bytes() for n, path in files(folders[0]).items()}, [])
        trace = folders[0].with_suffix(".json")
        counting: list[tuple[str, dict]] = [("lab.tests.helpers.disk_faults:kill_at_moment", {"trace": str(trace)})]
        for folder, prepare in zip(folders, (counting, [])):
            ended = made.start(folder, prepare, again=not prepare)
            assert {*ended.statuses} == {0}, ended.printed
        made.moments.extend(json.loads(trace.read_text()))
        return made

    return of
