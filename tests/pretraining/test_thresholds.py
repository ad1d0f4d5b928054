"""Shares from which a pre-training warns or refuses: just below nothing is said, from there on it is."""

from types import SimpleNamespace

import pytest

from bert_training.pretraining import data
from bert_training.pretraining import tokenizer as word_borders
from bert_training.pretraining.data import record_used_tokens
from bert_training.pretraining.tokenizer import check_borders_of_words
from tokenization.errors import UserError


@pytest.mark.parametrize(("share", "warned"), [(0.79, True), (0.8, False)])
def test_an_epoch_that_uses_less_than_four_fifths_of_the_text(monkeypatch, share, warned):
    said = []
    monkeypatch.setattr(data, "used_share", lambda *sources: share)
    monkeypatch.setattr(data, "low_share", lambda *given: "warning")
    run = SimpleNamespace(is_main=True, say=said.append, add_facts=lambda **facts: None)
    record_used_tokens(run, {32: [SimpleNamespace(without_pairs=[])]})
    assert ("warning" in said) == warned


def checked(shares: tuple[float, float], monkeypatch, **flags) -> list[str]:
    """What is said of a text with these shares of single ideographs and of words that are too long."""
    said = []
    monkeypatch.setattr(word_borders, "shares", lambda *given: shares)
    given = {"whole_word_mask": True, "tokenizer_name": None, "resume_from_checkpoint": None} | flags
    args = SimpleNamespace(**given, choices_of_recipe=dict)
    text = SimpleNamespace(name="a.txt", lines=lambda: iter([]))
    check_borders_of_words(SimpleNamespace(args=args, say=said.append), text)
    return said


def test_half_of_a_text_without_borders_of_words_is_refused_and_a_hundredth_is_said(monkeypatch):
    for shares in ((0.5, 0.0), (0.0, 0.5)):
        with pytest.raises(UserError, match=r"--whole_word_mask: 50\.0% "):
            checked(shares, monkeypatch)
        checked(shares, monkeypatch, resume_from_checkpoint="auto")
    assert checked((0.49, 0.0099), monkeypatch) == []
    (line,) = checked((0.0, 0.01), monkeypatch)
    assert line.startswith("warning: --whole_word_mask: 1.0% ")


def test_a_word_of_20_characters_without_a_space_is_one_and_one_of_21_is_not():
    assert word_borders.shares(["ก" * 20], True)[1] == 0 and word_borders.shares(["ก" * 21], True)[1] == 1
