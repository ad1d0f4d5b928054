"""bert_training/pretraining/segments.py: which spans of the corpus become A and B, and that the labels balance."""

import numpy as np
import pytest
from transformers import BertTokenizer

from bert_training.inputs.texts import read_documents
from bert_training.pretraining import segments
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.hashed_random import below, random_bits, uniform
from bert_training.pretraining.instances import VARIANTS
from bert_training.pretraining.segments import (
    IS_NEXT,
    NOT_NEXT,
    LabelBalance,
    cut_lengths,
    label_balance,
    plan_ordered,
    plan_pairs,
)
from tests.helpers.numbered_corpus import LENGTH, document_of, instances_of, make_corpus, random_lengths

# --- Worked by hand ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def even(tmp_path_factory, tokenizer):
    """Document 0 has 6 sentences of 5 tokens each, and document 1 has 40 of them."""
    return make_corpus(tmp_path_factory.mktemp("even") / "c", tokenizer, [[5] * 6, [5] * 40])


def pairs_of_document_0(corpus, is_next_prob):
    """The pairs of 15 tokens that an epoch makes of document 0, as rows (A's start, A's length, B's start, ...)."""
    plan = plan_pairs(corpus.shards[0], 1, 0, 15, 0.0, LabelBalance(is_next_prob, 1.0))
    columns = (plan.a_start, plan.a_length, plan.b_start, plan.b_length, plan.label)
    rows = sorted(tuple(map(int, row)) for row in zip(*columns))
    return [row for row in rows if row[0] < 30]


def test_chunks_that_are_all_is_next_divide_the_document(even):
    """Three sentences reach the target of 15 tokens: A is the first one or two of them, and B is the rest."""
    for first, (a_start, a_length, b_start, b_length, label) in zip((0, 15), pairs_of_document_0(even, 1.0)):
        assert (a_start, label) == (first, IS_NEXT) and a_length in (5, 10)
        assert (b_start, b_length) == (a_start + a_length, 15 - a_length)
    assert len(pairs_of_document_0(even, 1.0)) == 2


def test_the_rest_of_a_chunk_that_is_not_next_begins_the_following_one(even):
    """Every sentence is in one A, and B has the rest of the 15 tokens from the other document."""
    rows, following = pairs_of_document_0(even, 0.0), 0
    for a_start, a_length, b_start, b_length, label in rows:
        assert (a_start, label) == (following, NOT_NEXT) and a_length in (5, 10)
        assert b_start >= 30 and b_start % 5 == 0
        assert b_length == min(15 - a_length, 230 - b_start)  # Document 1 ends at token 230.
        following = a_start + a_length
    assert following == 30 and 3 <= len(rows) <= 6


def test_the_b_of_another_document_ends_with_it(tmp_path, tokenizer):
    """A leaves 5 or 10 of the 15 tokens to B, but each of the other documents has one sentence of 5 tokens."""
    corpus = make_corpus(tmp_path / "c", tokenizer, [[5] * 6] + [[5]] * 20)
    rows = pairs_of_document_0(corpus, 0.0)
    assert {a_length for _, a_length, *_ in rows} <= {5, 10}
    assert {(b_start % 5, b_length) for _, _, b_start, b_length, _ in rows} == {(0, 5)}


def test_short_targets_are_uniform(tmp_path, tokenizer):
    """A sentence of 7,000 tokens is cut into segments as long as their targets: 20, or 2 to 20 with probability 0.3."""
    corpus = make_corpus(tmp_path / "c", tokenizer, [[7000]] * 10)
    instances = instances_of(corpus, tokenizer, objective="mlm", max_seq_length=22, short_seq_prob=0.3)
    lengths = instances.plan(0).a_length
    lengths = lengths[instances.plan(0).a_start % 7000 + lengths < 7000]  # The last segment of a sentence is a rest.
    counts = np.bincount(lengths, minlength=21)
    each = 0.3 * len(lengths) / 19  # the expected number of segments of each length from 2 to 19
    assert counts[:2].sum() == 0
    assert np.abs(counts[2:20] - each).max() < 5 * np.sqrt(each)
    assert counts[20] == pytest.approx(0.7 * len(lengths) + each, abs=5 * np.sqrt(0.21 * len(lengths)))


