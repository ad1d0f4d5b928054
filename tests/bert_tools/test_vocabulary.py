"""`bert-repro vocabulary` learns a vocabulary from files."""

import gzip
import json
import lzma
import sys
from pathlib import Path

import fsspec
import pyarrow
import pyarrow.parquet
import pytest
from transformers import AutoTokenizer

from bert_tools.vocabulary import learn_vocabulary, main
from bert_training.__main__ import main as bert_repro
from bert_training.inputs.texts import read_lines
from bert_training.pretraining import encoding
from bert_training.pretraining.encoding import count_words_of_files
from tests.helpers.texts_of_all_kinds import write_all
from tests.inputs.test_text_forms import ARTICLES, EXTRACTED, WIKI_ARTICLES, WIKI_LINES
from tokenization import load_vocab
from tokenization.train_wordpiece import count_words, train_wordpiece

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
    assert capsys.readouterr().err == "bert-repro vocabulary: error: no.txt: no such file\n"


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, text):
    flags = ["--vocab_size", "80", "--output_dir"]
    with pytest.raises(OSError, match=r"could not be written \(.+\); give another folder"):
        main(["--train_file", str(text), *flags, str(tmp_path / ("n" * 300))])
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):  # before the text is read
        main(["--train_file", "none.txt", *flags, str(tmp_path / "file/vocab")])


@pytest.mark.parametrize("extend", [[], ["--extend", "somewhere", "--extend_vocab", "8"]], ids=["new", "extended"])
def test_a_vocabulary_below_its_own_text_is_refused(tmp_path, text, extend):
    """vocab.txt would be text for the next command."""
    flags = ["--train_file", str(tmp_path), "--output_dir", str(tmp_path / "v"), *extend]
    with pytest.raises(ValueError, match=r"--output_dir .*v lies within .*, where all files are read as text"):
        main(flags if extend else [*flags, "--vocab_size", "100"])
    assert not (tmp_path / "v").exists()


def test_the_field_of_the_text_has_a_flag(tmp_path, text):
    (tmp_path / "a.jsonl").write_text(ROWS.replace('"text":', '"content":'))
    pyarrow.parquet.write_table(pyarrow.table({"content": LINES}), tmp_path / "b.parquet")
    expected = learn_vocabulary(text, 80, progress=False)
    for name in ("a.jsonl", "b.parquet"):
        flags = ["--train_file", str(tmp_path / name), "--vocab_size", "80", "--output_dir", str(tmp_path / name[0])]
        with pytest.raises(ValueError, match=r"expected.*content.*--text_column"):
            main(flags)
        main([*flags, "--text_column", "content"])
        assert (tmp_path / name[0] / "vocab.txt").read_text().split() == expected


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


@pytest.mark.parametrize("workers", [1, 2])
def test_words_are_counted_by_pieces_as_in_one_process(tmp_path, workers, monkeypatch):
    monkeypatch.setattr(encoding, "_COUNTED_BYTES", 700)
    files = write_all(tmp_path)
    rules = (True, False, True)
    counted = count_words_of_files(files, *rules, num_workers=workers, progress=False)
    assert counted == count_words((line for line in read_lines(files) if line is not None), *rules)


def test_several_processes_learn_the_same_vocabulary(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "_COUNTED_BYTES", 2000)
    (tmp_path / "text").mkdir()
    files = write_all(tmp_path / "text")
    for workers in (1, 2):
        learn_vocabulary(files, 400, num_workers=workers, progress=False, output_dir=tmp_path / str(workers))
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "12")
    assert one == two
    (tmp_path / "text" / "a.txt").write_text("good\n" * 900 + "\n\0\n")
    with pytest.raises(ValueError, match=r"a\.txt:902: holds a NUL byte"):
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


def test_addresses_are_read_and_what_is_left_out_is_said(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("huggingface_hub.cached_assets_path", lambda *names: tmp_path.joinpath("cache", *names))
    system = fsspec.filesystem("memory")
    system.pipe("/vocabularies/a.txt", "\n".join(LINES).encode())
    system.pipe("/vocabularies/.b.txt", b"hidden")
    learn_vocabulary("memory://vocabularies", 90, output_dir=tmp_path / "two", num_workers=2)
    train_wordpiece(LINES, 90, output_dir=tmp_path / "texts")
    assert (tmp_path / "two" / "vocab.txt").read_bytes() == (tmp_path / "texts" / "vocab.txt").read_bytes()
    assert "not read: /vocabularies/.b.txt (by its name)" in caplog.text


def test_a_vocabulary_is_learnt_from_the_articles_alone(tmp_path):
    """Of files of WikiExtractor and WikiText, whose tags and headings are no text."""
    (tmp_path / "a.txt").write_text(EXTRACTED)
    (tmp_path / "b.txt").write_text(WIKI_LINES)
    learnt = learn_vocabulary([tmp_path / "a.txt", tmp_path / "b.txt"], 60)
    assert learnt == train_wordpiece([line for article in (*ARTICLES, *WIKI_ARTICLES) for line in article], 60)
