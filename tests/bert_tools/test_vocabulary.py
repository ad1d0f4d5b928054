"""`bert-repro vocabulary` learns a vocabulary from files."""

import gzip
import json
import lzma
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from bert_tools.vocabulary import learn_vocabulary, main
from bert_training.__main__ import main as bert_repro
from bert_training.pretraining import encoding
from tests.helpers.texts_of_all_kinds import write_all
from tokenization import load_vocab
from tokenization.train_wordpiece import train_wordpiece

LINES = ["The cat sat on the mat.", "", "The dog — sat on the cat;", "中文 and naïve text"] * 3
ROWS = "".join(json.dumps({"id": 1, "text": line}) + "\n" for line in LINES)


@pytest.fixture
def text(tmp_path) -> Path:
    (tmp_path / "text.txt").write_text("\n".join(LINES), encoding="utf-8")
    return tmp_path / "text.txt"


def test_files_give_the_bytes_that_their_texts_give(tmp_path, text):
    (tmp_path / "text.jsonl.xz").write_bytes(lzma.compress(ROWS.encode()))
    learn_vocabulary(text, 90, output_dir=tmp_path / "file")
    learn_vocabulary([str(tmp_path / "text.jsonl.xz")], 90, output_dir=tmp_path / "packed")
    train_wordpiece(LINES, 90, output_dir=tmp_path / "texts")
    main(["--train_file", str(text), "--vocab_size", "90", "--output_dir", str(tmp_path / "command")])
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        expected = (tmp_path / "texts" / name).read_bytes()
        for folder in ("file", "packed", "command"):
            assert (tmp_path / folder / name).read_bytes() == expected


def test_the_command_writes_a_tokenizer_and_refuses_mistakes(tmp_path, text, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bert-repro"])  # so that the tests after this one get their own back
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(ROWS.encode()))
    out = tmp_path / "out"
    flags = ["--train_file", str(text), str(tmp_path / "rows.jsonl.gz"), "--vocab-size", "80"]
    assert bert_repro(["vocabulary", *flags, "--output_dir", str(out), "--do_lower_case", "false"]) == 0
    assert f"rows in {out}" in capsys.readouterr().out
    assert "The" in load_vocab(out / "vocab.txt")
    assert json.loads((out / "tokenizer_config.json").read_text())["do_lower_case"] is False

    for extra, message in (
        (["--output_dir", str(out)], "already holds a vocab.txt"),
        (["--output_dir", str(tmp_path / "new"), "--vocab"], "unrecognized arguments"),
    ):
        with pytest.raises(SystemExit, match="2"):
            bert_repro(["vocabulary", *flags, *extra])
        assert message in capsys.readouterr().err
    assert bert_repro(["vocabulary", *flags, "--output_dir", str(tmp_path / "new"), "--train_file", "no.txt"]) == 2
    assert "bert-repro vocabulary: error: no.txt: expected files named" in capsys.readouterr().err


def test_case_and_accents_have_flags(tmp_path):
    (tmp_path / "text.txt").write_text("Schön schon schön Schon " * 5, encoding="utf-8")
    command = ["--train_file", str(tmp_path / "text.txt"), "--vocab_size", "60"]
    for number, (flags, pieces) in enumerate(
        [
            ([], "schön"),
            (["--strip_accents", "true"], "schon"),
            (["--do_lower_case", "false"], "Schön"),
            (["--do_lower_case", "false", "--strip-accents", "true"], "Schon"),
        ]
    ):
        folder = tmp_path / str(number)
        main([*command, *flags, "--output_dir", str(folder)])
        assert AutoTokenizer.from_pretrained(folder).tokenize("Schön") == [pieces]


def test_several_processes_learn_the_same_vocabulary(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "_COUNTED_BYTES", 2000)
    (tmp_path / "text").mkdir()
    files = write_all(tmp_path / "text")
    for workers in (1, 2):
        learn_vocabulary(files, 400, num_workers=workers, progress=False, output_dir=tmp_path / str(workers))
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "12")
    assert one == two
    (tmp_path / "text" / "a.txt").write_bytes(b"good\n" * 900 + b"\n\xff\n")
    with pytest.raises(ValueError, match=r"a\.txt:902: expected UTF-8 text"):
        learn_vocabulary(files, 400, num_workers=2, progress=False)


def test_no_tokenizer_is_overwritten(tmp_path, text, capsys):
    """save_pretrained of transformers writes no vocab.txt."""
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / name).write_text("{}")
        with pytest.raises(SystemExit, match="2"):
            main(["--train_file", str(text), "--vocab_size", "80", "--output_dir", str(tmp_path / "model")])
        assert f"already holds a {name}" in capsys.readouterr().err
        (tmp_path / "model" / name).unlink()
    # What a killed process of this command has left is no other tokenizer.
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    (tmp_path / "model" / "tokenizer.incomplete").mkdir()
    main(["--train_file", str(text), "--vocab_size", "80", "--output_dir", str(tmp_path / "model")])
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        *("tokenizer.json", "tokenizer_config.json", "vocab.txt")
    ]