def test_the_balance_of_documents_of_two_sentences_is_two_thirds(tmp_path, tokenizer):
    """With probability p, a document of two sentences is one IsNext. Otherwise it is two NotNext, because the second
    sentence is left alone. The labels balance where p = 2 (1 - p).
    """
    corpus = make_corpus(tmp_path / "c", tokenizer, [[9, 9]] * 400)
    balance = label_balance(corpus.shards[0], 1, VARIANTS, 125, 0.0)
    assert balance.is_next_prob == pytest.approx(2 / 3, abs=0.03) and balance.keep_forced_prob == 1.0


def test_the_balance_among_documents_of_one_sentence(tmp_path, tokenizer):
    """IsNext has at most the probability 3/4. The 100 documents of two sentences then give 75 IsNext and 25 NotNext,
    and leave 25 sentences alone. With the 900 other documents these are 925 chunks of one sentence, of which an epoch
    uses 75 - 25 = 50.
    """
    corpus = make_corpus(tmp_path / "c", tokenizer, [[9]] * 900 + [[9, 9]] * 100)
    balance = label_balance(corpus.shards[0], 1, VARIANTS, 37, 0.0)
    assert balance.is_next_prob == 0.75 and balance.keep_forced_prob == pytest.approx(50 / 925, rel=0.2)


def test_the_chunks_are_those_of_the_sequential_form(corpus):
    """The loop that the docstring of _chunk_pairs draws, for one stretch and one number at a time."""
    stretches = segments._stretches(corpus.shards[0], np.arange(corpus.num_documents))
    chunks = segments._chunk_pairs(corpus.shards[0], stretches, 5, 3, 60, 0.3, 0.6)
    found = {tuple(map(int, row)) for row in zip(chunks.first, chunks.split, chunks.stop, chunks.not_next)}
    expected, tokens = set(), corpus.shards[0].sentences.tolist()
    for first, end in zip(stretches.first.tolist(), stretches.end.tolist()):
        position, turn = first, 0
        while position < end:
            bits = random_bits(random_bits(5, 3, np.array(first)), turn)
            target = int(segments._targets(bits, 60, 0.3))
            stop = position + 2
            while stop < end and tokens[stop] - tokens[position] < target:
                stop += 1
            stop = min(stop, end)
            choices = max(stop - position - 1, 1)
            split = position + 1 + int(below(random_bits(bits, segments._SPLIT), choices))
            not_next = stop - position == 1 or float(uniform(random_bits(bits, segments._LABEL))) >= 0.6
            expected.add((position, split, stop, int(not_next)))
            position, turn = split if not_next else stop, turn + 1
    assert found == expected and len(found) == len(chunks.first) > 100


# --- Nothing is lost ----------------------------------------------------------------------------------------


def test_no_sentence_is_lost(corpus, tokenizer):
    # Sentences have at most 14 tokens, so that neither A nor B consists of cut sentences only.
    for epoch in (0, 1):
        instances = instances_of(corpus, tokenizer, max_seq_length=128)
        plan = instances.plan(epoch)
        seen = np.zeros(corpus.num_tokens + 1, np.int64)
        own = plan.label == IS_NEXT
        for start, length in ((plan.a_start, plan.a_length), (plan.b_start[own], plan.b_length[own])):
            np.add.at(seen, start, 1)
            np.add.at(seen, start + length, -1)
        tokens = np.cumsum(seen)[:-1]
        sentences = np.add.reduceat(tokens, corpus.shards[0].sentences[:-1])
        assert (sentences > 0).mean() > 0.985  # A sentence is lost only where a pair is cut to the maximal length.
        assert tokens.max() == 1  # No token is used twice in A and in true next sentences.


# --- Lengths ------------------------------------------------------------------------------------------------


