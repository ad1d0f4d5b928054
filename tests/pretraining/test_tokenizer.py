"""bert_training/pretraining/tokenizer.py: what the tokenizer loses of the text, and what whole words are."""

from types import SimpleNamespace

import numpy as np
import pytest
from transformers import AutoTokenizer

from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining import tokenizer as tokenizer_module
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.masking import MaskSettings, mask_batch, masking_rule
from bert_training.pretraining.text import Corpora
from bert_training.pretraining.tokenizer import (
    check_borders_of_words,
    coverage_of_corpus,
    ideographs_apart,
    record_coverage,
    remedies,
    shares,
)
from tests.helpers.small_corpora import DOCUMENTS, make_tokenizer, random_documents
from tokenization import build_tokenizer
from tokenization.coverage import coverage
from tokenization.errors import UserError
from tokenization.train_wordpiece import train_wordpiece

FOREIGN = ["เพราะ ให้ สูตร. การ ถือ ว่า.", "คน ควร. ให้."]


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def arguments(**flags):
    return PretrainingArguments(output_dir="out", **flags)


def test_a_corpus_records_what_is_lost(tmp_path, tokenizer):
    documents = [*random_documents(30), FOREIGN, ["the dog में sat."]]
    corpus = build_corpus(documents, tokenizer, tmp_path / "c")
    lines = [line for document in documents for line in document]
    assert coverage_of_corpus(corpus, tokenizer) == coverage(tokenizer, lines)
    assert corpus.facts[0]["coverage"]["unknown_tokens"] == corpus.unigrams[tokenizer.unk_token_id] == 10
    assert corpus.facts[0]["coverage"]["stripped_characters"] > 6
    assert build_corpus(documents, tokenizer, tmp_path / "c").facts == corpus.facts


def test_the_remedy_suits_the_flags():
    assert remedies(arguments(model_name_or_path="m"))[0] == "begin with a model of this language"
    assert "no --tokenizer_name" in remedies(arguments(tokenizer_name="t"))[0]
    assert "--vocab_size" in remedies(arguments())[0]
    # A learnt vocabulary with free rows would not gain from a larger one.
    held_out = arguments(validation_file=["held.txt"], vocab_size=60)
    assert remedies(held_out, 50)[0] == "add text like it to --train_file"
    assert remedies(held_out, 60)[0].startswith("add text like it to --train_file, or give a larger --vocab_size, or")


def test_the_shares_are_recorded_printed_and_warned_of(tmp_path, tokenizer):
    train = build_corpus([*random_documents(3), FOREIGN, ["में"]], tokenizer, tmp_path / "train")
    held_out = build_corpus(DOCUMENTS, tokenizer, tmp_path / "held")
    said, facts = [], {}
    run = SimpleNamespace(
        args=arguments(tokenizer_name="t"),
        say=said.append,
        add_facts=facts.update,
        only_main=lambda work: work(),
    )
    record_coverage(run, tokenizer, Corpora([train], held_out, {}))
    assert facts["tokenizer"] == {"do_lower_case": True, "strip_accents": True}
    assert facts["coverage"]["train"] == train.facts[0]["coverage"]
    assert facts["coverage"]["held_out"]["unknown_tokens"] == 0
    assert said[0] == "the tokenizer is lower-cased and strips accents"
    assert said[1].startswith("train text: [UNK] is ") and said[-1].startswith("held-out text: [UNK] is 0.0%")
    unknown, accents = said[2:-1]
    assert unknown.startswith("warning: train text: [UNK] is ") and "learn a vocabulary" in unknown
    assert "Devanagari: में becomes म" in accents or "Thai" in accents


def test_text_of_which_nothing_is_left_is_refused(tmp_path, tokenizer):
    known, foreign = (
        build_corpus(DOCUMENTS, tokenizer, tmp_path / "a"),
        build_corpus([FOREIGN], tokenizer, tmp_path / "b"),
    )
    run = SimpleNamespace(args=arguments(), say=print, add_facts=lambda **facts: None, only_main=lambda work: work())
    for train, held_out, name in ((foreign, known, "train"), (known, foreign, "held-out")):
        with pytest.raises(
            ValueError, match=f"^{name} text: expected text that the tokenizer knows.*--limit_alphabet$"
        ):
            record_coverage(run, tokenizer, Corpora([train], held_out, {}))


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
