"""tokenization/coverage.py: what a tokenizer loses of a text, in tokens, in characters and in accents."""

import random
from itertools import pairwise

import pytest
from transformers import BertTokenizer

from tokenization import FullTokenizer, build_tokenizer
from tokenization.coverage import Sample, coverage, lost_characters
from tokenization.train_wordpiece import train_wordpiece

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "##s", "a", "##a", "म", "schon", "."]
REMEDIES = ("TAKE ANOTHER", "KEEP THEM")


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return build_tokenizer(PIECES)


def test_tokens_and_characters_are_counted(tokenizer):
    #             the dog ##s [UNK 5] . | [UNK 3] the [UNK 101]
    counts = coverage(tokenizer, ["The dogs meows .", "cat the\n" + "a" * 101])
    assert (counts.tokens, counts.unknown_tokens) == (8, 3)
    assert (counts.letters, counts.unknown_letters) == (119, 109)
    assert (counts.characters, counts.unknown_characters) == (3 + 4 + 5 + 1 + 3 + 3 + 101, 5 + 3 + 101)
    assert (counts.long_characters, counts.stripped_characters) == (101, 0)
    assert counts.unknown == "a" * 20
    assert counts.token_share == 3 / 8 and counts.character_share == 109 / 120
    assert counts.summary() == "[UNK] is 37.5% of the tokens and holds 90.8% of the characters"


def test_a_stripped_mark_belongs_to_its_word(tokenizer):
    counts = coverage(tokenizer, ["पे the"])
    assert (counts.characters, counts.unknown_characters, counts.unknown) == (5, 2, "पे")


def test_a_word_of_100_characters_is_known_and_one_of_101_is_not(tokenizer):
    assert coverage(tokenizer, ["a" * 100]).unknown_characters == 0
    counts = coverage(tokenizer, ["a" * 101])
    assert counts.unknown_characters == counts.long_characters == 101


