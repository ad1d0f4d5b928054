"""training/tools/verify_files.py: altered, missing and additional files of finished folders are found."""

import hashlib
import json
import random
import shutil

import pytest

from tests.helpers import short_runs
from tests.helpers.finished_folders import findings_of, wrong
from training.files.hashing import HASHES, hashed_files
from training.tools.findings import UNKNOWN
from training.tools.verify_files import tokenizer_hash

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
