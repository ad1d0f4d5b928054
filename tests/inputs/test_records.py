"""bert_training/inputs/records.py: records that are damaged."""

import pytest

from bert_training.files.atomic import write_json
from bert_training.files.hashing import HASHES, hashes_of, hashes_record
from bert_training.inputs.records import check_format, finished_hashes, read_events, read_record


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"flabs": {}}'])
def test_a_damaged_record_is_named_with_a_remedy(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.json: damaged or edited \(.*\); copy it") as caught:
        read_record(path, "copy it", needs=("flags",))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spoil", [lambda t: t[:-9], lambda t: t.replace("a", "b", 1), lambda t: "[]", lambda t: t * 2])
def test_damaged_hashes_are_named_themselves(tmp_path, spoil):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    write_json(tmp_path / HASHES, hashes_record(hashes_of(tmp_path)))
    assert list(finished_hashes(tmp_path / HASHES)) == ["model.safetensors"]
    (tmp_path / HASHES).write_text(spoil((tmp_path / HASHES).read_text()))
    with pytest.raises(ValueError, match=r"hashes\.json: damaged or edited"):
        finished_hashes(tmp_path / HASHES)


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
