"""What the audit of the data and the diagnosis of a plateau both measure: copies in the corpus."""

import hashlib
from collections import Counter
from dataclasses import dataclass

import numpy as np

from bert_training.pretraining.corpus import Corpus

_SAMPLE = 200_000  # the largest number of documents or sentences that is inspected


@dataclass(frozen=True)
class Measurement:
    """What was measured: its name, the measurement in words, and whether the measurement is good."""

    name: str
    text: str
    good: bool


def repeated_documents(corpus: Corpus) -> float:
    """The share of the documents of the first shard that are copies of an earlier one."""
    shard = corpus.shards[0]
    return repeated_share(shard.tokens, shard.sentences[shard.documents], 1)


def repeated_sentences(corpus: Corpus) -> float:
    """The share of the sentences of 8 tokens or more of the first shard that are copies of an earlier one."""
    return repeated_share(corpus.shards[0].tokens, corpus.shards[0].sentences, 8)


def boilerplate(corpus: Corpus, least: int) -> float:
    """The share of the sentences that occur in at least ``least`` documents and are not the first of their kind.

    ``--deduplicate lines`` asks the same of the lines of the text, which a corpus no longer has. Among the first
    `_SAMPLE` sentences.
    """
    shard = corpus.shards[0]
    offsets = shard.sentences[: _SAMPLE + 1].tolist()
    documents = np.searchsorted(shard.documents, np.arange(len(offsets) - 1), side="right").tolist()
    last: dict[bytes, int] = {}  # the last document with a sentence
    counts: Counter[bytes] = Counter()
    places: Counter[bytes] = Counter()
    for start, stop, document in zip(offsets[:-1], offsets[1:], documents):
        sentence = hashlib.blake2b(shard.tokens[start:stop].tobytes(), digest_size=8).digest()
        places[sentence] += 1
        counts[sentence] += last.get(sentence) != document
        last[sentence] = document
    later = sum(places[sentence] - 1 for sentence, count in counts.items() if count >= least)
    return later / max(1, len(documents))


def repeated_share(tokens: np.ndarray, offsets: np.ndarray, shortest: int) -> float:
    """The share of spans that equal an earlier one, among the first `_SAMPLE` spans.

    Args:
        offsets: span i consists of the tokens offsets[i] to offsets[i + 1] - 1.
        shortest: spans of fewer tokens are ignored.
    """
    seen, count = set(), 0
    for start, stop in zip(offsets[:_SAMPLE].tolist(), offsets[1 : _SAMPLE + 1].tolist()):
        if stop - start >= shortest:
            count += 1
            seen.add(hashlib.blake2b(tokens[start:stop].tobytes(), digest_size=8).digest())
    return 1 - len(seen) / count if count else 0.0