def test_a_share_of_the_sequences_is_short(corpus, tokenizer):
    lengths = {}
    for share in (0.0, 0.1, 1.0):
        plan = instances_of(corpus, tokenizer, short_seq_prob=share, max_seq_length=64).plan(0)
        lengths[share] = (plan.a_length + plan.b_length).mean()
    assert lengths[0.0] > lengths[0.1] > lengths[1.0] + 5
    packed = [
        instances_of(corpus, tokenizer, short_seq_prob=share, objective="mlm").epoch_size(0) for share in (0, 0.5)
    ]
    assert packed[1] > 1.15 * packed[0]


@pytest.mark.parametrize(
    ("a", "b", "capacity"), [(9, 3, 10), (3, 9, 10), (9, 9, 10), (9, 9, 11), (6, 5, 11), (5, 6, 11), (4, 5, 10)]
)
def test_cutting_is_that_of_google(a, b, capacity):
    expected_a, expected_b = a, b
    while expected_a + expected_b > capacity:  # This is truncate_seq_pair of create_pretraining_data.py.
        if expected_a > expected_b:
            expected_a -= 1
        else:
            expected_b -= 1
    assert [int(length) for length in cut_lengths(np.array(a), np.array(b), capacity)] == [expected_a, expected_b]


def test_cuts_fall_on_both_ends(tmp_path, tokenizer):
    corpus = make_corpus(tmp_path / "c", tokenizer, [[100, 100]] * 200)
    plan = instances_of(corpus, tokenizer, short_seq_prob=0.0).plan(0)
    assert (plan.a_length + plan.b_length == LENGTH - 3).all()
    cut = plan.a_start % 100 / (100 - plan.a_length)
    assert cut.min() < 0.05 and cut.max() > 0.95 and cut.mean() == pytest.approx(0.5, abs=0.08)


# --- Labels -------------------------------------------------------------------------------------------------


def google_share(documents, capacity, rng):
    """The share of IsNext that Google's create_instances_from_document gives with short_seq_prob 0."""
    labels = []
    for lengths in documents:
        i, chunk, total = 0, [], 0
        while i < len(lengths):
            chunk.append(lengths[i])
            total += lengths[i]
            if i == len(lengths) - 1 or total >= capacity:
                a_end = rng.integers(1, len(chunk)) if len(chunk) >= 2 else 1
                not_next = len(chunk) == 1 or rng.random() < 0.5
                if not_next:
                    i -= len(chunk) - a_end
                labels.append(not not_next)
                chunk, total = [], 0
            i += 1
    return np.mean(labels)


@pytest.mark.parametrize("sentences", [(2, 3), (2, 7), (1, 6), (20, 60)])
def test_labels_balance_on_short_documents_where_googles_do_not(tmp_path, tokenizer, sentences):
    rng = np.random.default_rng(sentences[1])
    count = 4000 // sentences[1]
    documents = [rng.integers(8, 30, rng.integers(*sentences)).tolist() for _ in range(count)]
    corpus = make_corpus(tmp_path / "c", tokenizer, documents)
    instances = instances_of(corpus, tokenizer, max_seq_length=128)
    labels = np.concatenate([instances.plan(epoch).label for epoch in range(VARIANTS)])
    assert (labels == IS_NEXT).mean() == pytest.approx(0.5, abs=0.015)
    google = np.mean([google_share(documents, 125, rng) for _ in range(10)])
    if sentences[0] < 20:
        assert google < 0.42
    one_sentence = any(len(lengths) == 1 for lengths in documents)
    assert (instances.plan(0).left_out > 0) <= one_sentence


def test_one_sentence_documents_take_turns_where_they_are_the_majority(tmp_path, tokenizer):
    corpus = make_corpus(tmp_path / "c", tokenizer, [[9]] * 900 + [[9, 9]] * 100)
    instances = instances_of(corpus, tokenizer)
    plans = [instances.plan(epoch) for epoch in range(VARIANTS)]
    labels = np.concatenate([plan.label for plan in plans])
    assert (labels == NOT_NEXT).mean() == pytest.approx(0.5, abs=0.05)
    assert all(plan.left_out > 700 for plan in plans)
    assert len(np.unique(np.concatenate([plan.a_start for plan in plans]))) > 400  # Every epoch has other ones.


