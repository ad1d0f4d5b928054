"""Damaged runs and summaries of a series are named."""

import random
import shutil
from pathlib import Path

import pytest

from lab.tests.helpers.fault_campaign import faults
from tests.helpers import short_runs
from tests.helpers.damage import KINDS, copied, damage, judge
from tests.helpers.fault_runs import run


@pytest.fixture(scope="module")
def made(tmp_path_factory, pretrained) -> Path:
    """A folder with data, and a series of two runs of run_glue.py."""
    place = tmp_path_factory.mktemp("made")
    (place / "data").mkdir()
    short_runs.write_data(place / "data")
    shutil.copytree(pretrained, place / "model")
    ended = run("run_glue", flags(), place)
    assert ended.status == 0, ended.printed
    return place


def flags() -> list[str]:
    """Flags with paths in the current folder."""
    given = "--output_dir run_glue --model_name_or_path model --max_steps 2 --save_steps 0 --logging_steps 1 "
    given += "--per_device_train_batch_size 4 --max_seq_length 24"
    return [*given.split(), *(f"--{split}_file=data/run_glue.csv" for split in ("train", "validation")), "--seeds", "2"]


@faults("damaged files", 13)
def test_a_series_that_is_started_again(seed, made, tmp_path, record_property):
    """Its summary is written again from its runs; a damaged record of a run is refused and named."""
    draw = random.Random(1000 + seed)
    folder = copied(made, tmp_path / "copy")
    path = (
        folder
        / "run_glue"
        / draw.choice(
            [
                "summary.json",
                "seed-42/run.json",
                "seed-43/all_results.json",
                "seed-42/hashes.json",
                "seed-43/metrics.jsonl",
            ]
        )
    )
    other = folder / str(path.relative_to(folder)).replace("42", "4x").replace("43", "42").replace("4x", "43")
    damage(path, draw.choice(KINDS), draw, other)
    ended = run("run_glue", flags(), folder)
    summary = "run_glue/summary.json"
    same = lambda: (folder / summary).read_bytes() == (made / summary).read_bytes()  # noqa: E731
    record_property("outcome", judge(ended, path.name, same))
