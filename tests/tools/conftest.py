"""The finished folders of a short run of every script, which the tests of verify share."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import short_runs
from tests.helpers.squad_examples import squad_content

TEST_FILES = ("run_ner", "run_swag")  # the scripts that predict and score --test_file


@pytest.fixture(scope="session")
def run_data(tmp_path_factory) -> Path:
    """The data of the runs; some questions of run_squad.py have no answer."""
    folder = tmp_path_factory.mktemp("data")
    short_runs.write_data(folder)
    (folder / "run_squad.json").write_text(json.dumps(squad_content(12, negative=True)))
    return folder


@pytest.fixture(scope="session")
def finished_runs(tmp_path_factory, pretrained, run_data) -> dict[str, Path]:
    """The finished folder of each script."""
    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        short_runs.no_pictures(patch)
        for script in short_runs.SCRIPTS:
            more = ["--version_2_with_negative"] if script == "run_squad" else []
            if script in TEST_FILES:
                more += ["--test_file", str(next(run_data.glob(f"{script}.*")))]
            short_runs.start(script, short_runs.flags(script, run_data, place / script, pretrained, *more))
    return {script: place / script for script in short_runs.SCRIPTS}


@pytest.fixture
def copy_of_run(finished_runs, tmp_path) -> Callable[[str], Path]:
    """A function that copies the finished folder of a script; the card names the folder, so the name stays."""
    return lambda script: Path(shutil.copytree(finished_runs[script], tmp_path / script))
