"""bert_tools/corpus_costs.py: the formula, by hand and against real files."""

import re

import numpy as np
import pytest

from bert_tools import budget, corpus_costs
from bert_tools.corpus_costs import Rates, costs_of
from bert_training.pretraining.build_corpus import build_corpus
from tokenization.bert_tokenizer import build_tokenizer
from tokenization.train_wordpiece import train_wordpiece


def test_costs_by_hand():
    """A billion words: 1.3e9 tokens, 5.2e7 sentences."""
    costs = costs_of(1e9, Rates(1e6, 1e5), cores=4)
    assert costs.tokens == 1.3e9 and (costs.vocabulary_seconds, costs.corpus_seconds) == (250.0, 2500.0)
    assert costs.corpus_bytes == pytest.approx(2 * 1.3e9 + 8 * 5.2e7)
    assert costs_of(1e9, Rates(1e6, 1e5), vocab_size=70_000).corpus_bytes == pytest.approx(4 * 1.3e9 + 8 * 5.2e7)


def test_a_real_corpus_has_the_predicted_size(tmp_path, monkeypatch):
    """Rates of this text and a vocabulary from it; the times are only asked to be times."""
    monkeypatch.setattr(corpus_costs, "SAMPLE_WORDS", 4_000)
    monkeypatch.setattr(corpus_costs, "PIECES", 300)
    draw, words = np.random.default_rng(0), [f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
    documents = [[" ".join(draw.choice(words, 12)) + "." for _ in range(int(draw.integers(1, 12)))] for _ in range(60)]
    rates = corpus_costs.measured_rates(documents)
    assert min(rates.counting, rates.building) > 0
    lines = [line for document in documents for line in document]
    tokenizer = build_tokenizer(train_wordpiece(lines, 300, progress=False))
    corpus = build_corpus(documents, tokenizer, tmp_path / "corpus")
    costs = costs_of(12 * len(lines), rates, vocab_size=len(tokenizer))
    assert costs.tokens == pytest.approx(corpus.num_tokens, rel=0.05)
    assert rates.pieces_a_sentence == pytest.approx(corpus.num_tokens / corpus.num_sentences, rel=0.05)
    size = sum((corpus.shards[0].path / name).stat().st_size for name in ("tokens.bin", "sentences.bin"))
    assert costs.corpus_bytes == pytest.approx(size, rel=0.05)


def test_the_command_prints_costs_and_where_they_come_from(monkeypatch, capsys):
    monkeypatch.setattr(corpus_costs, "measured_rates", lambda documents: Rates(1e6, 1e5, 9.0, 9.0))
    monkeypatch.setattr(corpus_costs.documentation, "documents", lambda: [["a b c."]])
    monkeypatch.setattr(budget, "usable_cores", lambda: 10)
    budget.main(["--words", "3.3e9", "--train_tokens_per_second", "1e6"])
    text = capsys.readouterr().out
    assert text.startswith("3,300,000,000 words") and "4,290,000,000 tokens" in text  # 1.3 pieces a word of English
    assert re.search(r"vocabulary +5\.5 minutes; ", text) and "10 core(s)" in text
    assert re.search(r"corpus +55\.0 minutes; 10\.0 GB on disk", text)
    assert re.search(r"training +71\.5 minutes at the speed", text) and "measured on the built-in corpus" in text
    budget.main(["--words", "3.3e9", "--cores", "5", "--words_per_second", "4e5"])
    text = capsys.readouterr().out
    assert re.search(r"corpus +27\.5 minutes", text) and "5 core(s)" in text and "measured" not in text
    assert "give --train_tokens_per_second" in text


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
