"""tokenization/extend_vocabulary.py: which pieces extend a vocabulary, and that every file has them."""

import random
from collections import Counter

import pytest
from transformers import AutoTokenizer

from tokenization import build_tokenizer, load_vocab
from tokenization.errors import UserError
from tokenization.extend_vocabulary import (
    choose_pieces,
    count_documents,
    count_mixed_words,
    extend_vocabulary,
    read_words,
    split_piece,
    wordpieces,
)

LETTERS = "abcdefghij"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "[unused0]", *LETTERS, *(f"##{letter}" for letter in LETTERS), "[unused1]", "abc", "##de"]
BASE = build_tokenizer(PIECES)
# abcde: abc ##de; fade: f ##a ##de; chad: c ##h ##a ##d
TEXT = ["abcde fade, abcde", "fade abcde chad", "Abcde fade xyz"]


def split(text: str) -> list[str]:
    return BASE.tokenize(text)


def test_the_pieces_that_save_most_come_first_and_fill_the_unused_rows():
    extended = extend_vocabulary(BASE, TEXT, 2)
    assert [(new.piece, new.row, new.saved, new.old) for new in extended.pieces] == [
        ("fade", 5, 6, ["f", "##a", "##de"]),
        ("abcde", 26, 4, ["abc", "##de"]),
    ]
    assert (extended.filled, extended.before, extended.after, extended.words) == (2, 23, 13, 10)
    assert len(extended.tokenizer) == len(BASE)
    assert extended.tokenizer.tokenize("a fade Abcde") == ["a", "fade", "abcde"]
    assert split("fade") == ["f", "##a", "##de"], "the tokenizer itself has changed"
    assert extended.counts["fade"] == 3
    assert "fade (saves 6, was f ##a ##de)" in extended.summary()[0]


def test_a_mixture_makes_counts_smaller_and_never_larger():
    sources = (["fade " * 6 + "chad"], ["abcde " * 40 + "xyz " * 2])  # 7 and 42 words
    mixed = count_mixed_words(BASE, sources, [0.5, 0.5])
    assert mixed.counts == {"fade": 6, "chad": 1, "abcde": 7}  # 40 / 6, and 2 / 6, which is none
    assert count_mixed_words(BASE, sources, [1, 0]).counts == {"fade": 6, "chad": 1}
    assert [new.piece for new in extend_vocabulary(BASE, mixed, 1).pieces] == ["fade"]


def test_savings_are_those_of_the_tokenizer_and_the_order_is_fixed():
    """Words that share parts, so that a piece may end inside of another piece."""
    generator = random.Random(0)
    words = Counter("".join(generator.choices("abcde", k=generator.randint(2, 9))) for _ in range(400))
    text = list(words.elements())
    known = set(wordpieces(BASE))
    chosen = choose_pieces(words, known, 60)
    for piece, saved in chosen:
        before = sum(count * len(split_piece(word, known)) for word, count in words.items())
        known.add(piece)
        assert before - sum(count * len(split_piece(word, known)) for word, count in words.items()) == saved > 1
    shuffled = list(words.items())
    generator.shuffle(shuffled)
    assert choose_pieces(dict(shuffled), set(wordpieces(BASE)), 60) == chosen
    extended = extend_vocabulary(BASE, text, 60)
    assert sum(len(extended.tokenizer.tokenize(word)) for word in text) == extended.after
    assert sum(len(split(word)) for word in text) == extended.before


def lines_of(*documents: str) -> list[str | None]:
    return [line for document in documents for line in (*document.split("\n"), None)]


def test_a_piece_is_in_three_documents_if_there_are_so_many():
    noise, word = "fadebig " * 50, "chad"
    documents = [noise + word, noise + "Chad,", f"{word} {word}", "abc", "abc"]
    sources = [lines_of(*documents[:2]), lines_of(*documents[2:])]
    for texts in (lines_of(*documents), count_mixed_words(BASE, sources, [0.9, 0.1])):
        assert [new.piece for new in extend_vocabulary(BASE, texts, 1).pieces] == ["chad"]
        with pytest.raises(UserError, match="occur 2 times or more, in 3 documents; ask for at most 1, or"):
            extend_vocabulary(BASE, texts, 2)
    for fewer in (documents[:2], ["\n".join(documents)]):
        assert extend_vocabulary(BASE, lines_of(*fewer), 1).pieces[0].piece == "fadebig"


def test_parts_are_in_the_documents_of_their_words():
    """##ga is part of three words, each of which is in one document."""
    found = extend_vocabulary(BASE, lines_of("bigad hi", "figaf hi", "digah hi"), 1).pieces
    assert [new.piece for new in found] == ["##iga"]


def test_the_documents_of_words_are_those_of_a_plain_count():
    generator = random.Random(0)
    forms = ["abc", "Abc,", "fade", "(Fade", "chad-big", "CHAD", "zyx"]
    documents = [" ".join(generator.choices(forms, k=generator.randint(0, 4))) for _ in range(9)]
    found: dict[str, tuple[int, ...]] = {}
    counted = count_documents(lines_of(*documents), found)
    split = [BASE.backend_tokenizer.pre_tokenizer.pre_tokenize_str(document.lower()) for document in documents]
    words = [[word for word, _ in parts] for parts in split]
    assert counted == Counter(word for one in words for word in one)
    assert found == {
        word: tuple([number for number, one in enumerate(words, 1) if word in one][:3]) for word in counted
    }


