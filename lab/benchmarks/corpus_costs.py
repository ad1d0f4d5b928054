"""What a text of any size costs by docs/scaling.md: time and disk of its vocabulary and its corpus.

Every time is an amount of text divided by a rate, which is measured on this machine in a few seconds:

    vocabulary   words / (words a second that one core counts * cores)
    corpus       words / (words a second that one core builds * cores); disk: 2 or 4 bytes a token, 8 a sentence

corpus_scale.py compares these predictions with what really happens.
"""

import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bert_training.pretraining.build_corpus import build_corpus
from tokenization.bert_tokenizer import build_tokenizer
from tokenization.train_wordpiece import count_words, train_wordpiece

SAMPLE_WORDS = 200_000
PIECES = 4_000  # of the vocabulary that is learnt from the sample
ROWS = 30522  # of Google's English vocabulary
# What printed English is like, with Google's vocabulary.
PIECES_A_WORD, PIECES_A_SENTENCE = 1.3, 25.0


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
