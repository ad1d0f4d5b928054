"""The plan of an epoch: the token spans of the corpus from which each training instance is made.

Pairs follow ``create_instances_from_document`` of google-research/bert. Sentences are gathered into a chunk until they
reach the target length. The first few of them are A. B is the rest (IsNext) or a span of another document (NotNext). In
the second case the rest goes back and starts the next chunk, so every sentence becomes part of an A or of a true B
(unless a chunk of one sentence is left out, or a pair is cut). There are five differences:

- Half of the labels are IsNext. Google's generator turns every chunk of one sentence into NotNext and tosses a fair
  coin for the others, which leaves 34.3 % IsNext when each paragraph of Wikipedia is a document (length 128).
  Here a chunk has at least two sentences unless only one is left in its stretch (see below), and IsNext is drawn with
  the probability p <= 3/4 that balances the corpus.
  If there are so many chunks of one sentence that NotNext still dominates, each epoch omits a random part of them.
- Documents are divided into stretches of 1,024 sentences, and no chunk crosses the border of a stretch. The last chunk
  of a stretch may therefore be shorter than its target, or have one sentence, although the document goes on.
- The B of NotNext always comes from another document.
- The short target length is drawn for each instance, not for each document.
- If a pair is too long, its segments lose tokens at both ends, and the cut is split between the ends at a uniformly
  random point. Google tosses a coin for each token, so nearly equal numbers are lost at both ends.

All random numbers are hashes of (seed, variant, first sentence, turn): there is no generator with a state, and the
plan does not depend on numpy's version.

Shapes: I instances or chunks, D documents, N stretches of documents.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bert_training.pretraining.corpus import Offsets
from bert_training.pretraining.hashed_random import below, random_bits, uniform
from tokenization.errors import UserError

IS_NEXT, NOT_NEXT = 0, 1
# Stretches of at most 1,024 sentences bound the passes of the vectorised loop.
_STRETCH_SENTENCES = 1024
_BLOCK_SENTENCES = 1 << 20  # bounds the memory of planning
_PILOT_SENTENCES = 200_000
_MAX_IS_NEXT = 0.75
# The purpose of a random draw: the last counter of `random_bits`.
_SHORT, _TARGET, _SPLIT, _LABEL, _DOCUMENT, _START, _CUT_A, _CUT_B, _KEEP, _SWAP, _PILOT = range(11)


@dataclass(frozen=True)
class EpochPlan:
    """Token spans of every instance of an epoch.

    Attributes:
        a_start: (I) where A begins in the tokens of the corpus.
        a_length: (I) the number of tokens of A.
        b_start: (I) where B begins.
        b_length: (I) the number of tokens of B; 0 for instances of a single segment.
        label: (I) the class of the pair, 0 or 1 (``PairTask.classes``); 0 for instances of a single segment.
        used_tokens: the number of tokens of the text that the epoch uses: those of every A and of every B that
            belongs to the same chunk. No token is counted twice.
        left_out: number of one-sentence chunks that are left out of this epoch.
    """

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    label: np.ndarray
    used_tokens: int
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.a_start)


_COLUMNS = ("a_start", "a_length", "b_start", "b_length", "label")

# From the number of a version of the segments to its plan.
Planner = Callable[[int], EpochPlan]


class LabelBalance(NamedTuple):
    """What makes half of the labels IsNext; see ``label_balance``.

    Attributes:
        is_next_prob: probability of IsNext for a chunk of two or more sentences.
        keep_forced_prob: probability that an epoch uses a chunk of one sentence, which can only be NotNext.
    """

    is_next_prob: float
    keep_forced_prob: float


_Spans = tuple[np.ndarray, np.ndarray]  # (I) first tokens, (I) the tokens after the last ones


class _Stretches(NamedTuple):
    """Runs of at most ``_STRETCH_SENTENCES`` sentences of one document, (N) each."""

    document: np.ndarray  # number of the document
    first: np.ndarray  # first sentence
    end: np.ndarray  # the sentence after the last one


class _Chunks(NamedTuple):
    """Runs of sentences that become one pair each, (I) each.

    A is the sentences first .. split - 1. The rest, split .. stop - 1, becomes B (IsNext) or starts the next chunk
    (NotNext).
    """

    bits: np.ndarray  # uint64, the seed of the chunk; every draw hashes it
    document: np.ndarray  # number of the document
    first: np.ndarray  # first sentence of A
    split: np.ndarray  # first sentence of the rest
    stop: np.ndarray  # the sentence after the last one of the rest
    target: np.ndarray  # wanted length of the pair in tokens
    not_next: np.ndarray  # bool, B comes from another document
    forced: np.ndarray  # bool, the chunk has one sentence and can only be NotNext


def _has_pairs(corpus: Offsets) -> bool:
    """Whether a document has two sentences; none is empty."""
    return corpus.num_sentences > corpus.num_documents


def _stretches(corpus: Offsets, document: np.ndarray) -> _Stretches:
    """The stretches of the documents with the given numbers (D)."""
    first, end = corpus.documents[document], corpus.documents[document + 1]
    counts = -(-(end - first) // _STRETCH_SENTENCES)  # (D) stretches of each document, rounded up
    # (N) the number of each stretch within its document: 0 .. count - 1 for every document, one after the other.
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    start = np.repeat(first, counts) + within * _STRETCH_SENTENCES
    return _Stretches(
        np.repeat(document, counts), start, np.minimum(start + _STRETCH_SENTENCES, np.repeat(end, counts))
    )


def _blocks(corpus: Offsets) -> Iterator[_Stretches]:
    """The stretches of the whole corpus, about ``_BLOCK_SENTENCES`` sentences at a time."""
    # sentences near which blocks begin
    marks = int(corpus.documents[0]) + np.arange(0, corpus.num_sentences, _BLOCK_SENTENCES)
    # The first document that begins at each mark or after it; a document longer than a block gives equal bounds.
    bounds = np.unique(np.append(np.searchsorted(corpus.documents, marks), corpus.num_documents))
    for first, last in itertools.pairwise(bounds):
        yield _stretches(corpus, np.arange(first, last))


def _targets(bits: np.ndarray, capacity: int, short_seq_prob: float) -> np.ndarray:
    """Wanted lengths in tokens: ``capacity``, or with probability ``short_seq_prob`` uniform from 2 to ``capacity``."""
    short = uniform(random_bits(bits, _SHORT)) < short_seq_prob
    return np.where(short, 2 + below(random_bits(bits, _TARGET), capacity - 1), capacity)


def _chunk_pairs(
    corpus: Offsets,
    stretches: _Stretches,
    seed: int,
    variant: int | np.ndarray,
    capacity: int,
    short_seq_prob: float,
    is_next_prob: float,
) -> _Chunks:
    """Gather the sentences of all stretches into chunks.

    Vectorised over stretches: pass n of the loop makes chunk n of every stretch. For one stretch it is this::

        while position < end:
            stop = position + 2  # at least two sentences, where two are left
            while stop < end and tokens(position, stop) < target:
                stop += 1
            stop = min(stop, end)
            split = any of position + 1 .. stop - 1  # A is position .. split - 1
            not_next = stop - position == 1 or uniform() >= is_next_prob
            position = split if not_next else stop  # for NotNext, the rest starts the next chunk

    Args:
        corpus: the corpus of the stretches.
        stretches: the stretches (N) to divide into chunks.
        seed: seed of all draws.
        variant: number of the version of the segments, or an array (N) with one for each stretch.
        capacity: the greatest number of tokens in a pair, special tokens not counted.
        short_seq_prob: share of the chunks with a random shorter target.
        is_next_prob: probability of IsNext for a chunk of two or more sentences.
    """
    document, position, end = stretches
    offsets = corpus.sentences
    # The state is seeded by the stretch's first sentence, so it does not depend on the size of the blocks or on the
    # sample that `label_balance` takes.
    state = random_bits(seed, variant, position)
    # Example: sentences of 5 tokens, position 0, target 12. The first three sentences reach the target, so stop is 3,
    # and split is 1 or 2. If it is 1, the next chunk begins at 3 for IsNext and at 1 for NotNext.
    turns: list[_Chunks] = []
    turn = 0
    while len(position):
        bits = random_bits(state, turn)
        target = _targets(bits, capacity, short_seq_prob)
        stop = np.searchsorted(offsets, offsets[position] + target, side="left")
        stop = np.minimum(np.maximum(stop, position + 2), end)
        count = stop - position
        split = position + 1 + below(random_bits(bits, _SPLIT), np.maximum(count - 1, 1))
        forced = count == 1
        not_next = forced | (uniform(random_bits(bits, _LABEL)) >= is_next_prob)
        turns.append(_Chunks(bits, document, position, split, stop, target, not_next, forced))
        position = np.where(not_next, split, stop)
        active = position < end
        document, position = document[active], position[active]
        end, state = end[active], state[active]
        turn += 1
    return _Chunks._make(np.concatenate(column) for column in zip(*turns, strict=True))


def _sampled(corpus: Offsets, seed: int, variants: int) -> _Stretches:
    """Stretches of about ``_PILOT_SENTENCES`` sentences, if each is planned ``variants`` times; of small corpora, all.

    They are those of every n-th document or, if these are not as long as the others, some that are drawn: documents may
    take turns, as titles and texts do.
    """

    def sentences(stretches: _Stretches) -> int:
        return int((stretches.end - stretches.first).sum())

    stride = max(1, corpus.num_sentences * variants // _PILOT_SENTENCES)
    stretches = _stretches(corpus, np.arange(0, corpus.num_documents, stride))
    if stride == 1 or 0.8 < sentences(stretches) * stride / corpus.num_sentences < 1.25:
        # A few long documents can still exceed the limit; then only every n-th stretch is kept.
        kept = np.arange(0, len(stretches.first), max(1, sentences(stretches) * variants // _PILOT_SENTENCES))
    else:
        documents = np.arange(corpus.num_documents)
        drawn = uniform(random_bits(seed, documents, _PILOT)) < _PILOT_SENTENCES / len(documents)
        stretches = _stretches(corpus, documents[drawn])
        share = _PILOT_SENTENCES / (sentences(stretches) * variants)
        kept = np.flatnonzero(uniform(random_bits(seed, stretches.first, _PILOT)) < share)
    return _Stretches._make(column[kept] for column in stretches)


def label_balance(corpus: Offsets, seed: int, variants: int, capacity: int, short_seq_prob: float) -> LabelBalance:
    """The probabilities that make half of the labels IsNext.

    Finds p in [1/2, 3/4] at which as many IsNext as NotNext are planned; if even 3/4 gives too few, also the share of
    one-sentence chunks to keep. All ``variants`` of the corpus, or of a sample of it when the corpus is large, are
    planned with several values of p. The excess of IsNext grows with p, so its root is found by false position.

    Raises:
        ValueError: the corpus has no pairs: it is a single document, or no document has two sentences.
    """
    _check_pairs(corpus, "next-sentence prediction", documents=2)
    sample = _Stretches._make(np.tile(column, variants) for column in _sampled(corpus, seed, variants))
    variant = np.repeat(np.arange(variants), len(sample.document) // variants)

    def surplus(is_next_prob: float) -> tuple[int, int]:
        """(IsNext minus NotNext among chunks that have a choice, number of one-sentence chunks)."""
        chunks = _chunk_pairs(corpus, sample, seed, variant, capacity, short_seq_prob, is_next_prob)
        drawn_not_next = chunks.not_next & ~chunks.forced
        return int((~chunks.not_next).sum() - drawn_not_next.sum()), int(chunks.forced.sum())

    def excess(is_next_prob: float) -> int:
        """IsNext minus NotNext among all chunks; those of one sentence are NotNext."""
        free_surplus, forced = surplus(is_next_prob)
        return free_surplus - forced

    low, high = 0.5, _MAX_IS_NEXT
    free_surplus, forced = surplus(high)
    if free_surplus < forced:
        return LabelBalance(high, max(free_surplus, 0) / forced)
    excess_low = excess(low)
    excess_high = free_surplus - forced
    for _ in range(4):  # the excess is nearly linear in is_next_prob, so few iterations suffice
        if excess_low >= 0 or excess_high <= 0:
            break
        middle = low + (high - low) * excess_low / (excess_low - excess_high)
        excess_middle = excess(middle)
        if excess_middle < 0:
            low, excess_low = middle, excess_middle
        else:
            high, excess_high = middle, excess_middle
    return LabelBalance(low if -excess_low < excess_high else high, 1.0)


def plan_pairs(
    corpus: Offsets, seed: int, variant: int, capacity: int, short_seq_prob: float, balance: LabelBalance
) -> EpochPlan:
    """Plan A/B pairs over the whole corpus.

    Args:
        corpus: the corpus from which A and B are taken.
        seed: seed of all draws.
        variant: number of the version of the segments (Google's ``dupe_factor`` is the number of versions).
        capacity: the greatest number of tokens in a pair, special tokens not counted.
        short_seq_prob: share of the pairs with a random shorter target.
        balance: the probabilities that balance the labels (``label_balance``).
    """
    plans, left_out = [], 0
    for stretches in _blocks(corpus):
        chunks = _chunk_pairs(corpus, stretches, seed, variant, capacity, short_seq_prob, balance.is_next_prob)
        kept = ~chunks.forced | (uniform(random_bits(chunks.bits, _KEEP)) < balance.keep_forced_prob)
        left_out += int((~kept).sum())
        plans.append(_place_b_and_cut(corpus, _Chunks._make(column[kept] for column in chunks), capacity))
    return _join_plans(plans, left_out)


def _place_b_and_cut(corpus: Offsets, chunks: _Chunks, capacity: int) -> EpochPlan:
    """Token spans of the chunks: B follows A or is drawn from another document, and both are cut to ``capacity``."""
    bits, offsets = chunks.bits, corpus.sentences
    a_start, a_end = offsets[chunks.first], offsets[chunks.split]
    b_start, b_end = a_end.copy(), offsets[chunks.stop]
    rows = np.flatnonzero(chunks.not_next)
    other = below(random_bits(bits[rows], _DOCUMENT), corpus.num_documents - 1)
    other += other >= chunks.document[rows]  # any document but the chunk's own
    other_first, other_end = corpus.documents[other], corpus.documents[other + 1]
    start = other_first + below(random_bits(bits[rows], _START), other_end - other_first)
    # In the order of the text, one search reads what the one before has read; the offsets are larger than a cache.
    order = np.argsort(start)
    rows, start, other_end = rows[order], start[order], other_end[order]
    wanted = np.maximum(chunks.target[rows] - (a_end - a_start)[rows], 1)
    first = offsets[start]
    end = np.minimum(np.searchsorted(offsets, first + wanted, side="left"), other_end)
    b_start[rows], b_end[rows] = first, offsets[end]
    label = np.where(chunks.not_next, NOT_NEXT, IS_NEXT)
    return _cut(bits, (a_start, a_end), (b_start, b_end), label, ~chunks.not_next, capacity)


def _cut(bits: np.ndarray, a: _Spans, b: _Spans, label: np.ndarray, own: np.ndarray, capacity: int) -> EpochPlan:
    """The plan of pairs (I), cut to ``capacity``; ``own`` tells whose B is of the same chunk as A."""
    (a_start, a_end), (b_start, b_end) = a, b
    a_length, b_length = cut_lengths(a_end - a_start, b_end - b_start, capacity)
    a_start = a_start + below(random_bits(bits, _CUT_A), a_end - a_start - a_length + 1)
    b_start = b_start + below(random_bits(bits, _CUT_B), b_end - b_start - b_length + 1)
    used = int(a_length.sum() + b_length[own].sum())
    a_length, b_length = a_length.astype(np.int32), b_length.astype(np.int32)
    return EpochPlan(a_start, a_length, b_start, b_length, label.astype(np.int8), used)


def cut_lengths(a: np.ndarray, b: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths after Google's ``truncate_seq_pair``: the longer segment, B on a tie, loses tokens until both fit.

    Args:
        a: lengths (I) of A in tokens.
        b: lengths (I) of B in tokens.
        capacity: the greatest sum of the lengths that are returned, those of A and those of B.
    """
    half = capacity // 2
    long_a, long_b = a > capacity - half, b > half
    cut_a = np.where(long_b, capacity - half, capacity - b)
    cut_b = np.where(long_a, half, capacity - a)
    fits = a + b <= capacity
    return np.where(fits | ~long_a, a, cut_a), np.where(fits | ~long_b, b, cut_b)


def plan_ordered(corpus: Offsets, seed: int, variant: int, capacity: int, short_seq_prob: float) -> EpochPlan:
    """Plan pairs of consecutive segments, of which a fair coin swaps half (ALBERT's sentence-order prediction).

    The chunks are those of ``plan_pairs`` that are all IsNext; those of one sentence are left out. They are cut after
    the swap, so that the lengths of a cut pair do not tell which segment came first in the text.
    """
    plans, left_out, offsets = [], 0, corpus.sentences
    for stretches in _blocks(corpus):
        chunks = _chunk_pairs(corpus, stretches, seed, variant, capacity, short_seq_prob, is_next_prob=1.0)
        left_out += int(chunks.forced.sum())
        chunks = _Chunks._make(column[~chunks.forced] for column in chunks)
        starts, middles, ends = offsets[chunks.first], offsets[chunks.split], offsets[chunks.stop]
        swapped = uniform(random_bits(chunks.bits, _SWAP)) < 0.5
        a = np.where(swapped, middles, starts), np.where(swapped, ends, middles)
        b = np.where(swapped, starts, middles), np.where(swapped, middles, ends)
        plans.append(_cut(chunks.bits, a, b, label=swapped, own=np.ones_like(swapped), capacity=capacity))
    return _join_plans(plans, left_out)


def plan_packed(corpus: Offsets, seed: int, variant: int, capacity: int, short_seq_prob: float) -> EpochPlan:
    """Plan single segments of at most ``capacity`` tokens: as many whole sentences of one document as fit.

    A segment may hold several sentences, but of one stretch of a document only. A sentence longer than the target is
    continued in the next segment, so that every token of the corpus is in exactly one instance.
    """
    offsets = corpus.sentences
    plans = []
    for stretches in _blocks(corpus):
        state = random_bits(seed, variant, stretches.first)
        position, end = offsets[stretches.first], offsets[stretches.end]
        starts, lengths, turn = [], [], 0
        while len(position):
            limit = position + _targets(random_bits(state, turn), capacity, short_seq_prob)
            whole = offsets[np.searchsorted(offsets, limit, side="right") - 1]
            stop = np.minimum(np.where(whole > position, whole, limit), end)
            starts.append(position)
            lengths.append(stop - position)
            active = stop < end
            position, end, state = stop[active], end[active], state[active]
            turn += 1
        start, length = np.concatenate(starts), np.concatenate(lengths).astype(np.int32)
        none, label = np.zeros_like(length), np.zeros(len(start), np.int8)
        used = int(length.sum(dtype=np.int64))
        plans.append(EpochPlan(start, length, start + length, none, label, used))
    return _join_plans(plans, 0)


def _join_plans(plans: list[EpochPlan], left_out: int) -> EpochPlan:
    """One plan of the plans of all blocks, which are taken out of the list as they are copied."""
    used = sum(plan.used_tokens for plan in plans)
    parts = {name: [getattr(plan, name) for plan in plans] for name in _COLUMNS}
    plans.clear()
    return EpochPlan(
        **{name: np.concatenate(parts.pop(name)) for name in _COLUMNS}, used_tokens=used, left_out=left_out
    )


def next_or_random(corpus: Offsets, seed: int, variants: int, capacity: int, short_seq_prob: float) -> Planner:
    """Pairs whose B follows A or comes from another document (``plan_pairs``), with balanced labels."""
    balance = label_balance(corpus, seed, variants, capacity, short_seq_prob)
    return lambda variant: plan_pairs(corpus, seed, variant, capacity, short_seq_prob, balance)


def _check_pairs(corpus: Offsets, task: str, documents: int) -> None:
    if corpus.num_documents < documents or not _has_pairs(corpus):
        raise UserError(
            f"{corpus.path}: {task} needs at least {documents} documents and a document of 2 sentences, got none such; "
            "add text, put blank lines between documents only, raise --validation_split, or use the objective mlm"
        )


def in_order_or_swapped(corpus: Offsets, seed: int, variants: int, capacity: int, short_seq_prob: float) -> Planner:
    """Consecutive segments, half of them swapped (``plan_ordered``).

    Raises:
        ValueError: no document has two sentences.
    """
    _check_pairs(corpus, "sentence-order prediction", documents=1)
    return lambda variant: plan_ordered(corpus, seed, variant, capacity, short_seq_prob)


def packed(corpus: Offsets, seed: int, variants: int, capacity: int, short_seq_prob: float) -> Planner:
    """Single segments (``plan_packed``)."""
    return lambda variant: plan_packed(corpus, seed, variant, capacity, short_seq_prob)


# How the text is divided into instances, ``Objective.segments``. Each function gets the corpus, the seed of all draws,
# the number of versions of the segments, the greatest number of tokens of an instance without its special tokens, and
# the share of the instances with a random shorter length.
PLANNERS: dict[str, Callable[[Offsets, int, int, int, float], Planner]] = {
    "next_or_random": next_or_random,
    "in_order_or_swapped": in_order_or_swapped,
    "packed": packed,
}
