"""What a text of any size costs: time and disk of its vocabulary and its corpus, and the time of its training.

Every time is an amount of text divided by a rate, which is measured on this machine in a few seconds, or given:

    vocabulary   words / (words a second that one core counts * cores)
    corpus       words / (words a second that one core builds * cores); disk: 2 or 4 bytes a token, 8 a sentence
    training     tokens * epochs / (tokens a second of all devices)

lab/benchmarks/corpus_scale.py compares these predictions with what really happens.
"""

import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bert_training.builtin_data import documentation
from bert_training.pretraining.build_corpus import build_corpus
from tokenization.bert_tokenizer import build_tokenizer
from tokenization.train_wordpiece import count_words, train_wordpiece

SAMPLE_WORDS = 200_000
PIECES = 4_000  # of the vocabulary that is learnt from the sample
ROWS = 30522  # of Google's English vocabulary
# What printed English is like, with Google's vocabulary.
BYTES_A_WORD, PIECES_A_WORD, PIECES_A_SENTENCE = 6.0, 1.3, 25.0


class Rates(NamedTuple):
    """Words a second that one core counts and builds, and what the measured text is like."""

    counting: float
    building: float
    pieces_a_word: float = PIECES_A_WORD
    pieces_a_sentence: float = PIECES_A_SENTENCE


class Costs(NamedTuple):
    """What a text costs; times in seconds, sizes in bytes."""

    tokens: float
    vocabulary_seconds: float
    corpus_seconds: float
    corpus_bytes: float


def costs_of(words: float, rates: Rates, cores: int = 1, vocab_size: int = ROWS) -> Costs:
    """The costs of a text of so many words, by the formula at the head of this file."""
    tokens = words * rates.pieces_a_word
    size = tokens * ((2 if vocab_size <= 1 << 16 else 4) + 8 / rates.pieces_a_sentence)
    return Costs(tokens, words / (rates.counting * cores), words / (rates.building * cores), size)


def measured_rates(documents: Iterable[Sequence[str]]) -> Rates:
    """The rates for the first words of ``documents``, each a list of paragraphs; takes a few seconds."""
    chosen, words = list[list[str]](), 0
    for document in documents:
        chosen.append(list(document))
        words += sum(len(line.split()) for line in document)
        if words >= SAMPLE_WORDS:
            break
    lines = [line for document in chosen for line in document]
    started = time.perf_counter()
    count_words(lines)
    counted = time.perf_counter() - started
    tokenizer = build_tokenizer(train_wordpiece(lines, PIECES, progress=False))
    with tempfile.TemporaryDirectory() as draft:
        started = time.perf_counter()
        corpus = build_corpus(chosen, tokenizer, Path(draft, "corpus"))
        built, tokens, sentences = time.perf_counter() - started, corpus.num_tokens, corpus.num_sentences
        del corpus
    return Rates(words / counted, words / built, tokens / words, tokens / sentences)


def costs_text(
    words: float,
    cores: int,
    vocab_size: int,
    epochs: float = 1.0,
    building: float | None = None,
    training: float | None = None,
) -> str:
    """The costs of English as a table, with the rates and the assumptions behind them.

    Args:
        building: words a second that one core builds, if they are given; otherwise they are measured.
        training: tokens a second that all devices train on.
    """
    measured = measured_rates(documentation.documents())
    rates = Rates(measured.counting, building or measured.building)
    costs = costs_of(words, rates, cores, vocab_size)
    trained = "give --train_tokens_per_second; bert-repro plan --hours prints it"
    if training:
        trained = f"{_time(costs.tokens * epochs / training)} at the speed that was given"
    return (
        f"{words:,.0f} words: about {_bytes(words * BYTES_A_WORD)}, {costs.tokens:,.0f} tokens\n\n"
        f"vocabulary  {_time(costs.vocabulary_seconds)}; a sample of a billion words gives nearly the same\n"
        f"corpus      {_time(costs.corpus_seconds)}; {_bytes(costs.corpus_bytes)} on disk\n"
        f"training    {trained}\n\n"
        f"{cores} core(s), each with {rates.counting:,.0f} words/s counted and {rates.building:,.0f} words/s built"
        f"{'' if building else ', measured on the built-in corpus'}. Assumed: {BYTES_A_WORD:g} bytes and "
        f"{PIECES_A_WORD:g} pieces a word, {PIECES_A_SENTENCE:g} pieces a sentence."
    )


def _time(seconds: float) -> str:
    for name, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {name}"
    return f"{seconds:,.1f} seconds"


def _bytes(size: float) -> str:
    for name, unit in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size / 1e3:,.1f} kB"
