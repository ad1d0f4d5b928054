"""bert_training/pretraining/sentences.py finds the ends of sentences."""

import unicodedata

import numpy as np
import pytest
import regex

from bert_training.pretraining.sentences import _BOUNDARY_BEYOND, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Smith paid 3.50 dollars.", '"Why?" he asked.', "He left."],
        ["J. R. R. Tolkien wrote it.", "It sold."],
        ["He came from the U.S. in May.", "Then he went home."],
        ["“Stop!” cried he.", "“Never.”", "She laughed...", "And ran.", "It was I.", "You know."],
        ["See No. 5 and p. 12.", "No.", "I will not!"],
        ["What?!", "Yes... no.", "(He did.)", "[It was.]", "1999 was good."],
        ["all lower here.", "next one.", "mr. x left."],
        ["Mr. and Mrs. Smith, Ph.D. students, vs. the rest."],
        ["one line without an end"],
    ],
)
def test_sentences_are_found_again(sentences):
    assert split_sentences("  " + "  ".join(sentences) + " ") == sentences


def test_cjk_full_stops_need_no_space():
    assert split_sentences("你好。世界！「再见。」好") == ["你好。", "世界！", "「再见。」", "好"]


def test_splitting_loses_no_text():
    rng = np.random.default_rng(1)
    for _ in range(300):
        text = "".join(rng.choice(list("aB1é.!?\"' (。—\u2028\t"), 60))
        assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


# Two sentences of each script, written as its web pages write them; the mark alone says where the first one ends.
TWO_SENTENCES = {
    "Hindi": ["यह मेरा घर है।", "वह बाज़ार गया।"],
    "Hindi, a Latin word begins": ["यह USA का है।", "iPhone अच्छा है।"],
    "Bengali": ["আমি ভাত খাই।", "সে বাড়ি যায়।"],
    "Urdu": ["یہ میرا گھر ہے۔", "وہ کہاں گیا؟"],
    "Arabic": ["كيف حالك؟", "أنا بخير."],
    "Armenian": ["Բարեւ ձեզ։", "Ես տանն եմ։"],
    "Amharic": ["ሰላም ነው።", "ቤት ሄደ።"],
    "Amharic, two wordspaces": ["ሰላም፡ነው፡፡", "ቤት፡ሄደ፡፡"],
    "Burmese": ["သူ သွားသည်။", "ကျွန်တော် လာသည်။"],
    "Khmer": ["ខ្ញុំទៅផ្ទះ។", "គាត់មក។"],
    "Tibetan": ["ང་ཁྱིམ་ལ་སོང་། །", "ཁོང་ཡོང་སོང་།"],
    "Syriac": ["ܫܠܡܐ܀", "ܒܪܝܟ܀"],
    "Mongolian": ["ᠮᠣᠩᠭᠣᠯ᠃", "ᠪᠢᠴᠢᠭ᠃"],
    "Meitei": ["ꯑꯩ ꯆꯠꯂꯤ꯫", "ꯃꯥ ꯂꯥꯛꯂꯤ꯫"],
    "Brahmi, beyond U+FFFF": ["𑀅𑀲𑁄𑀓𑁇", "𑀭𑀸𑀚𑀸𑁇"],
    "Japanese, halfwidth": ["ﾃｽﾄﾃﾞｽ｡", "｢ﾊｲ｡｣", "ｿｳﾃﾞｽ｡"],
    "Japanese, fullwidth dots": ["円周率は３．１４である．", "次の文である．"],
    "Georgian with a Latin capital": ["ის USA-ში ცხოვრობს.", "მე სახლში ვარ."],
}


@pytest.mark.parametrize("language", TWO_SENTENCES)
def test_every_script_has_ends_of_sentences(language):
    assert split_sentences(" ".join(TWO_SENTENCES[language])) == TWO_SENTENCES[language]


@pytest.mark.parametrize("language", ["Hindi", "Urdu", "Burmese", "Khmer", "Japanese, halfwidth", "Tibetan"])
def test_marks_of_other_scripts_need_no_space(language):
    assert split_sentences("".join(TWO_SENTENCES[language])) == TWO_SENTENCES[language]


@pytest.mark.parametrize(
    "sentences",
    [
        ["धर्मक्षेत्रे कुरुक्षेत्रे ।", "समवेता युयुत्सवः ॥१॥", "दृष्ट्वा तु ॥ २ ॥", "पश्यैताम् ।।३।।", "अत्र शूराः"],
        ["ժամը 10։30 է։", "Եկ։"],
        ["国名はＵ．Ｓ．Ａと書く．", "次"],
        ["Really‼ yes.", "No⁇", "Well."],
        ["a‼b"],
    ],
)
def test_marks_inside_of_numbers_and_names_end_nothing(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.slow
def test_the_marks_are_those_of_unicode():
    """Unicode's property, as the package ``regex`` knows it; besides, the ellipsis, Tibetan shads and wordspaces."""
    ours = {character for character in map(chr, range(0x110000)) if _BOUNDARY_BEYOND.match(character)}
    known = {
        character for character in map(chr, range(0x110000)) if unicodedata.category(character) not in ("Cn", "Cs")
    }
    unicode = {character for character in known if regex.match(r"\p{Sentence_Terminal}", character)}
    assert len(unicode) > 140
    assert ours & known == unicode | set("…\u1361\u0f0d\u0f0e\u0f0f\u0f10\u0f11\u0f14")


def test_the_faster_pattern_finds_the_same(monkeypatch):
    text = " ".join(sentence for pair in TWO_SENTENCES.values() for sentence in pair if sentence < "\U00010000")
    expected = split_sentences(text)
    monkeypatch.setattr("bert_training.pretraining.sentences._BOUNDARY", _BOUNDARY_BEYOND)
    assert split_sentences(text) == expected and len(expected) > 25
