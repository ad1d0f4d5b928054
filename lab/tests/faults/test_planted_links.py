"""A stranger's folder with links under the names that a command writes: whatever they lead to stays as it is.

The names come from the recorded moments of an unbroken run, so that no writer and no draft is forgotten.
"""

import json
import os
import random
import re
import shutil
import stat
from pathlib import Path

import pytest

from lab.tests.helpers.fault_campaign import faults
from tests.helpers import short_runs
from tests.helpers.fault_runs import Ended, run
from tests.helpers.file_writers import NAMES, Unbroken, files, folders
from tests.helpers.hostile_input import refused

PRECIOUS = "precious\n"
RANDOM = re.compile("[0-9a-f]{32}")
DRAFT = re.compile(r"\.(tmp|incomplete|building|shares-[\w-]+)$")
KINDS = ("link", "link", "link to nowhere", "hard link")
LINKED = "nothing is written through links"


def places(unbroken: Unbroken) -> list[str]:
    """Every name that the command wrote, made or removed; those of drafts also as earlier versions had them.

    The cells of a table are left out, because a part of the test writes them.
    """
    named = {path for _, path, _ in unbroken.moments} | {*files(unbroken.folders[0])} | folders(unbroken.folders[0])
    named |= {path.replace(f".{found[0]}", "") for path in named if (found := RANDOM.search(path))}
    return sorted(path for path in named if path not in (".", "out", "finished") and "out/cells" not in path)


def snapshot(folder: Path) -> dict[str, tuple]:
    """Everything below a folder: names, kinds and contents."""
    return {
        str(path.relative_to(folder)): (stat.S_IFMT(path.lstat().st_mode), path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


def plant(place: Path, kind: str, outside: Path, model: Path) -> None:
    """Put a link in the place of a file or folder, to a valid one outside: a copy of ``model``, if it exists."""
    victim = outside / place.name
    if not model.exists() and not DRAFT.search(place.name):
        model = place  # what was there is as good
    if kind == "link to nowhere":
        outside.mkdir(exist_ok=True)
    elif model.is_dir():
        shutil.copytree(model, victim)
        (victim / "precious").write_text(PRECIOUS)
    elif model.is_file():
        shutil.copy(model, victim)
    elif place.name.endswith("tmp") or "." not in place.name:
        victim.write_text(PRECIOUS)
    else:
        victim.mkdir()
        (victim / "precious").write_text(PRECIOUS)
    if os.path.lexists(place):
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "hard link" and victim.is_file():
        os.link(victim, place)
    else:
        place.symlink_to(victim)


def begun(unbroken: Unbroken, folder: Path) -> None:
    """Fill the folder with an unfinished run."""
    for part in unbroken.folders[0].iterdir():
        shutil.copytree(part, folder / part.name) if part.is_dir() else shutil.copy(part, folder)
    for name in ("all_results.json", "hashes.json", "summary.json"):
        for path in folder.glob(f"out/**/{name}"):
            path.unlink()


@faults("hostile input", 160)
def test_links_in_the_place_of_what_is_written(seed, unbroken, folder, tmp_path, record_property):
    draw = random.Random(seed)
    chosen = unbroken(NAMES[seed % len(NAMES)])
    resumed = bool(chosen.writer.again) and draw.random() < 0.5
    if resumed:
        begun(chosen, folder)
    else:
        chosen.writer.earlier(folder)
    # Half of them are drafts and what is written in its place, which a reader of the folder would not look for.
    every = places(chosen)
    likely = [path for path in every if DRAFT.search(path) or path.endswith((".jsonl", ".lock", "corpus", "features"))]
    name = draw.choice(likely if draw.random() < 0.5 and likely else every)
    kind = draw.choice(KINDS)
    outside = tmp_path / "outside"
    outside.mkdir()
    plant(folder / name, kind, outside, chosen.folders[0] / name)
    before = snapshot(outside)
    ended = chosen.start(folder, [], again=resumed)
    assert snapshot(outside) == before, (name, kind, resumed, ended.printed[-2000:])
    assert "Traceback" not in ended.printed and not ended.left_behind, (name, kind, resumed, ended.printed[-2000:])
    assert {*ended.statuses} <= {0, 2}, (name, kind, resumed, ended.printed[-2000:])
    if ended.statuses[0]:
        assert ": error: " in ended.printed.strip().splitlines()[-1], (name, kind, ended.printed[-2000:])
    record_property("outcome", "refused" if ended.statuses[0] else "written harmlessly")


# --- the attacks that a reading of the code found -----------------------------------------------------------


@pytest.fixture
def precious(tmp_path) -> Path:
    """A folder with the files that the attacks are after."""
    (tmp_path / "precious" / "folder").mkdir(parents=True)
    for name in ("file", "folder/file"):
        (tmp_path / "precious" / name).write_text(PRECIOUS)
    return tmp_path / "precious"


def unharmed(precious: Path) -> bool:
    return snapshot(precious).keys() == {"file", "folder", "folder/file"} and all(
        (precious / name).read_text() == PRECIOUS for name in ("file", "folder/file")
    )


def replace(path: Path, target: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(target)


def resumed(unbroken: Unbroken, folder: Path) -> Ended:
    return unbroken.start(folder, [], again=True)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["curves", "audit"])
def test_a_picture_whose_draft_is_a_link(unbroken, folder, precious, command):
    begun(unbroken("pre-training"), folder)
    for name in ("training_curves.png.tmp", "data_audit.png.tmp", "training_curves.png", "data_audit.png"):
        replace(folder / "out" / name, precious / "file")
    ended = run("bert_training", [command, "out"], folder, pictures=True)
    assert ended.status == 0, ended.printed
    picture = folder / "out" / {"curves": "training_curves.png", "audit": "data_audit.png"}[command]
    assert not picture.is_symlink() and picture.read_bytes().startswith(b"\x89PNG")
    assert unharmed(precious)


@pytest.mark.slow
@pytest.mark.parametrize("hard", [False, True])
def test_a_resumed_run_whose_records_are_a_link(unbroken, folder, precious, hard):
    whole = unbroken("pre-training")
    begun(whole, folder)
    records = folder / "out" / "metrics.jsonl"
    shutil.rmtree(folder / "out" / "checkpoint-4")
    shutil.copytree(whole.folders[0] / "out/checkpoint-4", folder / "out/checkpoint-4")
    with open(records, "ab") as file:
        file.write(b'{"event": "train", "step": 5}\n')
    kept = precious / "file"
    shutil.copy(records, kept)
    records.unlink()
    os.link(kept, records) if hard else records.symlink_to(kept)
    before = kept.read_bytes()
    ended = resumed(whole, folder)
    if hard:
        assert ended.status == 0 and b'"step": 5' not in records.read_bytes(), ended.printed
    else:
        refused(ended, "metrics.jsonl: is a link to ", LINKED)
    assert kept.read_bytes() == before


@pytest.mark.slow
def test_a_resumed_run_with_links_under_the_names_of_drafts(unbroken, folder, precious):
    whole = unbroken("pre-training")
    begun(whole, folder)
    for name in ("run.json", "hashes.json", "all_results.json", "README.md"):
        replace(folder / "out" / f"{name}.tmp", precious / "file")
    for name in ("model", "tokenizer", "checkpoint-4", "checkpoint-4.old", "checkpoint-5"):
        replace(folder / "out" / f"{name}.incomplete", precious / "folder")
    ended = resumed(whole, folder)
    assert ended.status == 0, ended.printed
    assert unharmed(precious) and not [path for path in (folder / "out").rglob("*") if path.is_symlink()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["corpus", "corpus/train", "corpus/validation", "corpus/train.building"])
def test_a_new_corpus_that_leads_elsewhere(unbroken, folder, precious, name):
    (folder / "out" / "corpus").mkdir(parents=True)
    replace(folder / "out" / name, precious / "folder")
    ended = unbroken("pre-training").start(folder, [])
    refused(ended, f"{name}: is a link to ", LINKED)
    assert unharmed(precious)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["tokens.bin", "sentences.bin", "documents.bin", "unigrams.bin", "progress.json.tmp"])
@pytest.mark.parametrize("hard", [False, True])
def test_a_corpus_that_is_continued_in_files_elsewhere(unbroken, folder, precious, file, hard):
    """The stranger knows text and vocabulary, as those of a public corpus, and so the build is continued."""
    whole = unbroken("pre-training")
    last = next(
        number
        for number, (moment, path, _) in enumerate(whole.moments)
        if moment == "rename" and path.startswith("out/corpus/train.building/manifest.json")
    )
    arguments = {"trace": "../trace", "fatal": last}
    whole.start(folder, [("tests.helpers.disk_faults:kill_at_moment", arguments)])
    building = folder / "out/corpus/train.building"
    assert (building / "progress.json").is_file() and not (building / "manifest.json").exists()
    if (building / file).exists():
        shutil.copy(building / file, precious / "file")
        (building / file).unlink()
    with open(precious / "file", "ab") as more:
        more.write(bytes(800))
    before = (precious / "file").read_bytes()
    os.link(precious / "file", building / file) if hard else (building / file).symlink_to(precious / "file")
    ended = resumed(whole, folder)
    if hard or file.endswith(".tmp"):
        assert ended.status == 0, ended.printed
    else:
        refused(ended, f"{file}: is a link to ", LINKED)
    assert (precious / "file").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["features", "seed-1"])
