"""bert_training/tasks/cut_texts.py: what is cut is counted, said and recorded."""

import itertools
import random

import pytest
from transformers import PreTrainedTokenizerBase

import run_glue
import run_swag
from bert_training.engine.errors import report_errors
from bert_training.tasks import swag
from bert_training.tasks.classification.long_texts import Reading, read_texts
from bert_training.tasks.cut_texts import ROWS, check_room, encode_cut
from bert_training.tasks.feature_extraction import read_rows
from bert_training.tasks.swag import SwagData, SwagExamples
from tests.helpers.records import read
from tests.helpers.words import WORDS
from tokenization import build_tokenizer
from tokenization.bert_tokenizer import TextEncoder

pytestmark = pytest.mark.usefixtures("no_pictures")
REMEDY = "give --max_seq_length up to 64, or give --long_texts head_tail or windows, or split the texts"
PREFIX = "the king walked to the old house by the river . "  # 11 pieces


@pytest.fixture(scope="module")
def tokenizer(vocab):
    return build_tokenizer(vocab)


def write(path, rows) -> str:
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return str(path)


def flags(pretrained, tmp_path, train, dev, *more: str) -> list[str]:
    return [
        *("--model_name_or_path", str(pretrained), "--train_file", train, "--validation_file", dev),
        *("--output_dir", str(tmp_path / "run"), "--max_steps=1", "--save_steps=0", *more),
    ]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("pair", [False, True])
def test_the_ids_are_those_of_the_tokenizer_s_own_cut(vocab, pair, side):
    """For all combinations of lengths up to 6 words, and random ones; the lengths are those without a limit."""
    tokenizer, generator = build_tokenizer(vocab), random.Random(1)
    tokenizer.truncation_side = side
    counts = [*itertools.product(range(7), repeat=2), *(generator.choices(range(24), k=2) for _ in range(40))]
    texts = [[" ".join(generator.choices(WORDS, k=row[text])) for row in counts] for text in range(1 + pair)]
    options = {"split_special_tokens": True, "return_token_type_ids": True}
    whole = [len(ids) for ids in tokenizer(*texts, **options)["input_ids"]]
    for length in (5, 6, 9, 12, 31):
        expected = tokenizer(*texts, truncation="longest_first", max_length=length, **options)
        rows, found = encode_cut(TextEncoder(tokenizer), texts, length)
        assert [[row.tolist() for row in rows[name]] for name in ROWS] == [expected[name] for name in ROWS]
        assert found == whole


def test_of_two_long_texts_nobody_asks_for_every_combination_of_what_is_cut_off(vocab, tmp_path, monkeypatch):
    """The tokenizer, which keeps them all, reads every text whole: 3,000 words to 4 tokens would be a million pairs."""
    asked, called = [], PreTrainedTokenizerBase.__call__

    def noting(tokenizer, *texts, **options):
        asked.append(options.get("truncation", False))
        return called(tokenizer, *texts, **options)

    monkeypatch.setattr(PreTrainedTokenizerBase, "__call__", noting)
    tokenizer, long = build_tokenizer(vocab), "the king " * 1500
    for how in ("cut", "head_tail"):
        read = read_texts([[long], [long]], TextEncoder(tokenizer), Reading(11, how))
        assert read.lost == [5992] and len(read.input_ids[0][0]) == 11
    data = SwagData("x", {"train": SwagExamples([long], [[long, "old"]], None, ["0"], {})})
    assert [len(row) for row in swag.features(data, tokenizer, 11)["train"].columns["input_ids"][0]] == [11, 11]
    (tmp_path / "pair.txt").write_text(f"{long}||| {long}")
    assert len(read_rows(tmp_path / "pair.txt", tokenizer, 11, "cut")[0][0].input_ids) == 11
    assert asked and not any(asked)


