"""A damaged cache of windows is built again; damaged runs and summaries of a series are named."""

import json
import random
import shutil
from pathlib import Path

import pytest

from lab.tests.helpers.fault_campaign import faults
from tests.helpers import short_runs
from tests.helpers.damage import KINDS, copied, damage, judge
from tests.helpers.fault_runs import run
from tests.helpers.squad_examples import squad_content


@pytest.fixture(scope="module")
def made(tmp_path_factory, pretrained) -> Path:
    """A folder with data, a run of run_squad.py with its cache, and a series of two runs of run_glue.py."""
    place = tmp_path_factory.mktemp("made")
    (place / "data").mkdir()
    short_runs.write_data(place / "data")
    (place / "data/run_squad.json").write_text(json.dumps(squad_content(12)))
    shutil.copytree(pretrained, place / "model")
    for script, more in (("run_squad", ["--cache_dir", "cache"]), ("run_glue", ["--seeds", "2"])):
        ended = run(script, flags(script, *more), place)
        assert ended.status == 0, ended.printed
    return place


def flags(script: str, *more: str) -> list[str]:
    """Flags with paths in the current folder."""
    given = f"--output_dir {script} --model_name_or_path model --max_steps 2 --save_steps 0 --logging_steps 1 "
    given += "--per_device_train_batch_size 4 --max_seq_length 24"
    suffix = "json" if script == "run_squad" else "csv"
    files = [f"--{split}_file=data/{script}.{suffix}" for split in ("train", "validation")]
    squad = ("--max_query_length", "8", "--doc_stride", "6") if script == "run_squad" else ()
    return [*given.split(), *files, *squad, *more]


@faults("damaged files", 12)
def test_the_cache_of_windows(seed, made, tmp_path, record_property):
    """Also one that is the other split's file under a wrong name."""
    draw = random.Random(seed)
    folder = copied(made, tmp_path / "copy")
    shutil.rmtree(folder / "run_squad")
    files = sorted((folder / "cache").iterdir())
    path = draw.choice(files)
    damage(path, draw.choice(KINDS), draw, files[1 - files.index(path)])
    ended = run("run_squad", flags("run_squad", "--cache_dir", "cache"), folder)

    def same() -> bool:
        names = ("run_squad/model.safetensors", "run_squad/predictions.json")
        return all((folder / name).read_bytes() == (made / name).read_bytes() for name in names)

    outcome = judge(ended, path.name, same)
    assert ended.status or same(), "windows of a damaged cache were used"
    assert not ended.status or path.is_dir(), ended.printed
    record_property("outcome", "built again, bit-equal" if "survived" in outcome else outcome)


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
    ended = run("run_glue", flags("run_glue", "--seeds", "2"), folder)
    summary = "run_glue/summary.json"
    same = lambda: (folder / summary).read_bytes() == (made / summary).read_bytes()  # noqa: E731
    record_property("outcome", judge(ended, path.name, same))