def test_formulas_and_sequences_offer_no_piece():
    """A string that is longer than any word, in as many documents as you like; other scripts may have no spaces."""
    generator = random.Random(0)
    formula, phrase = ("".join(generator.choices(letters, k=86)) for letters in (LETTERS, "กขคงจฉ"))
    base = build_tokenizer([*PIECES, *"กขคงจฉ", *(f"##{letter}" for letter in "กขคงจฉ")])
    chosen = extend_vocabulary(base, lines_of(*[f"{formula} {phrase} fade"] * 5), 5).pieces
    assert len(formula) == len(phrase) == 86
    assert [new.piece for new in chosen if new.piece.isascii()] == ["fade"]
    assert max(len(new.piece.removeprefix("##")) for new in chosen if not new.piece.isascii()) == 30


def test_equal_savings_whole_words_first_then_the_alphabet():
    found = choose_pieces({"cab": 1, "fab": 1, "dig": 2, "big": 2}, set(wordpieces(BASE)), 3)
    assert found == [("big", 4), ("dig", 4), ("##ab", 2)]


def test_a_piece_that_splits_other_words_further_saves_less():
    """abc would save six pieces, but abcde would be abc ##d ##e instead of ab ##cde, four times."""
    known = {"ab", "##c", "##cde", "##d", "##e"}
    assert choose_pieces({"abc": 6, "abcde": 4}, known, 1) == [("abcde", 4)]


def test_a_text_that_offers_too_little():
    with pytest.raises(UserError, match=r"offers 5 new pieces, but only 2 .* ask for at most 2"):
        extend_vocabulary(BASE, TEXT, 5)
    with pytest.raises(UserError, match=r"only 0 words and word parts .* leave the vocabulary as it is"):
        extend_vocabulary(BASE, TEXT[:0], 5)


def test_every_reader_of_the_saved_folder_has_the_pieces(tmp_path):
    base = build_tokenizer(PIECES)
    base.add_special_tokens({"extra_special_tokens": ["[E1]"]})  # behind the vocabulary
    extended = extend_vocabulary(base, TEXT * 2, 3).tokenizer
    extended.save_pretrained(tmp_path)
    opened = AutoTokenizer.from_pretrained(tmp_path)
    assert list(load_vocab(tmp_path / "vocab.txt")) == list(extended.convert_ids_to_tokens(range(len(extended))))
    for text in ("fade [E1] abcde", "chad,chad"):
        assert opened(text)["input_ids"] == extended(text)["input_ids"] != base(text)["input_ids"]
    assert opened.convert_tokens_to_ids("[E1]") == len(PIECES) == base.convert_tokens_to_ids("[E1]")
    assert [token.content for token in opened.added_tokens_decoder.values()] == [*SPECIAL, "[E1]"]


def test_a_list_of_words(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("Fade\n\nabc\nbig cab\nbig-cab\n##ig\n\u200d\nzyx\n", encoding="utf-8")
    pieces, remarks = read_words(path, BASE)
    assert pieces == ["fade", "##ig", "zyx"]
    assert [remark.removeprefix(f"{path}:") for remark in remarks] == [
        "1: 'Fade' becomes the piece 'fade', as the tokenizer reads it",
        "3: 'abc' is left out: it is a piece already",
        "4: 'big cab' is left out: it has white space, and a piece is one word",
        "5: 'big-cab' is left out: the tokenizer splits it into big - cab before it looks for pieces",
        "7: '\\u200d' is left out: the tokenizer removes all of its characters",
    ]
    extended = extend_vocabulary(BASE, ["fade zyx big", "zyx"], pieces)
    assert [(new.piece, new.saved, new.old) for new in extended.pieces] == [
        ("fade", 2, ["f", "##a", "##de"]),
        ("##ig", 1, ["##i", "##g"]),
        ("zyx", 0, ["[UNK]"]),
    ]
    assert "zyx (occurs 2 times, was [UNK])" in extended.summary()[0]
    assert [new.saved for new in extend_vocabulary(BASE, None, pieces).pieces] == [None] * 3


def test_added_tokens_are_no_candidates():
    """One of them has a row already, and the tokenizer takes it out of the text before it looks for pieces."""
    base = build_tokenizer(PIECES)
    base.add_tokens(["abcde"])
    plain = extend_vocabulary(BASE, ["abcde"] * 9 + ["fade"] * 4, 1)
    assert [new.piece for new in plain.pieces] == ["abcde"]
    found = extend_vocabulary(base, ["abcde"] * 9 + ["fade"] * 4, 1)
    assert [new.piece for new in found.pieces] == ["fade"]
    assert found.tokenizer.convert_tokens_to_ids("abcde") == base.convert_tokens_to_ids("abcde")
