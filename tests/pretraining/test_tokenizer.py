"""bert_training/pretraining/tokenizer.py: what the tokenizer loses of the text, and what whole words are."""

from types import SimpleNamespace

import numpy as np
import pytest
from transformers import AutoTokenizer

from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining import tokenizer as tokenizer_module
from bert_training.pretraining.masking import MaskSettings, mask_batch, masking_rule
from bert_training.pretraining.text import beginning
from bert_training.pretraining.tokenizer import check_borders_of_words, check_losses, ideographs_apart, shares
from tests.helpers.small_corpora import make_tokenizer
from tokenization import build_tokenizer
from tokenization.errors import UserError
from tokenization.train_wordpiece import train_wordpiece

FOREIGN = ["เพราะ ให้ สูตร. การ ถือ ว่า.", "คน ควร. ให้."]


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def arguments(**flags):
    return PretrainingArguments(output_dir="out", **flags)


def checked_losses(tokenizer, parts: dict[str, list[str]], **flags) -> list[str]:
    """What is said of texts, by their titles."""
    said = []
    run = SimpleNamespace(args=arguments(**flags), say=said.append)
    documents = {name: SimpleNamespace(lines=lambda lines=lines: iter(lines)) for name, lines in parts.items()}
    check_losses(run, tokenizer, SimpleNamespace(parts=lambda: documents))
    return said


def test_what_is_lost_of_every_text_is_said_with_a_remedy_that_suits_the_flags(tokenizer):
    known, foreign = ["the dog sat."] * 9, ["the dog में sat.", None] * 9
    assert checked_losses(tokenizer, {"train text": known, "held-out text": known}) == []
    unknown, accents = checked_losses(tokenizer, {"train text": known, "held-out text": foreign}, tokenizer_name="t")
    assert unknown.startswith("warning: held-out text: 25.0% of the characters are in [UNK]") and "learn a" in unknown
    assert "Devanagari: में becomes म" in accents
    for flags, remedy in (({"model_name_or_path": "m"}, "begin with a model of this"), ({}, "a larger --vocab_size")):
        assert remedy in checked_losses(tokenizer, {"train text": foreign}, **flags)[0]


def test_text_of_which_nothing_is_left_is_refused(tokenizer):
    with pytest.raises(UserError, match=r"^held-out text: expected text that the tokenizer knows.*--limit_alphabet"):
        checked_losses(tokenizer, {"train text": ["the dog"], "held-out text": FOREIGN})


def test_the_beginning_of_a_text_ends_behind_so_many_characters():
    assert list(beginning(["ab", None, "cd", "ef"], 3)) == ["ab", "", "cd"]
    assert list(beginning(["ab", None, "cd", "ef"], 99)) == ["ab", "", "cd", "ef"]


# --- words in scripts that have no spaces between words ---------------------------------------------------------------


CHINESE = "南北心工作次数红木了上门。"
WORDS = ["南北", "心", "工作", "次数", "红木", "了", "上门", "。"]
THAI = "เพราะให้เอเชียสูตรหรือการถือว่า"
ENGLISH = "the old house ."


def test_the_shares_worked_by_hand():
    """12 of the 13 characters are ideographs; 31 of Thai and 12 of English; segmented text has no long words."""
    assert shares([CHINESE], apart=True) == (12 / 13, 0)
    assert shares([f"{THAI} {ENGLISH}"], apart=True) == (0, len(THAI) / (len(THAI) + 12))
    assert shares([CHINESE * 3], apart=False) == (0, 0)  # punctuation ends a word, too
    assert shares([CHINESE[:-1] * 2], apart=False) == (0, 1)
    assert shares([" ".join(WORDS), "เพราะ ให้ เอเชีย"], apart=False) == (0, 0)
    assert shares([ENGLISH, "schöne Häuser " + "x" * 50], apart=True) == (0, 0)


def test_segmented_chinese_is_masked_word_by_word(tmp_path):
    """The way that the messages advise: spaces between words, and a vocabulary learnt without ideographs apart."""
    text = " ".join(WORDS)
    flags = {"layout": "compact", "output_dir": tmp_path, "min_frequency": 99}
    train_wordpiece(iter([text] * 5), 60, **flags, tokenize_chinese_chars=False)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert not ideographs_apart(tokenizer) and ideographs_apart(build_tokenizer(["[UNK]"]))
    assert tokenizer.tokenize("工作 心") == ["工", "##作", "心"]
    rule = masking_rule(tokenizer, MaskSettings(whole_word_mask=True))
    ids = np.array([tokenizer(text)["input_ids"]] * 200)
    _, labels = mask_batch(rule, ids, seed=1, epoch=0, index=np.arange(200))
    pieces = tokenizer.convert_ids_to_tokens(ids[0])
    inside = [place for place, piece in enumerate(pieces) if piece.startswith("##")]
    assert len(inside) == 5
    for place in inside:
        assert np.array_equal(labels[:, place] >= 0, labels[:, place - 1] >= 0) and (labels[:, place] >= 0).any()


def checked(shares: tuple[float, float], monkeypatch, **flags) -> list[str]:
    """What is said of a text with these shares of single ideographs and of words that are too long."""
    said = []
    monkeypatch.setattr(tokenizer_module, "shares", lambda *given: shares)
    given = {"whole_word_mask": True, "tokenizer_name": None, "resume_from_checkpoint": None} | flags
    args = SimpleNamespace(**given, choices_of_recipe=dict)
    text = SimpleNamespace(name="a.txt", lines=lambda: iter([]))
    check_borders_of_words(SimpleNamespace(args=args, say=said.append), text)
    return said


def test_half_of_a_text_without_borders_of_words_is_refused_and_a_hundredth_is_said(monkeypatch):
    for found in ((0.5, 0.0), (0.0, 0.5)):
        with pytest.raises(UserError, match=r"--whole_word_mask: 50\.0% "):
            checked(found, monkeypatch)
        checked(found, monkeypatch, resume_from_checkpoint="auto")
    assert checked((0.0099, 0.0099), monkeypatch) == []
    for found in ((0.01, 0.0), (0.0, 0.01)):
        (line,) = checked(found, monkeypatch)
        assert line.startswith("warning: --whole_word_mask: 1.0% ")


def test_a_word_of_20_characters_without_a_space_is_one_and_one_of_21_is_not():
    assert tokenizer_module.shares(["ก" * 20], True)[1] == 0 and tokenizer_module.shares(["ก" * 21], True)[1] == 1
