"""Learning a vocabulary gives the same bytes every time, and what is learnt is what the tokenizer can use."""

import logging
import os
import random
import subprocess
import sys
from collections import Counter

import pytest

import tokenization.train_wordpiece as module
from tests.helpers.hostile_text import hostile_texts
from tests.helpers.repository import ROOT
from tokenization import BasicTokenizer, build_tokenizer, load_vocab
from tokenization.train_wordpiece import count_words, train_wordpiece

# Random words of few letters have many pairs of equal frequency, so that the order among equals decides.
TIES = """
import hashlib, random
from tokenization.train_wordpiece import train_wordpiece
rng = random.Random(0)
texts = [" ".join("".join(rng.choices("abcdefgh", k=rng.randint(2, 7))) for _ in range(50)) for _ in range(40)]
print(hashlib.sha256("\\n".join(train_wordpiece(iter(texts), 300, progress=False)).encode()).hexdigest())
"""


def in_a_process(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("runs", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_the_same_in_every_process(runs):
    """Without our code, the library gives a different vocabulary for this text in nearly every process.

    The hash is that of what earlier versions learnt.
    """
    outputs = {in_a_process(TIES, PYTHONHASHSEED=str(run), RAYON_NUM_THREADS=str(1 + run % 3)) for run in range(runs)}
    assert outputs == {"dbeefe4f2f3399889c3e726a99392d49b75d8e1779ac540760c70982bf4ff901\n"}


def test_the_order_of_texts_does_not_matter():
    texts = hostile_texts(300, seed=1)
    shuffled = random.Random(0).sample(texts, len(texts))
    assert train_wordpiece(iter(texts), 700) == train_wordpiece(iter(shuffled), 700)


def test_merges_worked_by_hand():
    """The pair ##a ##b occurs 5 times, in abab and cab. Then a ##b and ##b ##ab both occur 3 times, and a ##b comes
    first because a has the lower id.
    """
    words = iter(["abab abab abab cab cab"])
    pieces = train_wordpiece(words, 14, layout="compact")
    assert pieces[:11] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##a", "##b", "##ab"]
    assert pieces[11:] == ["ab", "abab", "cab"]


def test_pairs_rarer_than_min_frequency_are_left_and_a_short_vocabulary_is_reported(caplog):
    text = "ab ab ab cd cd ef"
    with caplog.at_level(logging.WARNING):
        learned = {n: train_wordpiece(iter([text]), 100, min_frequency=n)[5 + 6 + 3 :] for n in (1, 2, 3, 4)}
    assert learned == {1: ["ab", "cd", "ef"], 2: ["ab", "cd"], 3: ["ab"], 4: []}
    assert "gave 17 rows, fewer than the 100 asked for" in caplog.text


def test_the_layout_follows_from_the_size_or_is_given():
    texts = hostile_texts(600, seed=3)
    google = train_wordpiece(iter(texts), 1000)
    rows = {piece: google.index(piece) for piece in ("[PAD]", "[unused0]", "[unused98]", "[UNK]", "[CLS]", "[SEP]")}
    assert rows == {"[PAD]": 0, "[unused0]": 1, "[unused98]": 99, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102}
    assert google[103] == "[MASK]" and "[unused" not in "".join(google[104:])
    assert train_wordpiece(iter(texts), 999)[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert train_wordpiece(iter(texts), 999, layout="google")[:104] == google[:104]
    assert len(google) == len(set(google)) == 1000


@pytest.mark.realdata
def test_the_first_104_rows_are_those_of_google(real_data):
    theirs = list(load_vocab(real_data / "assets" / "uncased_vocab.txt"))
    assert theirs[:104] == module.LAYOUTS["google"]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_words_are_counted_as_the_tokenizer_cuts_them(monkeypatch, do_lower_case):
    texts = hostile_texts(500, seed=4)
    reference = BasicTokenizer(do_lower_case)
    expected = Counter(word for text in texts for word in reference.tokenize(text))
    assert count_words(texts, do_lower_case) == expected
    monkeypatch.setattr(module, "RAW_LIMIT", 100)
    assert count_words(texts, do_lower_case) == expected


def test_rare_characters_are_left_out_whole():
    pieces = train_wordpiece(iter(["aaa aab aab azb azb"]), 100, limit_alphabet=2)
    assert "z" not in "".join(pieces)
    # No piece is learnt from what is left of "azb" without its z.
    assert train_wordpiece(iter(["azb azb azb aa b"]), 100, limit_alphabet=2)[5:] == ["a", "b", "##a"]


def test_alphabet_is_the_most_frequent_characters_then_the_lowest():
    assert train_wordpiece(iter(["z z z c b a"]), 100, limit_alphabet=3)[5:] == ["a", "b", "z"]


def test_words_too_long_for_the_tokenizer_teach_nothing():
    assert train_wordpiece(iter([f"{'ab' * 50}a " * 9 + "a b"]), 100)[5:] == ["a", "b"]


def test_frequencies_above_the_size_of_a_chunk_count_in_full():
    assert train_wordpiece(iter(["cd " * 10_001 + "ab " * 10_000 + "ef " * 25_000]), 17)[14:] == ["ef", "cd", "ab"]


def test_every_learned_piece_can_be_produced():
    texts = hostile_texts(300, seed=5)
    tokenizer = build_tokenizer(train_wordpiece(iter(texts), 800))
    used = {token for text in texts for token in tokenizer.tokenize(text)}
    assert len(used) > 0.6 * len(tokenizer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 5}, "5 special rows, 3 characters"),
        ({"vocab_size": 104, "layout": "google"}, "104 special rows, 3 characters"),
        (
            {"vocab_size": 9},
            r"5 special rows, 3 characters and 3 '##' characters need 11, got 9; raise it, or .* below 3",
        ),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        train_wordpiece(iter(["abc bac"]), **options)


# Programs that use it.


def many_characters(count=1500):
    """Ideographs, the first ones more frequent, and one word of Latin letters."""
    return "".join(chr(0x4E00 + number) * (2 + (number < 1200)) for number in range(count)) + " words words"


def test_free_rows_take_more_characters_by_frequency():
    """1,000 characters by default, and more of them as long as rows are free; a limit that is given holds."""
    text = many_characters()
    pieces = train_wordpiece(iter([text]), 8000, progress=False)
    letters = set("wors" + "d")
    assert {piece for piece in pieces if len(piece) == 1} == {*map(chr, range(0x4E00, 0x4E00 + 1500)), *letters}
    assert len(pieces) < 8000 and len(set(pieces)) == len(pieces)
    limited = train_wordpiece(iter([text]), 8000, progress=False, limit_alphabet=1000)
    assert sum(len(piece) == 1 for piece in limited) == 1000
    fitting = train_wordpiece(iter([text]), 1300, progress=False)
    assert len(fitting) == 1300  # as many of the frequent ones as there is room for
    assert {piece for piece in fitting if len(piece) == 1} <= set(pieces[104:])
    assert max(piece for piece in fitting if len(piece) == 1) < chr(0x4E00 + 1200)
    assert fitting == train_wordpiece(iter([text]), 1300, progress=False)


def test_a_full_vocabulary_is_that_of_the_limit():
    """Where no row is free, the default is the limit of 1,000, and where there are fewer characters, too."""
    text = (
        " ".join(many_characters(1100)[start : start + 2] for start in range(0, 3000, 2)) + " lower lowest newer " * 9
    )
    full = train_wordpiece(iter([text]), 1115, progress=False)
    assert full == train_wordpiece(iter([text]), 1115, progress=False, limit_alphabet=1000) and len(full) == 1115
    few = "lower lowest newer wider " * 9
    assert train_wordpiece(iter([few]), 90) == train_wordpiece(iter([few]), 90, limit_alphabet=1000)
