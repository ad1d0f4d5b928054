"""The plan of an epoch: which spans of the corpus make up each training instance.

Pairs follow `create_instances_from_document` of google-research/bert: sentences are gathered until they fill
the target length, A gets the first few of them, B is the rest (IsNext) or a span of another document (NotNext);
in that case the rest is put back and starts the next instance, so no sentence is lost. Where it differs:

- Half of the labels are IsNext. Google's generator turns every chunk of one sentence into NotNext, which leaves
  34.3 % IsNext when each paragraph of Wikipedia is a document (length 128). Here a chunk has two sentences
  wherever its document still has two, and IsNext is drawn with the probability that brings the whole corpus to
  one half. That probability stays at or below 3/4, which is enough unless the corpus has one-sentence documents.
  Of those, so many sit out an epoch (others in each) that the labels balance.
- NotNext draws B from another document always.
- The short target length is drawn for each instance, not for each document.
- What is cut off a pair that is too long is split at a random point between front and back; Google tosses a
  coin for each token, which nearly always cuts both ends equally.

Everything is a hash of (seed, variant, document, step): no generator state, and numpy's version does not matter.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from training.pretraining.corpus import Corpus
from training.pretraining.masking import below, random_bits, uniform

IS_NEXT, NOT_NEXT = 0, 1
# Long documents are planned in pieces of so many sentences, so that all documents advance together in arrays.
_PIECE_SENTENCES = 1024
_BLOCK_SENTENCES = 1 << 20
_PILOT_SENTENCES = 200_000
_MAX_IS_NEXT = 0.75
_SHORT, _TARGET, _SPLIT, _LABEL, _DOCUMENT, _START, _CUT_A, _CUT_B, _KEEP = range(9)


@dataclass(frozen=True)
class Plan:
    """Token spans of every instance, (I) each: A starts at a_start and has a_length tokens, likewise B.

    Single-segment objectives have b_length 0 and label 0. sat_out: one-sentence chunks left out this time.
    """

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    label: np.ndarray
    sat_out: int = 0

    def __len__(self) -> int:
        return len(self.a_start)


def _pieces(corpus: Corpus, document: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(document, first sentence, end sentence) of the pieces of the given documents."""
    first, last = corpus.documents[document], corpus.documents[document + 1]
    counts = -(-(last - first) // _PIECE_SENTENCES)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    start = np.repeat(first, counts) + within * _PIECE_SENTENCES
    return np.repeat(document, counts), start, np.minimum(start + _PIECE_SENTENCES, np.repeat(last, counts))


def _blocks(corpus: Corpus) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The pieces of the whole corpus, about `_BLOCK_SENTENCES` at a time."""
    marks = np.arange(0, corpus.num_sentences, _BLOCK_SENTENCES)
    bounds = np.unique(np.append(np.searchsorted(corpus.documents, marks), corpus.num_documents))
    for first, last in itertools.pairwise(bounds):
        yield _pieces(corpus, np.arange(first, last))


def _targets(base: np.ndarray, capacity: int, short_seq_prob: float) -> np.ndarray:
    short = uniform(random_bits(base, _SHORT)) < short_seq_prob
    return np.where(short, 2 + below(random_bits(base, _TARGET), capacity - 1), capacity)


def _chunk_pairs(
    corpus: Corpus,
    pieces: tuple[np.ndarray, np.ndarray, np.ndarray],
    seed: int,
    variant: int | np.ndarray,
    capacity: int,
    short_seq_prob: float,
    is_next: float,
) -> tuple[np.ndarray, ...]:
    """Chunks of the pieces, (I) each: (random state, document, first, split, stop, target, not_next, forced).

    A is the sentences [first, split), the rest of the chunk is [split, stop); forced: it has one sentence.
    """
    document, position, end = pieces
    offsets = corpus.sentences
    # The first sentence names a piece for good: it does not depend on blocks or on the pilot's sample.
    state = random_bits(seed, variant, position)
    columns: list[tuple[np.ndarray, ...]] = []
    step = 0
    while len(position):
        base = random_bits(state, step)
        target = _targets(base, capacity, short_seq_prob)
        stop = np.searchsorted(offsets, offsets[position] + target, side="left")
        stop = np.minimum(np.maximum(stop, position + 2), end)
        count = stop - position
        split = position + 1 + below(random_bits(base, _SPLIT), np.maximum(count - 1, 1))
        forced = count == 1
        not_next = forced | (uniform(random_bits(base, _LABEL)) >= is_next)
        columns.append((base, document, position, split, stop, target, not_next, forced))
        position = np.where(not_next, split, stop)
        active = position < end
        document, position, end, state = (x[active] for x in (document, position, end, state))
        step += 1
    return tuple(np.concatenate(column) for column in zip(*columns, strict=True))


def label_balance(
    corpus: Corpus, seed: int, variants: int, capacity: int, short_seq_prob: float
) -> tuple[float, float]:
    """(probability of IsNext where there is a choice, share of one-sentence chunks to keep).

    Tried out on the plans of all variants, of a sample of them when the corpus is large.
    Raises ValueError when there are no pairs: one document, or none of two sentences.
    """
    if corpus.num_documents < 2 or not np.any(np.diff(corpus.documents) > 1):
        raise ValueError(
            f"{corpus.path}: next-sentence prediction needs at least 2 documents and a document of 2 sentences, "
            "got none such; add text, put blank lines between documents, or use the objective mlm"
        )
    stride = max(1, corpus.num_sentences * variants // _PILOT_SENTENCES)
    pieces = _pieces(corpus, np.arange(0, corpus.num_documents, stride))
    # Few but long documents: a stride over documents alone would still be a large sample.
    stride = max(1, int((pieces[2] - pieces[1]).sum()) * variants // _PILOT_SENTENCES)
    sample = tuple(np.tile(column[::stride], variants) for column in pieces)
    variant = np.repeat(np.arange(variants), len(sample[0]) // variants)

    def surplus(is_next: float) -> tuple[int, int]:
        """(IsNext minus drawn NotNext, one-sentence chunks)"""
        chunks = _chunk_pairs(corpus, sample, seed, variant, capacity, short_seq_prob, is_next)
        not_next, forced = chunks[6], chunks[7]
        return int((~not_next).sum() - (not_next & ~forced).sum()), int(forced.sum())

    high, (following, forced) = _MAX_IS_NEXT, surplus(_MAX_IS_NEXT)
    if following < forced:
        return high, max(following, 0) / forced
    low, above = 0.5, following - forced
    following, forced = surplus(low)
    below_half = following - forced
    for _ in range(4):  # the surplus is nearly linear: false position gets there at once
        if below_half >= 0 or above <= 0:
            break
        middle = low + (high - low) * below_half / (below_half - above)
        following, forced = surplus(middle)
        if following < forced:
            low, below_half = middle, following - forced
        else:
            high, above = middle, following - forced
    return (low if -below_half < above else high), 1.0


def plan_pairs(
    corpus: Corpus, seed: int, variant: int, capacity: int, short_seq_prob: float, balance: tuple[float, float]
) -> Plan:
    """Plan A/B pairs of at most `capacity` tokens over the whole corpus; `balance` is of `label_balance`."""
    is_next, keep_forced = balance
    plans, sat_out = [], 0
    for pieces in _blocks(corpus):
        chunks = _chunk_pairs(corpus, pieces, seed, variant, capacity, short_seq_prob, is_next)
        kept = ~chunks[7] | (uniform(random_bits(chunks[0], _KEEP)) < keep_forced)
        sat_out += int((~kept).sum())
        plans.append(_spans(corpus, tuple(column[kept] for column in chunks), capacity))
    return _joined(plans, sat_out)


def _spans(corpus: Corpus, chunks: tuple[np.ndarray, ...], capacity: int) -> Plan:
    """Token spans for chunks: B is looked up or drawn, and both are cut to `capacity` together."""
    base, document, first, split, stop, target, not_next, _ = chunks
    offsets = corpus.sentences
    a_start, a_end = offsets[first], offsets[split]
    other = below(random_bits(base, _DOCUMENT), corpus.num_documents - 1)
    other += other >= document
    other_first, other_end = corpus.documents[other], corpus.documents[other + 1]
    start = other_first + below(random_bits(base, _START), other_end - other_first)
    wanted = np.maximum(target - (a_end - a_start), 1)
    end = np.minimum(np.searchsorted(offsets, offsets[start] + wanted, side="left"), other_end)
    b_start = np.where(not_next, offsets[start], a_end)
    b_end = np.where(not_next, offsets[end], offsets[stop])

    a_length, b_length = cut_lengths(a_end - a_start, b_end - b_start, capacity)
    a_start = a_start + below(random_bits(base, _CUT_A), a_end - a_start - a_length + 1)
    b_start = b_start + below(random_bits(base, _CUT_B), b_end - b_start - b_length + 1)
    label = np.where(not_next, NOT_NEXT, IS_NEXT).astype(np.int8)
    return Plan(a_start, a_length.astype(np.int32), b_start, b_length.astype(np.int32), label)


def cut_lengths(a: np.ndarray, b: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths after Google's `truncate_seq_pair`: the longer one gives up tokens until both fit, B on a tie."""
    half = capacity // 2
    long_a, long_b = a > capacity - half, b > half
    cut_a = np.where(long_b, capacity - half, capacity - b)
    cut_b = np.where(long_a, half, capacity - a)
    fits = a + b <= capacity
    return np.where(fits | ~long_a, a, cut_a), np.where(fits | ~long_b, b, cut_b)


def plan_packed(corpus: Corpus, seed: int, variant: int, capacity: int, short_seq_prob: float) -> Plan:
    """Plan single segments of at most `capacity` tokens: whole sentences of one document, packed.

    Segments cross sentences, never documents. A sentence longer than the target is continued in the next
    segment, so every token of the corpus is in exactly one instance.
    """
    offsets = corpus.sentences
    plans = []
    for _, first, last in _blocks(corpus):
        state = random_bits(seed, variant, first)
        position, end = offsets[first], offsets[last]
        starts, lengths, step = [], [], 0
        while len(position):
            limit = position + _targets(random_bits(state, step), capacity, short_seq_prob)
            whole = offsets[np.searchsorted(offsets, limit, side="right") - 1]
            stop = np.minimum(np.where(whole > position, whole, limit), end)
            starts.append(position)
            lengths.append(stop - position)
            active = stop < end
            position, end, state = stop[active], end[active], state[active]
            step += 1
        start, length = np.concatenate(starts), np.concatenate(lengths).astype(np.int32)
        plans.append(Plan(start, length, start + length, np.zeros_like(length), np.zeros(len(start), np.int8)))
    return _joined(plans, 0)


def _joined(plans: list[Plan], sat_out: int) -> Plan:
    names = ("a_start", "a_length", "b_start", "b_length", "label")
    return Plan(*(np.concatenate([getattr(plan, name) for plan in plans]) for name in names), sat_out)
