"""bert_training/inputs/tokenizers.py: two vocabularies compared row by row."""

import copy
import re

import pytest

from bert_training.inputs.tokenizers import Difference, check_rows, compare, words_of_the_user
from tokenization import build_tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "[unused0]", "[unused1]", "a", "b", "##a", "cat", "dog"]
OWN = build_tokenizer(PIECES)


def rows(pieces: list[str]) -> dict[int, str]:
    return dict(enumerate(pieces))


def with_piece(row: int, piece: str, pieces: list[str] = PIECES) -> list[str]:
    return [*pieces[:row], piece, *pieces[row + 1 :]]


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        (PIECES, None),
        ([*PIECES, "new"], None),
        (with_piece(5, "word"), None),
        (with_piece(10, "word"), Difference(10, "cat", "word")),
        (with_piece(10, "[unused7]"), Difference(10, "cat", "[unused7]")),
        (with_piece(5, "[unused7]"), Difference(5, "[unused0]", "[unused7]")),
        (PIECES[:-1], Difference(11, "dog", None)),
        ([*PIECES[:7], *PIECES[8:]], Difference(7, "a", "b")),
        ([*PIECES[:10], "dog", "cat"], Difference(10, "cat", "dog")),
    ],
)
def test_the_first_row_that_differs(found, difference):
    assert compare(rows(PIECES), rows(found)).difference == difference


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (
            with_piece(10, "cow"),
            "'cow' has the id 10, but for the weights of MODEL that id stands for 'cat'; take",
        ),
        (PIECES[:-1], "no piece has the id 11, but for the weights of MODEL that id stands for 'dog'"),
        (["[UNK]", "[PAD]", *PIECES[2:]], r"'\[UNK\]' has the id 0, .* stands for '\[PAD\]'"),
    ],
)
def test_other_rows_than_those_of_the_weights_are_refused(pieces, message):
    with pytest.raises(ValueError, match=f"^OTHER: {message}") as caught:
        check_rows(build_tokenizer(pieces), "OTHER", OWN, "MODEL")
    assert "\n" not in str(caught.value) and "take the tokenizer that these weights were trained with" in str(
        caught.value
    )


def test_another_role_of_a_token_is_refused():
    tokenizer = build_tokenizer(PIECES)
    tokenizer.cls_token = "[SEP]"
    with pytest.raises(ValueError, match="its cls_token_id is 3, that of MODEL is 2"):
        check_rows(tokenizer, "OTHER", OWN, "MODEL")


# --- vocab.txt beside tokenizer.json ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (PIECES, {}),
        (with_piece(5, "word"), {5: "word"}),
        ([*PIECES, "new"], {}),
        ([*with_piece(6, "##ing"), "new", "[E1]"], {6: "##ing"}),
    ],
)
def test_the_words_of_the_user(tmp_path, pieces, words):
    """The file may end before the tokens that tokenizer.json adds, as other programs write it, or hold them."""
    tokenizer = copy.deepcopy(OWN)
    tokenizer.add_tokens(["new"])
    tokenizer.add_special_tokens({"extra_special_tokens": ["[E1]"]})
    assert words_of_the_user(tmp_path / "vocab.txt", pieces, tokenizer) == words


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (with_piece(10, "cow"), "line 11 holds 'cow', but tokenizer.json beside it has 'cat' with the id 10"),
        (with_piece(10, "[unused5]"), r"line 11 holds '\[unused5\]', but tokenizer.json beside it has 'cat'"),
        (PIECES[:-1], "line 12 holds no piece, but tokenizer.json beside it has 'dog' with the id 11"),
        ([*PIECES, "cow"], "line 13 holds 'cow', but tokenizer.json beside it has 'new' with the id 12"),
        ([*PIECES, "new", "cow"], "line 14 holds 'cow', but tokenizer.json beside it has no piece with the id 13"),
        ([*PIECES[:8], *PIECES[9:]], "line 9 holds '##a', but tokenizer.json beside it has 'b' with the id 8"),
        (with_piece(5, "new"), r"line 6 holds 'new', but tokenizer.json beside it has '\[unused0\]' with the id 5"),
    ],
)
def test_another_difference_names_the_row_and_both_pieces(tmp_path, pieces, message):
    tokenizer = copy.deepcopy(OWN)
    tokenizer.add_tokens(["new"])
    with pytest.raises(ValueError, match=rf"^{re.escape(str(tmp_path))}/vocab\.txt: {message}") as caught:
        words_of_the_user(tmp_path / "vocab.txt", pieces, tokenizer)
    assert "delete the one of the two files that is wrong" in str(caught.value) and "\n" not in str(caught.value)
