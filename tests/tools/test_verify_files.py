"""bert_training/tools/verify_files.py: altered, missing and additional files of finished folders are found."""

import hashlib
import json
import random
import shutil

import pytest
from safetensors.torch import load_file, save_file

from bert_training.__main__ import COMMANDS
from bert_training.__main__ import main as command
from bert_training.files.hashing import HASHES, hashed_files
from bert_training.files.weights_header import name_of_today
from bert_training.tools.findings import UNKNOWN
from bert_training.tools.verify_files import tokenizer_hash
from tests.helpers import short_runs
from tests.helpers.finished_folders import findings_of, forge, wrong
from tests.helpers.old_names import names_in, with_old_names

ALTERED_BYTES = 100


def test_the_hashes_cover_every_file_and_a_copy_is_as_good(finished_runs, copy_of_run):
    for script, place in finished_runs.items():
        recorded = json.loads((place / HASHES).read_text())["sha256"]
        files = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()} - {HASHES}
        assert recorded.keys() == files, script
        assert all(hashlib.sha256((place / name).read_bytes()).hexdigest() == recorded[name] for name in files)
    assert not wrong(copy_of_run("run_pretraining"))


def test_every_altered_byte_is_found_and_its_file_named(copy_of_run):
    rng = random.Random(0)
    places = [copy_of_run(script) for script in short_runs.SCRIPTS]
    missed = []
    for number in range(ALTERED_BYTES):
        place = places[number % len(places)]
        name, path = rng.choice(sorted({**hashed_files(place), HASHES: place / HASHES}.items()))
        before = path.read_bytes()
        at = rng.randrange(len(before))
        path.write_bytes(before[:at] + bytes([before[at] ^ rng.randrange(1, 256)]) + before[at + 1 :])
        if not any(line.split("  ", 1)[1].strip().startswith(f"{name}:") for line in wrong(place)):
            missed.append((str(path), at))
        path.write_bytes(before)
    assert missed == []
    assert not any(map(wrong, places))


def test_swapped_missing_and_additional_files_are_named(copy_of_run):
    place = copy_of_run("run_squad")
    one, other = place / "predictions.json", place / "null_odds.json"
    texts = one.read_bytes(), other.read_bytes()
    one.write_bytes(texts[1]), other.write_bytes(texts[0])
    lines = "\n".join(wrong(place))
    assert "predictions.json: the file has changed" in lines and "null_odds.json: the file has changed" in lines
    one.write_bytes(texts[0]), other.write_bytes(texts[1])
    assert not wrong(place)
    (place / "vocab.txt").unlink()
    (place / "adapter_config.json").write_text("{}")
    (place / "features" / "a.npz").write_text("")
    lines = "\n".join(wrong(place))
    assert "vocab.txt: the file is missing" in lines and "adapter_config.json: an additional file" in lines
    assert "features/a.npz: an additional file" in lines


def test_files_that_are_not_of_the_run_are_ignored_and_caches_may_be_deleted(copy_of_run):
    for script, cache in (("run_squad", "features"), ("run_pretraining", "corpus")):
        place = copy_of_run(script)
        for name in (
            ".gitattributes",
            ".cache/huggingface/x",
            "train.log",
            "nohup.out",
            "a.tmp",
            "runs/events.out.1",
            "nested/run.json",
        ):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text("x")
        shutil.rmtree(place / cache)
        assert not wrong(place)
        absent = [f.claim for f in findings_of(place) if f.verdict == UNKNOWN and "it may be deleted" in f.reason]
        assert absent and all(claim.startswith(f"{cache}/") for claim in absent)


@pytest.mark.usefixtures("no_pictures")
def test_checkpoints_are_compared_with_their_own_manifests(pretrained, run_data, tmp_path):
    flags = short_runs.flags("run_glue", run_data, tmp_path / "run", pretrained, "--save_steps", "1")
    short_runs.start("run_glue", flags)
    assert [f.claim for f in findings_of(tmp_path / "run") if f.claim.startswith("checkpoint")] == [
        "checkpoint-1/",
        "checkpoint-2/",
    ]
    path = tmp_path / "run" / "checkpoint-2" / "training_state.pt"
    path.write_bytes(path.read_bytes()[:-1])
    (line,) = wrong(tmp_path / "run")
    assert "checkpoint-2/: training_state.pt does not match its checksum" in line


