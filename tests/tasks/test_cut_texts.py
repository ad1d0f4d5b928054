"""bert_training/tasks/cut_texts.py: what is cut is counted, said and recorded, and refused if nothing else is left."""

import random

import pytest

import run_glue
import run_swag
from bert_training.engine.errors import report_errors
from bert_training.tasks.cut_texts import check_room, cut_rows, whole_lengths
from tests.helpers.records import read
from tests.helpers.words import WORDS
from tokenization import build_tokenizer

pytestmark = pytest.mark.usefixtures("no_pictures")
REMEDY = (
    "give --max_seq_length up to 64, the model's maximum, or give --long_texts head_tail or windows, or split the texts"
)
PREFIX = "the king walked to the old house by the river . "  # 11 pieces


@pytest.fixture(scope="module")
def tokenizer(vocab):
    return build_tokenizer(vocab)


def write(path, rows) -> str:
    path.write_text("sentence,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return str(path)


def flags(pretrained, tmp_path, train, dev, *more: str) -> list[str]:
    return [
        *("--model_name_or_path", str(pretrained), "--train_file", train, "--validation_file", dev),
        *("--output_dir", str(tmp_path / "run"), "--max_steps=1", "--save_steps=0", *more),
    ]


@pytest.mark.parametrize("pair", [False, True])
def test_the_counted_texts_are_those_that_are_longer_uncut(tokenizer, pair):
    """The independent source is the tokenizer without a limit."""
    generator = random.Random(1)
    texts = [
        [" ".join(generator.choices(WORDS, k=generator.randint(1, 9))) for _ in range(60)] for _ in range(1 + pair)
    ]
    whole = [len(ids) for ids in tokenizer(*texts)["input_ids"]]
    for length in (5, 9, 12, 30):
        coded = tokenizer(*texts, truncation="longest_first", max_length=length)
        found = whole_lengths(coded, tokenizer, texts, length)
        assert found == whole
        assert cut_rows(coded, found) == [row for row, pieces in enumerate(whole) if pieces > length]


def test_one_line_for_all_splits_with_shares_place_and_remedy(pretrained, tmp_path, capsys):
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
    assert lines == [
        "warning: train: 1 of 4 examples (25.0 %), test: 2 of 2 examples (100.0 %) are longer than --max_seq_length 12 "
        f"and were cut, the first: {train}:3, after which 2 cannot be told apart; 4 of 53 tokens (7.5 %) are not read; "
        f"{REMEDY}"
    ]
    assert read(tmp_path / "run", "run.json")["cut_at_max_seq_length"] == {
        "train": {"cut": 1, "examples": 4, "longest": 13, "tokens": 26, "tokens_lost": 1},
        "validation": {"cut": 0, "examples": 2, "longest": 4, "tokens": 8, "tokens_lost": 0},
        "test": {"cut": 2, "examples": 2, "longest": 14, "tokens": 27, "tokens_lost": 3},
    }


def test_at_the_model_s_maximum_only_splitting_helps(pretrained, tmp_path, capsys):
    train = write(tmp_path / "train.csv", [("the king", "x"), (PREFIX * 6, "y")])
    run_glue.main(flags(pretrained, tmp_path, train, train, "--max_seq_length=64"))
    assert "reads no more, so give --long_texts head_tail or windows, or split the texts" in capsys.readouterr().out


def refused(capsys, main, argv) -> str:
    assert report_errors(lambda: main(argv)) == 2
    return capsys.readouterr().err


def test_a_training_of_texts_that_the_cut_makes_the_same_is_refused(pretrained, tmp_path, capsys):
    """The evidence comes last: nothing is left to learn, and a score of .5 would be all that says so."""
    train = write(tmp_path / "train.csv", [(PREFIX + "king", "x"), (PREFIX + "queen", "y")] * 3)
    error = refused(capsys, run_glue.main, flags(pretrained, tmp_path, train, train, "--max_seq_length=12"))
    assert f"{train}:2: this and other training examples (6 of 6) are longer than --max_seq_length 12 and were" in error
    assert not (tmp_path / "run").exists()
    run_glue.main(flags(pretrained, tmp_path, train, train, "--max_seq_length=14"))


def test_texts_that_are_the_same_uncut_are_refused_with_another_remedy(pretrained, tmp_path, capsys):
    train = write(tmp_path / "train.csv", [("the king", "x"), ("the king", "y")])
    dev = write(tmp_path / "dev.csv", [("the king", "x"), ("the queen", "y")])
    error = refused(capsys, run_glue.main, flags(pretrained, tmp_path, train, dev, "--max_seq_length=12"))
    assert f"{train}:2: this and all other training examples (2) are the same for the tokenizer, so that there" in error
    assert error.strip().endswith("nothing to learn; is 'sentence' the text?")
    run_glue.main(flags(pretrained, tmp_path, dev, train, "--max_seq_length=12"))


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
    counts = ", ".join(f"{split}: 2 of 3 examples (66.7 %)" for split in ("train", "validation"))
    assert (
        f"{counts} are longer than --max_seq_length 16 and were cut, the first: {path}:3, after which 2 cannot" in out
    )
    assert read(tmp_path / "run", "run.json")["cut_at_max_seq_length"]["train"] == {
        "cut": 2, "examples": 3, "longest": 18, "tokens": 80, "tokens_lost": 5,
    }  # fmt: skip


def test_endings_that_the_cut_makes_the_same_are_refused(pretrained, tmp_path, capsys):
    path = swag_rows(tmp_path / "a.csv", "the king", [(PREFIX + "king", PREFIX + "queen")] * 2)
    argv = flags(pretrained, tmp_path, path, path, "--max_seq_length=14")
    assert f"{path}:2: this and other training examples (2 of 2)" in refused(capsys, run_swag.main, argv)
    assert not (tmp_path / "run").exists()