def test_the_reference_finds_the_same_share(tmp_path):
    """The readable tokenizer has no offsets: there, each word is encoded alone."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdéघर書", k=draw.randint(1, 8))) for _ in range(3000)]
    train_wordpiece(iter(words[:300]), 60, output_dir=tmp_path, limit_alphabet=5, progress=False)
    reference = FullTokenizer(tmp_path / "vocab.txt", strip_accents=False)
    pieces = {word: reference.tokenize(word) for word in words}
    counts = coverage(BertTokenizer.from_pretrained(tmp_path), words)
    assert counts.tokens == sum(len(pieces[word]) for word in words)
    assert counts.unknown_tokens == sum(pieces[word].count("[UNK]") for word in words) > 100
    assert counts.characters == sum(map(len, words))
    lost = 0
    for word in words:
        parts = reference.basic_tokenizer.tokenize(word)
        lost += sum(len(part) for part in parts if reference.wordpiece_tokenizer.tokenize(part) == ["[UNK]"])
    assert counts.unknown_characters == lost > 100


@pytest.mark.parametrize(
    ("words", "example", "lost"),
    [
        ("में म म", ("में", "म"), 3),
        ("schön schön schon", ("schön", "schon"), 10),
        ("パン ハン", ("パン", "ハン"), 2),
        ("하다 쓰다", None, 0),  # Hangul is decomposed, and nothing is lost
        ("❤\ufe0f schon", None, 0),
        ("cafe\u0301", ("cafe\u0301", "cafe"), 5),
    ],
)
def test_words_that_lose_a_mark_are_counted(tokenizer, words, example, lost):
    counts = coverage(tokenizer, [words])
    assert (counts.example, counts.stripped_characters) == (example, lost)
    kept = coverage(build_tokenizer(PIECES, strip_accents=False), [words])
    assert (kept.example, kept.stripped_characters) == (None, 0)
    assert coverage(build_tokenizer(PIECES, do_lower_case=False), [words]).stripped_characters == 0


def test_the_warnings_name_script_example_and_remedy(tokenizer):
    marks, unknown = "में " * 3 + "the " * 7, "cat " + "the " * 20
    assert coverage(tokenizer, ["the dog"]).warnings("train", *REMEDIES) == []
    assert coverage(tokenizer, [marks]).warnings("train", *REMEDIES) == [
        "warning: train: accents or vowels are stripped from words with 30.0% of the characters (Devanagari: में becomes "
        "म); KEEP THEM"
    ]
    assert coverage(tokenizer, [unknown]).warnings("train", *REMEDIES) == []  # 1 of 21 tokens
    assert coverage(tokenizer, [unknown + "cat"]).warnings("train", *REMEDIES) == [
        "warning: train: [UNK] is 9.1% of the tokens and holds 9.1% of the characters, such as 'cat'; TAKE ANOTHER"
    ]
    [text] = coverage(tokenizer, ["the " * 40 + "a" * 101]).warnings("train", *REMEDIES)
    assert "is 2.4% of the tokens and holds 45.7% of the characters" in text  # tokens alone would show nothing
    assert "put spaces between the words" in text
    assert "TAKE ANOTHER" not in text


def test_text_that_is_practically_all_unknown_is_refused(tokenizer):
    coverage(tokenizer, ["the " * 2 + "cat " * 30]).check_usable("a.txt", "TAKE ANOTHER")
    with pytest.raises(ValueError) as refusal:
        coverage(tokenizer, ["the " + "cat " * 30]).check_usable("a.txt", "TAKE ANOTHER")
    assert str(refusal.value) == (
        "a.txt: expected text that the tokenizer knows, but 96.8% of its letters are in [UNK], such as 'cat', so that "
        "there is nothing to learn; TAKE ANOTHER"
    )
    with pytest.raises(ValueError, match=r"100\.0% of its letters"):  # the points are known
        coverage(tokenizer, ["cat . . . . ."]).check_usable("a.txt", "TAKE ANOTHER")
    coverage(tokenizer, [". . . 1 2"]).check_usable("numbers", "")
    coverage(tokenizer, []).check_usable("nothing", "")


def test_a_sample_is_spread_over_the_whole_text():
    sample = Sample(1000)
    for number in range(10_000):
        sample.add(f"{number:010}")
    numbers = sorted(int(text) for text in sample.texts)
    assert len(numbers) == 100
    gaps = [second - first for first, second in pairwise([0, *numbers, 10_000])]
    assert max(gaps) < 200
    assert 40 <= sum(number % 2 for number in numbers) <= 60  # texts that alternate between two kinds


@pytest.mark.parametrize("below", [1 << 64, 1 << 62, 1 << 40])
def test_samples_of_parts_make_that_of_the_whole(below):
    """In any order; and if no text has a hash below the limit, the one with the lowest is drawn."""
    rng = random.Random(1)
    places = rng.sample(range(1 << 40), 500)
    texts = {place: f"{place} " + "x" * rng.randrange(200) for place in places}
    whole = Sample(5000, below)
    for place, text in texts.items():
        whole.add(text, place)
    assert len(whole.texts) == 1 if below == 1 << 40 else sum(map(len, whole.texts)) <= 5000
    for _ in range(20):
        rng.shuffle(places)
        parts = [Sample(5000, below) for _ in range(rng.randrange(1, 9))]
        for place in places:
            rng.choice(parts).add(texts[place], place)
        joined = Sample(5000, below)
        for part in parts:
            joined.merge(part.drawn)
        assert joined.drawn == whole.drawn


@pytest.mark.parametrize(
    ("words", "reasons"),
    [
        ({"ab": 95, "x": 5}, []),
        ({"ab": 18, "x": 2}, ["5.3% of the characters are in words with a character that the vocabulary lacks"]),
        ({"ab": 950, "a" * 101: 1}, ["5.0% of the characters are in words of more than 100 characters"]),
    ],
)
def test_what_a_learnt_vocabulary_loses_is_said(words, reasons):
    found = lost_characters(words, ["a", "b", "##b", "ab"])
    assert len(found) == len(reasons) and all(map(str.startswith, found, reasons))
