"""bert_training/tools/verify_records.py: an edited record, card or summary contradicts another record.

The change is hidden by new hashes, or the folder is an old one without any.
"""

import json
import random
import re
from pathlib import Path

import pytest

from bert_training.files.hashing import HASHES
from bert_training.records.curves import draw_curves
from bert_training.tools import verify
from tests.helpers import short_runs
from tests.helpers.finished_folders import content, edit, findings_of, forge, wrong


def hidden(how: str, place: Path) -> None:
    forge(place) if how == "forged" else (place / HASHES).unlink(missing_ok=True)


@pytest.mark.parametrize("how", ["forged", "old"])
@pytest.mark.parametrize("script", short_runs.SCRIPTS)
def test_an_edited_record_contradicts_another_one(copy_of_run, script, how):
    place = copy_of_run(script)
    kept = content(place)

    def lines_after(name: str, old: str, new: str) -> str:
        edit(place / name, old, new)
        hidden(how, place)
        lines = "\n".join(wrong(place))
        for path, (text, _) in kept.items():
            path.write_bytes(text)
        return lines

    hidden(how, place)
    assert not wrong(place)
    if how == "old":
        assert any("made before hashes were recorded" in finding.reason for finding in findings_of(place))
    results = json.loads((place / "all_results.json").read_text())
    name, value = next((name, value) for name, value in results.items() if name.startswith("eval_") and value)
    assert name in lines_after("all_results.json", f'"{name}": {json.dumps(value)}', f'"{name}": 0.9371')
    assert name in lines_after("metrics.jsonl", f'"{name}": {json.dumps(value)}', f'"{name}": 0.9371')
    assert "train_steps" in lines_after("all_results.json", '"train_steps": 2', '"train_steps": 20000')
    assert "total_steps" in lines_after("run.json", '"total_steps": 2', '"total_steps": 20000')
    assert "number of parameters" in lines_after("run.json", '"parameters": ', '"parameters": 1')
    assert "tokenizer" in lines_after("run.json", '"tokenizer_sha256": "', '"tokenizer_sha256": "0')
    assert "README.md line" in lines_after("run.json", '"learning_rate": ', '"learning_rate": 1')
    assert "not in the form that a run writes" in lines_after("metrics.jsonl", '{"event"', '{"event')


def as_of_this_commit(place: Path, monkeypatch) -> None:
    """Make the words of the card those of the present code; the working tree may have uncommitted changes."""
    then = json.loads((place / "run.json").read_text())["commit"]
    for name in ("run.json", "README.md"):
        edit(place / name, then, "0123456789ab")
    monkeypatch.setattr("bert_training.tools.verify_records.commit", lambda: "0123456789ab")


def test_curves_that_are_drawn_later_are_no_claim_of_the_card(copy_of_run, monkeypatch):
    """The run found no matplotlib. A picture that the card does show must be there."""
    place = copy_of_run("run_glue")
    as_of_this_commit(place, monkeypatch)
    forge(place)
    draw_curves(place)
    assert not wrong(place)
    edit(place / "README.md", "\n\n## Training\n", "\n\n![training curves](training_curves.png)\n\n## Training\n")
    forge(place)
    assert not wrong(place)
    (place / "training_curves.png").unlink()
    lines = "\n".join(wrong(place))
    assert "training_curves.png: the file is missing" in lines and "README.md line" in lines


@pytest.mark.parametrize("script", short_runs.SCRIPTS)
def test_an_edited_figure_of_the_card_is_found_and_its_line_named(copy_of_run, script, monkeypatch):
    """Also under another version of the code, whose words would be others."""
    place = copy_of_run(script)
    (place / HASHES).unlink()
    as_of_this_commit(place, monkeypatch)
    card = (place / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [number for number, line in enumerate(card) if re.fullmatch(r"\|.*\| `?\S*\d\S*`? \|", line)]
    assert len(rows) >= 8
    values = [number for number, line in enumerate(card) if re.fullmatch(r" +value: .*\d.*", line)]
    for code in ("the same", "another"):
        if code == "another":
            monkeypatch.setattr("bert_training.tools.verify_records.commit", lambda: "ba9876543210")
            assert not wrong(place)
        for number in rows + values:
            digit = re.search(r"\d(?=[^\d]*$)", card[number])
            line = card[number][: digit.start()] + str((int(digit[0]) + 1) % 10) + card[number][digit.end() :]
            (place / "README.md").write_text("\n".join([*card[:number], line, *card[number + 1 :]]) + "\n")
            assert f"README.md line {number + 1}: " in "\n".join(wrong(place)), line
        (place / "README.md").write_text("\n".join([*card, "It beats BERT-Large by 3 points."]) + "\n")
        said = [finding.line() for finding in findings_of(place) if finding.claim.startswith("README.md")]
        assert any("README.md line" in line if code == "the same" else "1 passages" in line for line in said)
        (place / "README.md").write_text("\n".join(card) + "\n")


@pytest.mark.parametrize(
    "name", ["run.json", "all_results.json", HASHES, "metrics.jsonl", "tokenizer.json", "README.md"]
)
def test_malformed_records_are_findings_and_no_crashes(copy_of_run, name):
    place = copy_of_run("run_squad")
    rng = random.Random(1)
    original = (place / name).read_bytes()
    hostile = [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b'{"sha256": 3}',
        b'{"sha256": {"a": [1]}}',
        b"[" * 5000,
    ]
    hostile += [original[: rng.randrange(len(original))] for _ in range(5)]
    values = [b"null", b"[]", b"{}", b'"x"', b"-1", b"1e999"]
    hostile += [re.sub(rb": [^{\[\n]+?(?=,?\n)", lambda m, v=v: b": " + v, original) for v in values]
    for text in hostile:
        if text == original:
            continue
        (place / name).write_bytes(text)
        lines = wrong(place)
        assert lines and all("\x1b" not in line for line in lines), text[:40]
        (place / HASHES).rename(place / "aside.log")
        list(verify.findings(place, [], False))  # An old folder, whose hashes would say so.
        (place / "aside.log").rename(place / HASHES)