def test_a_line_for_a_split_with_shares_place_and_remedy(pretrained, tmp_path, capsys):
    """12 tokens hold [CLS], 10 pieces and [SEP]."""
    train = write(
        tmp_path / "train.csv", [("the king", "x"), (PREFIX, "y"), ("the queen", "x"), ("the old house", "y")]
    )
    dev = write(tmp_path / "dev.csv", [("the king", "x"), ("the queen", "y")])
    new = write(tmp_path / "new.csv", [(PREFIX, "x"), (PREFIX + "old", "y")])
    run_glue.main(flags(pretrained, tmp_path, train, dev, "--test_file", new, "--max_seq_length=12"))
    out = capsys.readouterr().out.splitlines()
    assert "longest inputs in tokens: train 13, validation 4, test 14 (--max_seq_length 12)" in out
    lines = [line for line in out if "were cut" in line]
    cut = "are longer than --max_seq_length 12 and were cut, the first:"
    assert lines == [
        f"warning: train: 1 of 4 examples (25.0 %) {cut} {train}, row 2; 1 of 26 tokens (3.8 %) are not read; {REMEDY}",
        f"warning: test: 2 of 2 examples (100.0 %) {cut} {new}, row 1; 3 of 27 tokens (11.1 %) are not read; {REMEDY}",
    ]
    assert read(tmp_path / "run", "run.json")["cut_at_max_seq_length"] == {
        "train": {"cut": 1, "examples": 4, "longest": 13, "tokens": 26, "tokens_lost": 1},
        "validation": {"cut": 0, "examples": 2, "longest": 4, "tokens": 8, "tokens_lost": 0},
        "test": {"cut": 2, "examples": 2, "longest": 14, "tokens": 27, "tokens_lost": 3},
    }


def test_at_the_model_s_maximum_only_splitting_helps(pretrained, tmp_path, capsys):
    train = write(tmp_path / "train.csv", [("the king", "x"), (PREFIX * 6, "y")])
    run_glue.main(flags(pretrained, tmp_path, train, train, "--max_seq_length=64"))
    assert "are not read; give --long_texts head_tail or windows, or split the texts" in capsys.readouterr().out


def refused(capsys, main, argv) -> str:
    assert report_errors(lambda: main(argv)) == 2
    return capsys.readouterr().err


def test_a_length_without_room_for_text_is_refused(pretrained, tmp_path, tokenizer, capsys):
    """With a length below that of the special tokens, a tokenizer cuts nothing, and says nothing."""
    train = write(tmp_path / "train.csv", [("the king", "x"), ("the queen", "y")])
    for length in (-1, 1, 2):
        argv = flags(pretrained, tmp_path, train, train, f"--max_seq_length={length}")
        assert f"--max_seq_length {length} leaves no room for the text; give 3 or more" in refused(
            capsys, run_glue.main, argv
        )
    with pytest.raises(ValueError, match="give 5 or more"):
        check_room(4, tokenizer, 2)
    check_room(5, tokenizer, 2)


def swag_rows(path, context: str, endings: list[tuple[str, str]]) -> str:
    lines = [f"{context},{first},{second},0\n" for first, second in endings]
    path.write_text("sent1,ending0,ending1,label\n" + "".join(lines))
    return str(path)


def test_an_example_of_multiple_choice_counts_once(pretrained, tmp_path, capsys):
    """16 tokens: the pairs of row 2 are cut, one of row 3, and none of row 1."""
    path = swag_rows(tmp_path / "a.csv", "the king walked", [
        ("to the house", "to the river"), (PREFIX + "king", PREFIX + "queen"), (PREFIX, "to the river"),
    ])  # fmt: skip
    run_swag.main(flags(pretrained, tmp_path, path, path, "--max_seq_length=16"))
    out = capsys.readouterr().out
    assert (
        f"train: 2 of 3 examples (66.7 %) are longer than --max_seq_length 16 and were cut, the first: {path}, " in out
    )
    assert read(tmp_path / "run", "run.json")["cut_at_max_seq_length"]["train"] == {
        "cut": 2, "examples": 3, "longest": 18, "tokens": 80, "tokens_lost": 5,
    }  # fmt: skip
