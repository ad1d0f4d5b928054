"""bert_training/inputs/reading.py: what is wrong with a file or a record is said with its name."""

import pytest

from bert_training.files.atomic import write_json
from bert_training.files.hashing import HASHES, hashes_of, hashes_record, is_plain_name
from bert_training.inputs.reading import check_format, finished_hashes, read_events, read_object, read_record


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"run\.json: not valid JSON \(Expecting value: line 1 column 1"),
        (b"[" * 100_000, r"run\.json: not valid JSON \("),
        (b'{"a": "\xff"}', r"run\.json: not valid JSON \('utf-8' codec can't decode byte 0xff"),
        (b"[1]", r"run\.json: expected a JSON object, got '.1.'"),
        (b'{"flabs": {}}', "it lacks flags"),
    ],
)
def test_faults_name_the_file_and_those_of_a_record_a_remedy(tmp_path, content, message):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    if b"flabs" not in content:
        with pytest.raises(ValueError, match=message):
            read_object(path)
    with pytest.raises(ValueError, match=rf"run\.json: damaged or edited \(.*{message}.*\); copy it"):
        read_record(path, "copy it", needs=("flags",))


def test_plain_names():
    assert all(map(is_plain_name, ("model.safetensors", "seed-1", "...", "é", "a b")))
    assert not any(map(is_plain_name, ("", ".", "..", "../a", "/a", "a/b", "a\\b", "a\0", None, 1, ["a"])))


@pytest.mark.parametrize("spoil", [lambda t: t[:-9], lambda t: t.replace("a", "b", 1), lambda t: "[]", lambda t: t * 2])
def test_damaged_hashes_are_named_themselves(tmp_path, spoil):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    write_json(tmp_path / HASHES, hashes_record(hashes_of(tmp_path)))
    assert list(finished_hashes(tmp_path / HASHES)) == ["model.safetensors"]
    (tmp_path / HASHES).write_text(spoil((tmp_path / HASHES).read_text()))
    with pytest.raises(ValueError, match=r"hashes\.json: damaged or edited"):
        finished_hashes(tmp_path / HASHES)


def test_a_line_that_was_cut_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"event": "corpus"}\n{"event": "train", "step": 1}\n')
    assert len(read_events(path)) == 2
    path.write_text(f'{path.read_text()}{{"event": "tr\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl:3: not valid JSON"):
        read_events(path)


def test_another_format_is_refused(tmp_path):
    check_format(tmp_path / "run.json", {"format": 1})
    for record, found in (({}, "one without a format"), ({"format": 2}, "2")):
        with pytest.raises(ValueError, match=rf"run\.json: expected a record of format 1, got {found}; use"):
            check_format(tmp_path / "run.json", record)
