"""tokenization/coverage.py: whether a learnt vocabulary strips accents, and that every reader of its folder agrees."""

import json
import logging
import unicodedata
from collections import Counter

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer, BertTokenizer

from tokenization import FullTokenizer, build_tokenizer
from tokenization.coverage import Stripping, coverage, strip_words
from tokenization.train_wordpiece import count_words, train_wordpiece

ENGLISH = "the people of the town met in the house and the house was old " * 20
# text, and words of it that must stay what they are
KEPT = {
    "Hindi": ("मेरे घर में पोस्ट है और गाँव में बाज़ार है", ["में", "पोस्ट", "गाँव"]),
    "Tamil": ("நான் தமிழில் பேசுகிறேன் வீடு", ["நான்", "தமிழில்"]),
    "Thai": ("ผม ไป ที่ บ้าน กับ เพื่อน", ["ที่", "บ้าน", "เพื่อน"]),
    "Korean": ("하다 쓰다 있다 나는 학교에 간다", ["하다", "쓰다", "학교에"]),
    "Japanese": ("がっこう で べんきょう する パン", ["がっこう", "で", "べんきょう", "パン"]),
    "Arabic": ("أنا أكتب رسالة إلى مؤمن في آخر اليوم", ["أنا", "إلى", "مؤمن", "آخر"]),
    "Vietnamese": ("tôi đi học ở nhà má và mà", ["học", "má", "mà"]),
    "German": ("schön schon Grüße Straße", ["schön", "schon", "grüße", "straße"]),
    "Russian": ("мой дом и твой ёж", ["мой", "ёж"]),
}
STRIPPED = {
    "English": (ENGLISH + "café", "Café", ["cafe"]),
    "emoji": ("I ❤\ufe0f it ☀\ufe0f too", "❤\ufe0f", ["❤"]),
    "Chinese": ("我 喜欢 这 本 书 我", "书", ["书"]),
    "plain Hebrew": ("שלום לכולם שלום", "שלום", ["שלום"]),
}


def learn(tmp_path, text, **settings):
    train_wordpiece(iter([text] * 3), 2000, output_dir=tmp_path, layout="compact", progress=False, **settings)
    return tmp_path


def readers(folder):
    """All that open a folder, as functions from a text to its pieces."""
    config = json.loads((folder / "tokenizer_config.json").read_text())
    case, accents = config["do_lower_case"], config["strip_accents"]
    vocab_alone = folder.parent / "vocab_alone"
    vocab_alone.mkdir(exist_ok=True)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (vocab_alone / name).write_bytes((folder / name).read_bytes())
    raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return {
        "AutoTokenizer": AutoTokenizer.from_pretrained(folder).tokenize,
        "BertTokenizer": BertTokenizer.from_pretrained(folder).tokenize,
        "vocab.txt and tokenizer_config.json": BertTokenizer.from_pretrained(vocab_alone).tokenize,
        "tokenizers": lambda text: raw.encode(text, add_special_tokens=False).tokens,
        "reference": FullTokenizer(folder / "vocab.txt", case, strip_accents=accents).tokenize,
    }


@pytest.mark.parametrize("language", KEPT)
def test_accents_that_matter_are_kept_and_every_reader_agrees(tmp_path, language, caplog):
    text, words = KEPT[language]
    folder = learn(tmp_path / "v", text)
    assert json.loads((folder / "tokenizer_config.json").read_text())["strip_accents"] is False
    assert json.loads((folder / "tokenizer.json").read_text())["normalizer"]["strip_accents"] is False
    assert "accents and vowel signs are kept" in caplog.text and "--strip_accents true" in caplog.text
    for name, tokenize in readers(folder).items():
        assert [tokenize(word) for word in words] == [[word] for word in words], name


@pytest.mark.parametrize("language", STRIPPED)
def test_accents_are_stripped_where_they_are_few(tmp_path, language, caplog):
    """The saved setting is then that of earlier versions, so that the SHA-256 of such tokenizers stays the same."""
    text, word, pieces = STRIPPED[language]
    folder = learn(tmp_path / "v", text)
    assert json.loads((folder / "tokenizer_config.json").read_text())["strip_accents"] is None
    assert "kept" not in caplog.text
    for name, tokenize in readers(folder).items():
        assert "".join(tokenize(word)).replace("##", "") == "".join(pieces), name


@pytest.mark.parametrize(
    ("settings", "pieces"),
    [
        ({"strip_accents": True}, ["schon", "schon"]),
        ({"strip_accents": False}, ["schön", "schon"]),
        ({"do_lower_case": False}, ["Schön", "schon"]),
        ({"do_lower_case": False, "strip_accents": True}, ["Schon", "schon"]),
    ],
)
def test_case_and_accents_are_two_settings(tmp_path, settings, pieces):
    folder = learn(tmp_path / "v", "Schön schon", **settings)
    for name, tokenize in readers(folder).items():
        assert tokenize("Schön schon") == pieces, name


def test_one_character_in_a_hundred_decides():
    words = Counter({"home": 99, "café": 1})
    assert strip_words(words) == ({"home": 99, "cafe": 1}, Stripping(0.01, ("café", "cafe")))
    assert strip_words(words)[1].matters
    assert not strip_words(words + Counter({"the": 1}))[1].matters


UNSPACED = {
    "Khmer": "ខ្ញុំទៅផ្ទះជាមួយមិត្ត",
    "Japanese": "学校がありがとう。私は本を読んだ。",
}


@pytest.mark.parametrize("language", UNSPACED)
@pytest.mark.parametrize(("times", "kept"), [(40, True), (1, False)])
def test_text_without_spaces_counts_by_its_characters(tmp_path, language, times, kept, caplog):
    """In 24,000 characters of English, some 300 are a share that matters, although they are few words."""
    text = ENGLISH * 24 + f" {UNSPACED[language]}" * times
    train_wordpiece(iter([text]), 2000, output_dir=tmp_path, layout="compact", progress=False)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["strip_accents"] is (False if kept else None)
    assert ("change words with" in caplog.text) is kept
    counts = coverage(build_tokenizer(["[UNK]"]), [ENGLISH] * 24 + [UNSPACED[language]] * times)
    assert counts.stripping.matters is kept
    assert len(counts.warnings("train", "", "KEEP")) == 1 + kept


def test_stripping_afterwards_counts_the_same_words():
    """The words are counted once, without stripping; for no code point does it matter that it comes second."""
    codes = [
        code
        for code in range(0x110000)
        if (char := chr(code)).lower() != char
        or unicodedata.decomposition(char)
        or (unicodedata.category(char)[0] in "MPZC" and unicodedata.category(char) not in ("Cn", "Cs", "Co"))
    ]
    texts = [f"a{chr(code)}B{chr(code)} {chr(code)}" for code in codes]
    assert len(texts) > 9000
    assert strip_words(count_words(texts, True, False))[0] == count_words(texts, True, True)
    assert strip_words(count_words(texts, True, False, False), False)[0] == count_words(texts, True, True, False)


def test_lower_casing_turkish(tmp_path):
    """No reader turns I into ı, and İ becomes i with a dot above."""
    folder = learn(tmp_path / "v", "IŞIK ışık İSTANBUL istanbul")
    for tokenize in readers(folder).values():
        assert [*tokenize("IŞIK ışık"), *tokenize("İSTANBUL")] == ["işik", "ışık", "i̇stanbul"]


@pytest.fixture(autouse=True)
def all_messages(caplog):
    caplog.set_level(logging.WARNING, "tokenization.train_wordpiece")
