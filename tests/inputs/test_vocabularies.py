"""bert_training/inputs/tokenizers.py: two vocabularies compared row by row."""

import copy

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