def test_a_folder_of_a_run_that_is_a_link(short_data, pretrained, folder, precious, name):
    (folder / "out").mkdir()
    replace(folder / "out" / name, precious / "folder")
    script = "run_squad" if name == "features" else "run_glue"
    words = short_runs.flags(script, short_data, Path("out"), pretrained)
    more = [] if name == "features" else ["--seeds", "2", "--seed", "0"]
    refused(run(script, [*words, *more], folder), f"{name}: is a link to ", LINKED)
    assert unharmed(precious)


@pytest.mark.slow
def test_the_trackers_folder_is_a_link(short_data, pretrained, folder, precious):
    pytest.importorskip("tensorboard")
    (folder / "out").mkdir()
    replace(folder / "out" / "runs", precious / "folder")
    words = short_runs.flags("run_glue", short_data, Path("out"), pretrained)
    refused(run("run_glue", [*words, "--report_to", "tensorboard"], folder), "runs: is a link to ", LINKED)
    assert unharmed(precious)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sizes", "sizes/SIZE"])
def test_a_table_whose_folders_are_links(folder, precious, unbroken, name):
    whole = unbroken("run_paper")
    begun(whole, folder)
    size = next((folder / "out/sizes").iterdir()).name
    replace(folder / "out" / name.replace("SIZE", size), precious / "folder")
    refused(whole.start(folder, []), f"{name.replace('SIZE', size)}: is a link to ", LINKED)
    assert unharmed(precious)


@pytest.mark.slow
def test_an_output_folder_may_be_a_link(unbroken, folder, tmp_path):
    """As where ``runs`` leads to a larger disk."""
    (tmp_path / "disk").mkdir()
    (folder / "out").symlink_to(tmp_path / "disk")
    ended = unbroken("pre-training").start(folder, [])
    assert ended.status == 0 and json.loads((tmp_path / "disk" / "run.json").read_text()), ended.printed
