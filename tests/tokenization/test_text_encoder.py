"""tokenization/bert_tokenizer.py: a text that is put together from its words has the ids of the tokenizer."""

import random
import sys

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.helpers.words import WORDS
from tokenization import bert_tokenizer, build_tokenizer
from tokenization.bert_tokenizer import TextEncoder

SPACES = [" ", "  ", " \t", "\n", "\u00a0", "\u3000", "\x1c", "\x85", "\u2028", ""]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Words, marks, every kind of space, and characters of all of Unicode, which may be removed, split or changed."""
    generator, characters = random.Random(0), [chr(n) for n in range(sys.maxunicode + 1) if not 0xD800 <= n < 0xE000]
    found = ["", " ", "\u0301", "a \u0301b", "x" * 101]
    for _ in range(3000):
        words = generator.choices([*WORDS, "[SEP]", "[E1]", "new york", "don't", "\u0301", "中国", "Σας"], k=9)
        words += ["".join(generator.choices(characters, k=generator.randint(1, 4))) for _ in range(9)]
        words += [word + other for word, other in zip(WORDS, words)]
        generator.shuffle(words)
        found.append("".join(word + generator.choice(SPACES) for word in words))
    return found


def check(tokenizer, texts: list[str], by_words: bool = True) -> None:
    encoder = TextEncoder(tokenizer)
    assert encoder.by_words is by_words
    found = [ids.tolist() for start in range(0, len(texts), 500) for ids in encoder(texts[start : start + 500])]
    assert found == encoder.tokenizer(texts, add_special_tokens=False, split_special_tokens=True)["input_ids"]


@pytest.mark.parametrize(("lower", "strip"), [(True, None), (True, False), (False, False)])
def test_the_ids_of_any_text_are_those_of_the_tokenizer(vocab, texts, monkeypatch, lower, strip):
    monkeypatch.setattr(bert_tokenizer, "MOST_CHARACTERS", 20_000)  # the words are forgotten on the way
    pieces = [*vocab, *"[]'.,!國中国àéαβγσς", "##e", "##s", "sep", "e1", "don", "e\u0301"]
    check(build_tokenizer([*dict.fromkeys(pieces)], lower, strip_accents=strip), texts)


@pytest.mark.parametrize(
    ("added", "options", "by_words"),
    [
        ("[E1]", {}, True),
        ("中国", {}, True),
        ("of", {"single_word": True}, True),
        ("of", {"lstrip": True}, False),
        ("of", {"rstrip": True}, False),
        ("new york", {}, False),
    ],
)
def test_added_tokens_are_found_in_words_and_across_them(vocab, texts, added, options, by_words):
    tokenizer = build_tokenizer([*vocab, "[", "]", "sep"])
    tokenizer.add_tokens([AddedToken(added, **options), AddedToken("[E2]", special=True)])
    check(tokenizer, texts, by_words)


def test_a_tokenizer_of_other_rules_reads_texts_whole(vocab, texts):
    """Its pieces begin with the space before a word, so a text is not its words."""
    letters = sorted({*"".join(WORDS), "▁"})
    backend = Tokenizer(models.BPE({"[UNK]": 0} | {one: n for n, one in enumerate(letters, 1)}, [], unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Metaspace()
    check(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]"), texts[:200], by_words=False)
