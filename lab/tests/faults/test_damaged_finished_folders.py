"""Damage in a finished folder, when its command is given again and when it is verified."""

import json
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.paper_plans import write_table
from tests.helpers import short_runs
from tests.helpers.damage import KINDS, copied, damage, judge
from tests.helpers.fault_runs import run
from tests.helpers.squad_examples import squad_content


class Finished(NamedTuple):
    """Finished folders, and two more of each, with other seeds, from which swapped files come."""

    data: Path
    folders: dict[str, Path]
    others: dict[str, Path]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, pretrained) -> Finished:
    place = tmp_path_factory.mktemp("finished")
    data = place / "data"
    data.mkdir()
    short_runs.write_data(data)
    (data / "run_squad.json").write_text(json.dumps(squad_content(12, negative=True)))
    found: dict[str, dict[str, Path]] = {"first": {}, "second": {}}
    for seed, (name, folders) in enumerate(found.items(), 1):
        for script in ("run_pretraining", "run_glue", "run_squad"):
            flags = short_runs.flags(script, data, place / name / script, pretrained, "--seed", seed)
            flags += ["--version_2_with_negative"] if script == "run_squad" else []
            ended = run(script, flags, place, pictures=True)
            assert ended.status == 0, ended.printed
            folders[script] = place / name / script
    return Finished(data, *found.values())


def files_in(folder: Path) -> list[Path]:
    """The files of a finished folder and of its corpus, without the code and the curves."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".npz", ".html")]
    return sorted(path for path in found if "vocabulary" not in str(path))


def damaged_copy(draw: random.Random, finished: Finished, script: str, place: Path, names: tuple = ()) -> tuple:
    """A copy of a finished folder with one damaged file; returns the copy and the file."""
    folder = copied(finished.folders[script], place / script)
    # The curves may be drawn again after the run, so nothing says that they are others.
    files = [path for path in files_in(folder) if path.name != "training_curves.png"]
    path = draw.choice([path for path in files if not names or path.name in names])
    other = finished.others[script] / path.relative_to(folder)
    content = path.read_bytes()
    while path.is_file() and path.read_bytes() == content:  # a vocabulary can be swapped for the same one
        damage(path, draw.choice(KINDS), draw, other if other.is_file() else None)
    return folder, path


@faults("damaged files", 10)
def test_a_finished_run_that_is_started_again(seed, finished, tmp_path, record_property):
    draw = random.Random(1000 + seed)
    names = ("run.json", "all_results.json", "hashes.json", "metrics.jsonl")
    folder, path = damaged_copy(draw, finished, "run_glue", tmp_path, names)
    before = {file: file.read_bytes() for file in files_in(folder)}
    original = finished.folders["run_glue"]
    flags = short_runs.flags("run_glue", finished.data, original, finished.data.parent / "model", "--seed", "1")
    facts = json.loads((original / "run.json").read_text())
    flags[flags.index("--model_name_or_path") + 1] = facts["flags"]["model_name_or_path"]
    flags[flags.index("--output_dir") + 1] = str(folder)
    ended = run("run_glue", [*flags, "--resume_from_checkpoint", "auto"], tmp_path)
    outcome = judge(ended, path.name, lambda: {file: file.read_bytes() for file in files_in(folder)} == before)
    record_property("outcome", outcome)


@faults("damaged files", 20)
def test_verify_names_every_changed_file(seed, finished, tmp_path, record_property):
    draw = random.Random(2000 + seed)
    folder, path = damaged_copy(draw, finished, draw.choice([*finished.folders]), tmp_path)
    ended = run("bert_training", ["verify", folder.name, "--skip_evaluation"], tmp_path)
    shown = path.name[:12]  # verify shortens what a library says
    assert ended.status and shown in ended.printed, ended.printed
    record_property("outcome", judge(ended, shown, lambda: False, statuses=(1, 2)))


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> list[Path]:
    """Two finished tables of the paper, with scores and no runs."""
    folders = []
    for table in ("5", "8"):
        folders.append(tmp_path_factory.mktemp("tables") / "table")
        write_table(folders[-1], table)
    return folders


@faults("damaged files", 15)
def test_a_table_of_the_paper(seed, tables, tmp_path, record_property):
    """A damaged plan is refused before any run; verify_paper finds every change in the record and in the report."""
    draw = random.Random(3000 + seed)
    folder = copied(tables[0], tmp_path / "table")
    path = folder / draw.choice(["plan.json", "record.json", "report.md", "report.json"])
    damage(path, draw.choice(KINDS), draw, tables[1] / path.name)
    if path.name == "plan.json":
        ended = run("lab.run_paper", ["--table", "5", "--seeds", "2", "--output_dir", "table"], tmp_path)
        outcome = judge(ended, ["plan.json", "table holds another plan"], lambda: False)
    else:
        ended = run("lab.paper.verify", ["table"], tmp_path)
        outcome = judge(ended, path.name, lambda: False, statuses=(1, 2))
    assert "refused" in outcome
    record_property("outcome", outcome)
