"""bert_training/files/records.py: records that are damaged, and files that are not those of the finished run."""

import pytest

from bert_training.files.atomic import write_json
from bert_training.files.hashing import HASHES, hashes_of, hashes_record
from bert_training.files.records import (
    changed_since_finished,
    check_format,
    check_weights_unchanged,
    read_events,
    read_record,
    warn_of_changes,
)


@pytest.fixture
def finished(tmp_path):
    """The folder of a finished run with its hashes."""
    write_json(tmp_path / "run.json", {"flags": {"seed": 1}})
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "config.json").write_text("{}")
    write_json(tmp_path / "all_results.json", {"eval_accuracy": 0.5})
    write_json(tmp_path / HASHES, hashes_record(hashes_of(tmp_path)))
    return tmp_path


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"flabs": {}}'])
def test_a_damaged_record_is_named_with_a_remedy(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.json: damaged or edited \(.*\); copy it") as caught:
        read_record(path, "copy it", needs=("flags",))
    assert "\n" not in str(caught.value)


def test_a_record_with_a_flipped_digit_is_found_by_its_hash(finished):
    assert read_record(finished / "run.json", "copy it") == {"flags": {"seed": 1}}
    write_json(finished / "run.json", {"flags": {"seed": 3}})
    with pytest.raises(ValueError, match=r"run\.json: damaged or edited: .* delete .*hashes\.json"):
        read_record(finished / "run.json", "copy it")
    (finished / HASHES).unlink()
    assert read_record(finished / "run.json", "copy it") == {"flags": {"seed": 3}}


def test_weights_are_refused_and_a_config_is_named(finished, capsys):
    check_weights_unchanged(finished)
    warn_of_changes(finished, ("config.json", "tokenizer.json"))
    assert capsys.readouterr().out == ""
    (finished / "model.safetensors").write_bytes(b"weighta")
    (finished / "config.json").write_text("{} ")
    with pytest.raises(ValueError, match=r"model\.safetensors: damaged or edited"):
        check_weights_unchanged(finished)
    warn_of_changes(finished, ("config.json", "tokenizer.json"))
    assert capsys.readouterr().out.startswith(f"warning: {finished / 'config.json'} is not the file that the run left")


def test_a_run_that_is_not_finished_has_no_hashes_yet(finished):
    (finished / "all_results.json").unlink()
    (finished / "run.json").write_text("{}")
    assert not changed_since_finished(finished, "run.json")


@pytest.mark.parametrize("spoil", [lambda t: t[:-9], lambda t: t.replace("a", "b", 1), lambda t: "[]", lambda t: t * 2])
def test_damaged_hashes_are_named_themselves(finished, spoil):
    (finished / HASHES).write_text(spoil((finished / HASHES).read_text()))
    with pytest.raises(ValueError, match=r"hashes\.json: damaged or edited"):
        changed_since_finished(finished, "run.json")


@pytest.mark.parametrize("line", ['{"step": 2}', "[1]", '{"event": "tr'])
def test_an_event_is_an_object_with_its_name(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"event": "corpus"}\n{"event": "train", "step": 1}\n')
    assert len(read_events(path)) == 2
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl:3: expected one JSON object"):
        read_events(path)


def test_another_format_is_refused(tmp_path):
    check_format(tmp_path / "run.json", {"format": 1})
    for record, found in (({}, "one without a format"), ({"format": 2}, "2")):
        with pytest.raises(ValueError, match=rf"run\.json: expected a record of format 1, got {found}; use"):
            check_format(tmp_path / "run.json", record)