def test_the_hash_of_a_tokenizer_is_that_of_the_run(finished_runs):
    run = json.loads((finished_runs["run_glue"] / "run.json").read_text())
    assert tokenizer_hash(finished_runs["run_glue"] / "tokenizer.json") == run["tokenizer_sha256"]


# The commands that are given the folder of a run, with the script of the run and further words. "{}" is the folder.
GIVEN_A_FOLDER = {
    "curves": ("run_pretraining", "{}"),
    "audit": ("run_pretraining", "{}"),
    "show": ("run_pretraining", "{} --step 1"),
    "doctor": ("run_pretraining", "{}"),
    "report": ("run_squad", "{} --output_dir {}"),
    "score": ("run_squad", "{data}/run_squad.json {}/predictions.json --version_2_with_negative"),
    "ask": ("run_squad", "--model {} --question house --context house"),
    "app": ("run_squad", "--model {} --space {new}"),
    "convert": ("run_squad", "{} {new}"),
    "upload": ("run_squad", "{} --hub_model_id you/name --hub_dry_run"),
    "verify": ("run_squad", "{} --skip_evaluation"),
    "submission": ("run_glue", "zip {} --output {new}"),
}
NOT_GIVEN_A_FOLDER = {"builtin_data", "plan"}


def test_every_command_is_among_those_that_are_tried():
    assert set(COMMANDS) == GIVEN_A_FOLDER.keys() | NOT_GIVEN_A_FOLDER


@pytest.mark.parametrize("name", GIVEN_A_FOLDER)
def test_no_command_of_this_project_makes_the_folder_differ(copy_of_run, run_data, tmp_path, name):
    if name == "app":
        pytest.importorskip("gradio")
    script, words = GIVEN_A_FOLDER[name]
    place = copy_of_run(script)
    given = [word.format(place, data=run_data, new=tmp_path / "new") for word in words.split()]
    assert command([name, *given]) in ((0, 2) if name == "submission" else (0,))
    assert not wrong(place)


def test_pictures_are_named_and_strangers_files_are_differences(copy_of_run):
    place = copy_of_run("run_pretraining")
    assert command(["audit", str(place)]) == command(["curves", str(place)]) == 0
    lines = [finding.line() for finding in findings_of(place)]
    assert f"{UNKNOWN}  data_audit.png: bert-repro audit writes a file of this name, which nothing reads" in lines
    assert any("training_curves.png: drawn since the run" in line for line in lines)
    others = ("data_audit.json", "data_audit_x.png", "my_data_audit.png", "report.bin", "audit.png", "notes.txt")
    for name in others:
        (place / name).write_bytes((place / "data_audit.png").read_bytes())
    additional = [line for line in wrong(place) if "an additional file" in line]
    assert sorted(line.split("  ", 1)[1].strip().partition(":")[0] for line in additional) == sorted(others)


def test_pictures_that_were_there_when_the_run_finished_may_be_drawn_again(copy_of_run):
    """Another version of matplotlib draws other bytes; a picture that nobody draws is a difference."""
    place = copy_of_run("run_pretraining")
    command(["curves", str(place)])
    for name in ("training_curves.png", "data_audit_32.png"):
        (place / name).write_bytes(b"of another version")
    forge(place)
    assert not wrong(place)
    command(["curves", str(place)])
    (place / "data_audit_32.png").unlink()
    assert not wrong(place)
    (place / "training_curves.png").write_bytes(b"of nobody")
    (line,) = wrong(place)
    assert "training_curves.png: the file has changed since the run" in line


def test_old_names_of_tensors_are_named(copy_of_run, tmp_path):
    """An earlier version kept the names of the weights that a run began with; the remedy gives today's."""
    place = copy_of_run("run_glue")
    path = place / "model.safetensors"
    save_file(with_old_names(load_file(path)), path, {"format": "pt"})
    forge(place)
    (line,) = wrong(place)
    assert "names of the tensors: 10 are older ones, such as bert.embeddings.LayerNorm.beta: the run kept" in line
    assert command(["convert", str(place), str(tmp_path / "new")]) == 0
    assert names_in(tmp_path / "new") == {name_of_today(name) for name in names_in(place)} != names_in(place)
