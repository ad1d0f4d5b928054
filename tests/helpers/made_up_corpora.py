"""Corpora without text: only the offsets of their sentences and documents, which are all that a plan of an epoch needs.

A plan must stay what it is, because a run that is resumed goes on with it. Therefore `hash_of` hashes every number of a
plan, and tests/pretraining/golden_plans.json has the hashes that the first implementation gave.
"""

import hashlib
from pathlib import Path

import numpy as np

from bert_training.pretraining.corpus import Offsets
from bert_training.pretraining.hashed_random import below, random_bits


def offsets(lengths: np.ndarray, first: int = 0) -> np.ndarray:
    return first + np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def made_up(documents: int, sentences: tuple[int, int], tokens: tuple[int, int], first: int = 0) -> Offsets:
    """A corpus with documents of `sentences` and sentences of `tokens`, from the first to below the second number."""
    in_document = sentences[0] + below(random_bits(1, np.arange(documents)), sentences[1] - sentences[0])
    count = int(in_document.sum())
    lengths = tokens[0] + below(random_bits(2, np.arange(count)), tokens[1] - tokens[0])
    starts, borders = offsets(lengths, first), offsets(in_document)
    return Offsets(Path("made up"), starts, borders)


# Of each, the smallest and the largest number of sentences in a document and of tokens in a sentence.
CORPORA = {
    "prose": (400, (1, 60), (3, 40)),
    "paragraphs": (1500, (1, 6), (5, 60)),
    "lonely": (2000, (1, 3), (5, 30)),
    "long sentences": (60, (1, 30), (1, 900)),
    "long documents": (4, (900, 4000), (3, 40)),
    "single tokens": (50, (1, 400), (1, 2)),
    "many": (9000, (1, 60), (3, 40)),  # more sentences than the pilot of the balance takes
}
LARGE = {"two blocks": (40_000, (1, 70), (3, 40)), "one long": (2, (600_000, 600_001), (3, 40))}


def hash_of(plan) -> str:
    total = hashlib.sha256()
    for column in (plan.a_start, plan.a_length, plan.b_start, plan.b_length, plan.label):
        total.update(column.dtype.str.encode())
        total.update(np.ascontiguousarray(column).tobytes())
    total.update(repr((int(plan.used_tokens), int(plan.left_out), len(plan))).encode())
    return total.hexdigest()[:16]