def test_negatives_are_drawn_from_everywhere(corpus, tokenizer):
    plans = [instances_of(corpus, tokenizer, seed=seed, short_seq_prob=1.0).plan(0) for seed in range(3)]
    start = np.concatenate([plan.b_start[plan.label == NOT_NEXT] for plan in plans])
    first = corpus.shards[0].sentences[corpus.shards[0].documents]
    document = np.searchsorted(first, start, side="right") - 1
    within = (start - first[document]) / np.diff(first)[document]
    assert np.histogram(within, 4, (0, 1))[0].min() > 0.15 * len(start)
    counts = np.bincount(document, minlength=corpus.num_documents)
    assert np.abs(counts - len(start) / len(counts)).max() < 5 * np.sqrt(len(start) / len(counts))


def test_a_long_document_is_planned_in_pieces_without_loss(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(segments, "_STRETCH_SENTENCES", 7)
    monkeypatch.setattr(segments, "_BLOCK_SENTENCES", 20)
    corpus = make_corpus(tmp_path / "c", tokenizer, [[5] * 100, [5] * 3, [5] * 45, [5]])
    plan = instances_of(corpus, tokenizer, max_seq_length=128, short_seq_prob=0.0).plan(0)
    own = plan.label == IS_NEXT
    used = [np.arange(start, start + length) for start, length in zip(plan.a_start, plan.a_length)]
    used += [np.arange(start, start + length) for start, length in zip(plan.b_start[own], plan.b_length[own])]
    assert np.array_equal(np.sort(np.concatenate(used)), np.arange(corpus.num_tokens))
    assert (document_of(corpus, plan.a_start + 5) != document_of(corpus, plan.b_start + 5))[~own].all()


@pytest.mark.slow
@pytest.mark.realdata
def test_labels_balance_on_real_paragraphs(tmp_path, real_data):
    """These are the numbers of docs/pretrain.md. Each paragraph of the held-out Wikipedia is a document here."""
    real = BertTokenizer(vocab=str(real_data / "assets" / "uncased_vocab.txt"))
    text = read_documents([real_data / "text" / "wiki_heldout.txt"])
    corpus = build_corpus([[paragraph] for document in text for paragraph in document], real, tmp_path / "c")
    lengths = np.diff(corpus.shards[0].sentences)
    documents = [
        lengths[first:end] for first, end in zip(corpus.shards[0].documents[:-1], corpus.shards[0].documents[1:])
    ]
    assert google_share(documents, 125, np.random.default_rng(0)) == pytest.approx(0.343, abs=0.005)
    instances = instances_of(corpus, real, max_seq_length=128)
    labels = np.concatenate([instances.plan(epoch).label for epoch in range(VARIANTS)])
    assert (labels == IS_NEXT).mean() == pytest.approx(0.5, abs=0.005)
    assert instances.plan(0).left_out == 0


# --- In order or swapped ------------------------------------------------------------------------------------


def test_swapped_pairs_are_the_chunks_of_the_pairs_that_are_all_is_next(even):
    """With the same draws, document 0 has the same two chunks of three sentences. A swap exchanges A and B."""
    found = set()
    for variant in range(40):
        known = plan_pairs(even.shards[0], 1, variant, 15, 0.0, LabelBalance(1.0, 1.0))
        plan = plan_ordered(even.shards[0], 1, variant, 15, 0.0)
        pairs = zip(known.a_start, known.a_length, known.b_start, known.b_length)
        chunks = {int(pair[0]): tuple(map(int, pair)) for pair in pairs}
        for row in zip(plan.a_start, plan.a_length, plan.b_start, plan.b_length, plan.label):
            a_start, a_length, b_start, b_length, label = map(int, row)
            in_order = (b_start, b_length, a_start, a_length) if label else (a_start, a_length, b_start, b_length)
            assert in_order == chunks[in_order[0]]
            found |= {(in_order[:2], label)} if in_order[0] < 30 else set()
    # Every cut of both chunks, after one sentence or two, was seen in both orders.
    cuts = [(first, length) for first in (0, 15) for length in (5, 10)]
    assert found == {(cut, label) for cut in cuts for label in (0, 1)}


@pytest.mark.parametrize("sentences", [(2, 3), (2, 7), (1, 6), (20, 60)])
def test_half_of_the_ordered_pairs_are_swapped(tmp_path, tokenizer, sentences):
    rng = np.random.default_rng(sentences[1])
    documents = [rng.integers(8, 30, rng.integers(*sentences)).tolist() for _ in range(4000 // sentences[1])]
    corpus = make_corpus(tmp_path / "c", tokenizer, documents)
    instances = instances_of(corpus, tokenizer, objective="mlm_sop", max_seq_length=128)
    labels = [instances.plan(epoch).label for epoch in range(VARIANTS)]
    total = np.concatenate(labels)
    assert abs(total.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(total))
    if sentences == (2, 3):  # Each document is one chunk; it has its own coin in every version of the segments.
        swapped = np.stack(labels)
        assert swapped.shape[1] == len(documents) and 0.4 < np.corrcoef(swapped).mean() * VARIANTS < 1.6
    assert (instances.plan(0).left_out > 0) == (sentences[0] != 2 or sentences[1] > 3)


def test_the_lengths_do_not_tell_the_order(tmp_path, tokenizer):
    """37 tokens are shared between sentences of 100: 19 for A and 18 for B, whether they are swapped or not."""
    corpus = make_corpus(tmp_path / "c", tokenizer, [[100, 100]] * 200)
    plan = instances_of(corpus, tokenizer, objective="mlm_sop", short_seq_prob=0.0).plan(0)
    assert (plan.a_length == 19).all() and (plan.b_length == 18).all()
    assert ((plan.a_start < plan.b_start) == (plan.label == 0)).all()
    corpus = make_corpus(tmp_path / "d", tokenizer, random_lengths(600, (1, 30)))
    plan = instances_of(corpus, tokenizer, objective="mlm_sop", max_seq_length=64).plan(0)
    longer = plan.a_length > plan.b_length
    assert longer[plan.label == 0].mean() == pytest.approx(longer[plan.label == 1].mean(), abs=0.08)


def test_an_order_needs_a_document_of_two_sentences(tmp_path, tokenizer):
    corpus = make_corpus(tmp_path / "c", tokenizer, [[5], [5], [5]])
    with pytest.raises(
        ValueError,
        match="sentence-order prediction needs at least 1 documents and a document of 2 sentences, got none such",
    ):
        instances_of(corpus, tokenizer, objective="mlm_sop")
    corpus = make_corpus(tmp_path / "d", tokenizer, [[5, 5]])  # One document is enough.
    assert len(instances_of(corpus, tokenizer, objective="mlm_sop").plan(0)) == 1


# --- Single segments ----------------------------------------------------------------------------------------


def test_packed_segments_are_full(tmp_path, tokenizer):
    corpus = make_corpus(tmp_path / "c", tokenizer, [[10] * 50, [100] * 3])
    instances = instances_of(corpus, tokenizer, objective="mlm", max_seq_length=42, short_seq_prob=0.0)
    lengths = instances.plan(0).a_length.tolist()
    # 50 sentences of 10 tokens make twelve segments of 40 and one of 20. A sentence of 100 is cut into 40 + 40 + 20.
    assert sorted(lengths) == sorted([40] * 12 + [20] + [40, 40, 20] * 3)


@pytest.mark.parametrize("turns", [(1, 31), (31, 1)])
def test_labels_balance_where_documents_take_turns(tmp_path, tokenizer, monkeypatch, turns):
    """Titles between texts, of which a sample of every n-th document would have only the titles, or only one kind."""
    corpus = make_corpus(tmp_path / "c", tokenizer, [[9] * sentences for sentences in turns] * 400)
    every = label_balance(corpus.shards[0], 1, 10, 125, 0.1)
    monkeypatch.setattr(segments, "_PILOT_SENTENCES", corpus.num_sentences * 10 // 4)  # every fourth document
    balance = label_balance(corpus.shards[0], 1, 10, 125, 0.1)
    assert balance.is_next_prob == pytest.approx(every.is_next_prob, abs=0.03)
    assert balance.keep_forced_prob == pytest.approx(every.keep_forced_prob, abs=0.1)
