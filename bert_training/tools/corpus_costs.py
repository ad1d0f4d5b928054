"""What a text of any size costs: time, disk, memory and open files of its vocabulary, its corpus and an epoch.

The model of cost. Every time is a number of words, tokens or bytes divided by a rate that is measured on this machine
in a few seconds, on the built-in corpus, or that is given:

    vocabulary   words / (rate of counting with one core * cores); memory for every distinct word, of which a text of W
                 words has K * W**B (Heaps' law; K and B are fitted to the sample)
    corpus       words / (rate of the builder with one core * cores); disk: 2 or 4 bytes a token, 8 a sentence, 8 a
                 document, 8 a row of the vocabulary; memory does not grow with the text
    start        bytes of the corpus / rate of SHA-256, because every start of a training verifies the files; above
                 ``WHOLE_TOKENS``, also a plan of four samples of each section (``pretraining/sections.py``)
    epoch        the balance of the labels, once a section, + tokens / rate of planning; memory: 33 bytes an instance
                 and 8 a sentence, of the whole text or, above ``WHOLE_TOKENS``, of two sections
    training     tokens * epochs / rate of the training, which must be given

lab/benchmarks/corpus_scale.py compares these predictions with what really happens.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from bert_training.builtin_data import documentation
from bert_training.files.cores import usable_cores
from bert_training.files.hashing import sha256
from bert_training.files.open_files import ALONE, EACH
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.sections import SECTION_TOKENS, WHOLE_TOKENS
from bert_training.pretraining.segments import PLANNERS, EpochPlan
from tokenization.bert_tokenizer import build_tokenizer
from tokenization.train_wordpiece import count_words, train_wordpiece

SAMPLE_WORDS = 200_000
PIECES = 4_000  # of the vocabulary that is learnt from the sample
DISTINCT_WORD_BYTES = 200  # of a string and its entry in a dictionary
PLAN_BYTES = 33  # of an instance: 25 in the plan, 8 in the order
LENGTH = 128
ROWS = 30522  # of Google's English vocabulary
CORPUS_FILES = ("tokens.bin", "sentences.bin", "documents.bin", "unigrams.bin", "manifest.json")
MAPPED_FILES = 4  # which every process keeps open
Documents = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Rates:
    """How fast this machine is, with one core, and what the text is like.

    Attributes:
        counting: words a second that are counted for a vocabulary.
        building: words a second that become a corpus.
        hashing: bytes a second of SHA-256.
        planning: tokens a second that are planned and shuffled.
        balancing: seconds that the balance of the labels takes before, for a text of any size.
        heaps: (K, B) of Heaps' law.
        bytes_per_word: of the text in UTF-8.
        tokens_per_word: pieces of the vocabulary.
        tokens_per_sentence: pieces.
        sentences_per_document: of the text.
        tokens_per_instance: tokens of the text for each instance of an epoch.
    """

    counting: float
    building: float
    hashing: float
    planning: float
    balancing: float
    heaps: tuple[float, float]
    bytes_per_word: float
    tokens_per_word: float
    tokens_per_sentence: float
    sentences_per_document: float
    tokens_per_instance: float


# What printed English is like, with Google's vocabulary. The built-in corpus, of documentation, has shorter sentences
# and more pieces a word.
ENGLISH: dict[str, Any] = {
    "bytes_per_word": 6.0,
    "tokens_per_word": 1.3,
    "tokens_per_sentence": 25.0,
    "sentences_per_document": 20.0,
}


@dataclass(frozen=True)
class Costs:
    """What a text costs; times in seconds, sizes in bytes."""

    tokens: int
    sentences: int
    documents: int
    instances: int
    sections: int
    text_bytes: int
    vocabulary_seconds: float
    vocabulary_memory: int
    corpus_seconds: float
    corpus_bytes: int
    start_seconds: float
    epoch_seconds: float
    epoch_memory: int
    training_seconds: float | None


def costs_of(
    words: float,
    rates: Rates,
    cores: int = 1,
    vocab_size: int = ROWS,
    epochs: float = 1.0,
    training_rate: float | None = None,
) -> Costs:
    """The costs of a text of so many words, by the model at the head of this file.

    Args:
        words: words of the text.
        rates: of this machine and this text.
        cores: processes that count words and encode.
        vocab_size: rows of the vocabulary.
        epochs: of the training.
        training_rate: tokens a second that all devices together train on.
    """
    tokens = round(words * rates.tokens_per_word)
    sentences = round(tokens / rates.tokens_per_sentence)
    documents = max(1, round(sentences / rates.sentences_per_document))
    size = tokens * (2 if vocab_size <= 1 << 16 else 4) + 8 * (sentences + documents + 2 + vocab_size)
    sections = 1 if tokens <= WHOLE_TOKENS else round(tokens / SECTION_TOKENS)
    in_memory = min(1.0, 2 / sections)  # the share of the text whose plan is in memory, with that of the next section
    instances = round(tokens / rates.tokens_per_instance)
    samples = 0 if sections == 1 else 4 * sections * (1 << 17)  # tokens
    heaps, power = rates.heaps
    return Costs(
        tokens,
        sentences,
        documents,
        instances,
        sections,
        text_bytes=round(words * rates.bytes_per_word),
        vocabulary_seconds=words / (rates.counting * cores),
        vocabulary_memory=round(DISTINCT_WORD_BYTES * heaps * words**power),
        corpus_seconds=words / (rates.building * cores),
        corpus_bytes=size,
        start_seconds=size / rates.hashing + samples / rates.planning,
        epoch_seconds=rates.balancing * sections + tokens / rates.planning,
        epoch_memory=round(in_memory * (PLAN_BYTES * instances + 8 * sentences)),
        training_seconds=tokens * epochs / training_rate if training_rate else None,
    )


def measured_rates(documents: Documents, planned_sentences: int = 1 << 20) -> Rates:
    """Measure the rates with a part of ``documents``, in a few seconds, by one process.

    Args:
        documents: each a list of paragraphs.
        planned_sentences: the size of the made-up corpus that is planned.
    """
    documents = _first_words(documents, SAMPLE_WORDS)
    lines = [line for document in documents for line in document]
    words = sum(len(line.split()) for line in lines)
    counting, counted = _timed(lambda: count_words(lines))
    distinct = [len(count_words(lines[: len(lines) // 2])), len(counted)]
    half = sum(len(line.split()) for line in lines[: len(lines) // 2])
    power = float(np.log(distinct[1] / distinct[0]) / np.log(words / half))
    tokenizer = build_tokenizer(train_wordpiece(lines, PIECES, progress=False))
    with tempfile.TemporaryDirectory() as draft:
        building, corpus = _timed(lambda: build_corpus(documents, tokenizer, Path(draft, "corpus")))
        tokens, sentences, count = corpus.num_tokens, corpus.num_sentences, corpus.num_documents
        del corpus
        draft_block = Path(draft, "block")
        draft_block.write_bytes(bytes(1 << 26))
        hashing, _ = _timed(lambda: sha256(draft_block))
    made_up = _made_up_corpus(planned_sentences, round(tokens / sentences), max(2, round(sentences / count)))
    balancing, plan = _timed(lambda: PLANNERS["next_or_random"](made_up, 1, 10, LENGTH - 3, 0.1))
    planning, instances = _timed(lambda: _shuffled(plan(0)))
    return Rates(
        counting=words / counting,
        building=words / building,
        hashing=(1 << 26) / hashing,
        planning=made_up.num_tokens / planning,
        balancing=balancing,
        heaps=(distinct[1] / words**power, power),
        bytes_per_word=sum(len(line.encode()) + 1 for line in lines) / words,
        tokens_per_word=tokens / words,
        tokens_per_sentence=tokens / sentences,
        sentences_per_document=sentences / count,
        tokens_per_instance=made_up.num_tokens / instances,
    )


def _first_words(documents: Documents, words: int) -> list[list[str]]:
    chosen: list[list[str]] = []
    for document in documents:
        chosen.append(list(document))
        words -= sum(len(line.split()) for line in document)
        if words <= 0:
            break
    return chosen


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def _made_up_corpus(sentences: int, tokens: int, in_document: int) -> Any:
    """The offsets of sentences of half to one and a half times ``tokens``, in documents of ``in_document``."""
    lengths = np.random.default_rng(0).integers(max(1, tokens // 2), tokens + tokens // 2 + 1, sentences)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    documents = np.append(np.arange(0, sentences - 1, in_document), sentences)
    return SimpleNamespace(
        path=Path("made up"),
        sentences=offsets,
        documents=documents,
        num_sentences=sentences,
        num_documents=len(documents) - 1,
        num_tokens=int(offsets[-1]),
    )


def _shuffled(plan: EpochPlan) -> int:
    np.argsort(np.random.default_rng(0).integers(0, 1 << 62, len(plan)), kind="stable")
    return len(plan)


def costs_text(words: float, costs: Costs, rates: Rates, cores: int) -> str:
    """The costs as a table, with the rates and the assumptions behind them."""
    whole = costs.sections == 1
    plan = "of the whole text at once" if whole else f"of two of {costs.sections:,} sections"
    limit = "" if words <= 1e9 else "; a sample of a billion words gives nearly the same vocabulary"
    heaps = f"{rates.heaps[0]:.3g} * words**{rates.heaps[1]:.2f}"
    rows = [
        ("text", "", f"{_bytes(costs.text_bytes)}, {costs.tokens:,} tokens, {costs.sentences:,} sentences"),
        (
            "vocabulary",
            _time(costs.vocabulary_seconds),
            f"{cores} core(s); {_bytes(costs.vocabulary_memory)} of memory for distinct words ({heaps}){limit}",
        ),
        (
            "corpus",
            _time(costs.corpus_seconds),
            f"{cores} core(s); {_bytes(costs.corpus_bytes)} in {len(CORPUS_FILES)} files; memory does not grow",
        ),
        ("each start", _time(costs.start_seconds), "every process verifies the files" + ("" if whole else ", samples")),
        (
            "plan of an epoch",
            _time(costs.epoch_seconds),
            f"{costs.instances:,} instances of {LENGTH}; {_bytes(costs.epoch_memory)} in every process, {plan}",
        ),
        (
            "open files",
            "",
            f"{MAPPED_FILES} of each corpus in every process, of the {ALONE} and {EACH} a worker that a training has",
        ),
    ]
    if costs.training_seconds is None:
        rows.append(("training", "", "give --train_tokens_per_second; bert-repro plan --hours prints it"))
    else:
        rows.append(("training", _time(costs.training_seconds), "at the speed that was given"))
    width, times = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    lines = [f"{name:{width}}  {duration:>{times}}  {what}".rstrip() for name, duration, what in rows]
    return "\n".join([f"{words:,.0f} words", "", *lines])


def _rates_text(rates: Rates, source: str) -> str:
    return (
        f"rates of one core ({source}): {rates.counting:,.0f} words/s counted, {rates.building:,.0f} words/s built, "
        f"{rates.hashing / 1e6:,.0f} MB/s hashed, {rates.planning / 1e6:,.0f} million tokens/s planned\n"
        f"assumed: {rates.bytes_per_word:g} bytes and {rates.tokens_per_word:g} pieces a word, "
        f"{rates.tokens_per_sentence:g} pieces a sentence, {rates.sentences_per_document:g} sentences a document; "
        "all times grow with the text; all cores share the work on the vocabulary and on the corpus"
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


def print_costs(arguments: argparse.Namespace) -> None:
    """Print the costs that ``bert-repro plan --words`` asks for."""
    started = time.perf_counter()
    rates = replace(measured_rates(documentation.documents()), **ENGLISH)
    source = f"measured in {time.perf_counter() - started:.0f} seconds on the built-in corpus"
    if arguments.words_per_second:
        rates, source = replace(rates, building=arguments.words_per_second), source + "; words/s built: as given"
    cores = arguments.cores or usable_cores()
    costs = costs_of(
        arguments.words,
        rates,
        cores,
        ROWS if arguments.vocab_size is None else arguments.vocab_size,
        arguments.epochs,
        arguments.train_tokens_per_second,
    )
    print(f"{costs_text(arguments.words, costs, rates, cores)}\n\n{_rates_text(rates, source)}")
