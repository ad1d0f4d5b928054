"""lab/benchmarks/corpus_costs.py: the formula, by hand and against real files."""

import numpy as np
import pytest

from bert_training.pretraining.build_corpus import build_corpus
from lab.benchmarks import corpus_costs
from lab.benchmarks.corpus_costs import Rates, costs_of
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
