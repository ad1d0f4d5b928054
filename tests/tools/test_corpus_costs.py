"""bert_training/tools/corpus_costs.py: the model of cost, by hand and against real files."""

import re
from dataclasses import replace

import numpy as np
import pytest

from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.sections import SECTION_TOKENS, WHOLE_TOKENS
from bert_training.tools import budget, corpus_costs
from bert_training.tools.corpus_costs import CORPUS_FILES, MAPPED_FILES, Rates, costs_of, costs_text
from tokenization.bert_tokenizer import build_tokenizer
from tokenization.train_wordpiece import train_wordpiece

RATES = Rates(
    counting=1e6,
    building=1e5,
    hashing=1e9,
    planning=5e7,
    balancing=0.5,
    heaps=(10.0, 0.5),
    bytes_per_word=6.0,
    tokens_per_word=1.25,
    tokens_per_sentence=25.0,
    sentences_per_document=20.0,
    tokens_per_instance=100.0,
)


def test_costs_by_hand():
    """A billion words: 1.25e9 tokens, 5e7 sentences, 2.5e6 documents, 1.25e7 instances."""
    costs = costs_of(1e9, RATES, cores=4, epochs=2.0, training_rate=1e6)
    assert (costs.tokens, costs.sentences, costs.documents) == (1_250_000_000, 50_000_000, 2_500_000)
    assert (costs.instances, costs.sections, costs.text_bytes) == (12_500_000, 1, 6_000_000_000)
    assert costs.corpus_bytes == 2 * 1_250_000_000 + 8 * (50_000_001 + 2_500_001 + 30522)
    assert (costs.vocabulary_seconds, costs.corpus_seconds) == (250.0, 2500.0)
    assert costs.vocabulary_memory == round(200 * 10 * 1e9**0.5)
    assert costs.start_seconds == costs.corpus_bytes / 1e9 and costs.epoch_seconds == 25.5
    assert costs.epoch_memory == 33 * 12_500_000 + 8 * 50_000_000
    assert costs.training_seconds == 2500.0
    assert costs_of(1e9, RATES, vocab_size=70_000).corpus_bytes > costs.corpus_bytes + 2 * costs.tokens


def test_a_large_text_needs_the_memory_of_two_sections():
    costs = costs_of(1e12, RATES)
    assert costs.sections == round(1.25e12 / SECTION_TOKENS) and costs_of(WHOLE_TOKENS / 1.25, RATES).sections == 1
    whole = 33 * costs.instances + 8 * costs.sentences
    assert costs.epoch_memory == pytest.approx(2 * whole / costs.sections) and costs.epoch_memory < 2e9
    assert costs.start_seconds > costs.corpus_bytes / 1e9  # the samples
    assert costs.training_seconds is None
    text = costs_text(1e12, costs, RATES, 1)
    assert "of two of 1,164 sections" in text and "give --train_tokens_per_second" in text
    assert "of the whole text at once" in costs_text(1e9, costs_of(1e9, RATES), RATES, 1)


def test_a_real_corpus_has_the_predicted_size_and_files(tmp_path, monkeypatch):
    """Rates of this text and a vocabulary from it; the times are only asked to be times."""
    monkeypatch.setattr(corpus_costs, "SAMPLE_WORDS", 4_000)
    monkeypatch.setattr(corpus_costs, "PIECES", 300)
    draw, words = np.random.default_rng(0), [f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
    documents = [[" ".join(draw.choice(words, 12)) + "." for _ in range(int(draw.integers(1, 12)))] for _ in range(60)]
    rates = corpus_costs.measured_rates(documents, planned_sentences=20_000)
    assert min(rates.counting, rates.building, rates.hashing, rates.planning) > 0
    lines = [line for document in documents for line in document]
    tokenizer = build_tokenizer(train_wordpiece(lines, 300, progress=False))
    corpus = build_corpus(documents, tokenizer, tmp_path / "corpus")
    costs = costs_of(12 * len(lines), rates, vocab_size=len(tokenizer))
    assert {path.name for path in (tmp_path / "corpus").iterdir()} == {*CORPUS_FILES}
    assert len(corpus._files) == MAPPED_FILES
    size = sum(path.stat().st_size for path in (tmp_path / "corpus").glob("*.bin"))
    assert costs.corpus_bytes == pytest.approx(size, rel=0.03)
    assert costs.sentences == pytest.approx(corpus.num_sentences, rel=0.05)
    assert costs.text_bytes == pytest.approx(sum(len(line) + 1 for line in lines), rel=0.02)


def test_the_command_prints_costs_and_where_they_come_from(monkeypatch, capsys):
    monkeypatch.setattr(corpus_costs, "measured_rates", lambda documents: replace(RATES, tokens_per_word=9.0))
    monkeypatch.setattr(corpus_costs.documentation, "documents", lambda: [["a b c."]])
    words = ["--words", "3.3e9", "--cores", "10", "--train_tokens_per_second", "1e6", "--words_per_second", "2e5"]
    budget.main(words)
    text = capsys.readouterr().out
    assert text.startswith("3,300,000,000 words\n") and "4,290,000,000 tokens" in text  # 1.3 pieces a word of English
    assert re.search(r"vocabulary +5\.5 minutes  10 core\(s\)", text)
    assert re.search(r"corpus +27\.5 minutes  10 core\(s\); 10\.\d GB in 5 files; memory does not grow", text)
    assert re.search(r"training +71\.5 minutes", text) and "200,000 words/s built" in text and "as given" in text
    assert "measured in 0 seconds on the built-in corpus" in text


def test_the_costs_are_those_of_the_cores_that_the_command_may_use(monkeypatch, capsys):
    monkeypatch.setattr(corpus_costs, "measured_rates", lambda documents: RATES)
    monkeypatch.setattr(corpus_costs.documentation, "documents", lambda: [["a b c."]])
    monkeypatch.setattr(corpus_costs, "usable_cores", lambda: 77)
    budget.main(["--words", "1e9"])
    assert "77 core(s)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--words", "nan"], "--words: expected a number above 0, got nan"),
        (["--words", "1e9", "--epochs", "-1"], "--epochs: expected a number above 0, got -1"),
        (["--hours", "0"], "--hours: expected a number above 0, got 0"),
        (["--cores", "4"], "one of the arguments --hours --words is required"),
    ],
)
def test_wrong_numbers_are_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        budget.main(words)
    assert message in capsys.readouterr().err
