"""bert_tools/doubts.py: what is read of the files of runs; test_cleanlab.py tries the judgement."""

import json

import pytest

from bert_tools import doubts
from bert_training.files.hashing import sha256
from tokenization.errors import UserError


def write(folder, predicted, true):
    folder.mkdir(parents=True)
    lines = [
        json.dumps({"id": f"{folder.name}-{number}", "probabilities": one}) for number, one in enumerate(predicted)
    ]
    (folder / "predictions_validation.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "scored_validation.jsonl").write_text("".join(json.dumps({"true": one}) + "\n" for one in true))


def test_the_rows_of_all_folds_and_each_of_several_labels(tmp_path):
    for fold in (1, 2):
        write(tmp_path / f"fold-{fold}", [{"a": 0.75, "b": 0.25}], ["a"])
    with pytest.raises(UserError, match="expected a finished series, found no summary"):
        doubts.judged_labels(tmp_path)
    (tmp_path / "summary.json").touch()
    (rows,) = doubts.judged_labels(tmp_path)
    assert [(row.place, row.given) for row in rows] == [("fold-1-0", "a"), ("fold-2-0", "a")]
    write(tmp_path / "several", [{"a": 0.75, "b": 0.25}], [["b"]])
    assert doubts.judged_labels(tmp_path / "several") == [
        [doubts.Judged("several-0", "", "not a", {"a": 0.75, "not a": 0.25})],
        [doubts.Judged("several-0", "", "b", {"b": 0.25, "not b": 0.75})],
    ]


def test_the_texts_are_those_of_the_file_that_the_run_has_read(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "fold-1-0", "sentence1": "one", "sentence2": "two", "label": "a"}\n' * 2)
    write(tmp_path / "fold-1", [{"a": 0.75, "b": 0.25}], ["a"])
    flags = {"output_dir": "x", "model_name_or_path": "m", "train_file": str(rows), "folds": "1/2"}

    (tmp_path / "summary.json").touch()

    def text(digest: str) -> str:
        facts = {"script": "run_glue.py", "flags": flags, "data": {"splits": {"validation": {"file_sha256": digest}}}}
        (tmp_path / "fold-1" / "run.json").write_text(json.dumps({"format": 1} | facts))
        return doubts.judged_labels(tmp_path)[0][0].text

    assert text(sha256(rows)) == "one | two" and text("of another file") == ""
    rows.unlink()
    assert text("whatever") == ""


def test_tagged_words_have_their_places(tmp_path):
    """A tag that the model does not know is left out, and so is a sentence without tags."""
    (tmp_path / "validation_predictions.txt").write_text("Ada\tPER\tO\nsaw\tVERB\tO\n\nit\tO\tPER\n\n")
    shares = {"O": 0.75, "PER": 0.25}
    rows = [
        {"place": "a.txt:1", "probabilities": [shares, shares]},
        {"place": "a.txt:4", "probabilities": [shares]},
    ]
    (tmp_path / "validation_predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found,) = doubts.judged_labels(tmp_path)
    first, second = ("a.txt:1, word 1", "Ada", "PER"), ("a.txt:4, word 1", "it", "O")
    assert found == [doubts.Judged(*first, shares), doubts.Judged(*second, shares)]


def test_a_label_that_no_row_has_is_left_out(tmp_path, monkeypatch, capsys):
    write(tmp_path / "run", [{"a": 0.75, "rare": 0.25}, {"a": 0.5, "rare": 0.25}], [["a"], []])
    monkeypatch.setattr(doubts, "doubts", lambda rows: [doubts.Doubt(row, "not a", 0.5, True) for row in rows])
    doubts.main([str(tmp_path / "run")])
    said = capsys.readouterr()
    assert said.err.startswith("warning: all rows are 'not rare', so this label cannot be judged\n")
    assert [line.split(",")[2] for line in said.out.splitlines()] == ["given", "a", "not a"]


def test_folders_without_predictions_are_errors(tmp_path):
    with pytest.raises(UserError, match="expected a finished run of run_glue"):
        doubts.judged_labels(tmp_path)
