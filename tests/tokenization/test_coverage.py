"""tokenization/coverage.py: what a tokenizer loses of a text, in characters and in accents."""

import random

import pytest
from tokenizers.pre_tokenizers import Split
from transformers import BertTokenizer

from tokenization import FullTokenizer, build_tokenizer
from tokenization import coverage as coverage_module
from tokenization.coverage import coverage
from tokenization.errors import UserError
from tokenization.train_wordpiece import train_wordpiece

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "##s", "a", "##a", "म", "schon", "."]
REMEDIES = ("TAKE ANOTHER", "KEEP THEM")


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return build_tokenizer(PIECES)


def test_letters_and_what_is_beyond_ascii_are_counted(tokenizer):
    #                       the dog ##s [UNK 5] . | [UNK 3] the [UNK 101]
    counts = coverage(tokenizer, ["The dogs meows .", "cat the\n" + "a" * 101 + " 12"])
    assert counts.unknown == (5 + 3 + 101) / (3 + 4 + 5 + 3 + 3 + 101)
    assert counts.example == "a" * 20 and counts.stripping == (0, None)
    assert coverage(tokenizer, ["the 😂"]).unknown == 1 / 4


def test_by_other_rules_a_text_is_read_whole():
    other = build_tokenizer(PIECES)
    other.backend_tokenizer.pre_tokenizer = Split(" ", "isolated")  # a blank is then a word, which is not in PIECES
    assert coverage(other, ["the dog"]).example == " " and coverage(build_tokenizer(PIECES), ["the dog"]).unknown == 0


def test_a_stripped_mark_belongs_to_its_word(tokenizer):
    counts = coverage(tokenizer, ["पे the"])
    assert (counts.unknown, counts.example) == (2 / 5, "पे")


def test_a_word_of_100_characters_is_known_and_one_of_101_is_not(tokenizer):
    assert coverage(tokenizer, ["a" * 100]).unknown == 0
    assert coverage(tokenizer, ["a" * 101]).unknown == 1


def test_the_reference_finds_the_same_share(tmp_path):
    """The readable tokenizer has no offsets: there, each word is encoded alone."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdéघर書", k=draw.randint(1, 8))) for _ in range(3000)]
    train_wordpiece(iter(words[:300]), 60, output_dir=tmp_path, limit_alphabet=5, progress=False)
    reference = FullTokenizer(tmp_path / "vocab.txt", strip_accents=False)
    counts = coverage(BertTokenizer.from_pretrained(tmp_path), words)
    lost = 0
    for word in words:
        parts = reference.basic_tokenizer.tokenize(word)
        lost += sum(len(part) for part in parts if reference.wordpiece_tokenizer.tokenize(part) == ["[UNK]"])
    assert counts.unknown == lost / sum(map(len, words)) > 0.01


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
    characters = sum(map(len, words.split()))
    assert coverage(tokenizer, [words]).stripping == (lost / characters, example)
    assert coverage(build_tokenizer(PIECES, strip_accents=False), [words]).stripping == (0, None)
    assert coverage(build_tokenizer(PIECES, do_lower_case=False), [words]).stripping.share == 0


def test_the_warnings_name_script_example_and_remedy(tokenizer):
    marks, unknown = "में " * 3 + "the " * 7, "cat " + "the " * 20
    assert coverage(tokenizer, ["the dog"]).warnings("train", *REMEDIES) == []
    assert coverage(tokenizer, [marks]).warnings("train", *REMEDIES) == [
        "warning: train: accents or vowels are stripped from words with 30.0% of the characters (Devanagari: में becomes "
        "म); KEEP THEM"
    ]
    assert coverage(tokenizer, [unknown]).warnings("train", *REMEDIES) == []  # 1 of 21 words
    [text] = coverage(tokenizer, [unknown + "cat"]).warnings("train", *REMEDIES)
    assert text.startswith("warning: train: 9.1% of the characters are in [UNK], such as 'cat'; TAKE ANOTHER; if the ")
    [text] = coverage(tokenizer, ["the " * 40 + "a" * 101]).warnings("train", *REMEDIES)
    assert "45.7% of the characters" in text  # tokens alone would show 1 in 41
    assert "no spaces between its words" in text


def test_text_that_is_practically_all_unknown_is_refused(tokenizer):
    coverage(tokenizer, ["the " * 2 + "cat " * 30]).check_usable("a.txt", "TAKE ANOTHER")
    with pytest.raises(ValueError) as refusal:
        coverage(tokenizer, ["the " + "cat " * 30]).check_usable("a.txt", "TAKE ANOTHER")
    assert str(refusal.value).startswith(
        "a.txt: expected text that the tokenizer knows, but 96.8% of its characters are in [UNK], such as 'cat', so "
        "that there is nothing to learn; TAKE ANOTHER; if the text has no spaces"
    )
    with pytest.raises(ValueError, match=r"100\.0% of its characters"):  # the points are known
        coverage(tokenizer, ["cat . . . . ."]).check_usable("a.txt", "TAKE ANOTHER")
    coverage(tokenizer, [". . . 1 2"]).check_usable("numbers", "")
    coverage(tokenizer, []).check_usable("nothing", "")


def test_a_sample_is_spread_over_the_whole_text(monkeypatch):
    monkeypatch.setattr(coverage_module, "SAMPLE", 1000)
    numbers = [int(text) for text in coverage_module._sample(f"{number:010}" for number in range(10_000))]
    assert numbers == [*range(0, 10_000, 128)]


def test_a_tokenizer_that_is_written_in_python_is_refused():
    with pytest.raises(UserError, match="expected a fast tokenizer"):
        coverage(object(), ["a"])
