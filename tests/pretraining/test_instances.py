"""training/pretraining/instances.py and segments.py: what is in a batch, which depends on its position only."""

import numpy as np
import pytest
import torch
from transformers import BertTokenizer

from training.engine.batches import IGNORED
from training.pretraining import segments
from training.pretraining.build_corpus import build_corpus
from training.pretraining.documents import read_documents
from training.pretraining.instances import VARIANTS, InstanceSettings, PretrainingInstances
from training.pretraining.segments import IS_NEXT, NOT_NEXT, cut_lengths

PAD, UNK, CLS, SEP, MASK = range(5)
LENGTH = 40
NUM_WORDS = 8_000


@pytest.fixture(scope="module")
def tokenizer():
    """Every token of a test corpus is a different word, so that a token shows where it comes from."""
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(NUM_WORDS))]
    return BertTokenizer(vocab={word: number for number, word in enumerate(vocab)})


def make_corpus(path, tokenizer, documents):
    """A corpus whose documents have sentences of the given lengths. Its token number t has the id t + 5.

    After NUM_WORDS tokens the ids begin again.
    """
    number, texts = 0, []
    for lengths in documents:
        sentences = []
        for length in lengths:
            sentences.append(" ".join(f"w{(number + offset) % NUM_WORDS}" for offset in range(length)))
            number += length
        texts.append(sentences)
    return build_corpus(texts, tokenizer, path, need_pairs=False)


def random_lengths(documents, sentences, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 15, rng.integers(*sentences)).tolist() for _ in range(documents)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer):
    return make_corpus(tmp_path_factory.mktemp("c") / "c", tokenizer, random_lengths(60, (1, 30)))


def instances_of(corpus, tokenizer, **settings):
    return PretrainingInstances(
        corpus, tokenizer, InstanceSettings(**({"seed": 1, "max_seq_length": LENGTH} | settings))
    )


def originals(batch):
    """input_ids (B, L) before masking."""
    labels = batch["labels"]
    return torch.where(labels == IGNORED, batch["input_ids"], labels).numpy()


def pair_of(row, types, length):
    """The ids of A and of B in one unmasked row, after a check of everything around them."""
    assert row[0] == CLS and row[length - 1] == SEP and (row[length:] == PAD).all()
    (middle,) = np.flatnonzero(row[1 : length - 1] == SEP) + 1
    assert types.tolist() == [0] * (middle + 1) + [1] * (length - middle - 1) + [0] * (len(row) - length)
    return row[1:middle], row[middle + 1 : length - 1]


def document_of(corpus, tokens):
    starts = corpus.sentences[corpus.documents]
    return np.searchsorted(starts, np.asarray(tokens) - 5, side="right") - 1


# --- The content of a batch -------------------------------------------------------------------------------


def test_pairs_are_spans_with_the_right_label(corpus, tokenizer):
    instances = instances_of(corpus, tokenizer)
    size = instances.epoch_size(0)
    batch = instances.batch(0, size)
    assert {name: (tuple(t.shape), t.dtype) for name, t in batch.items()} == {
        "input_ids": ((size, LENGTH), torch.int64),
        "token_type_ids": ((size, LENGTH), torch.int64),
        "attention_mask": ((size, LENGTH), torch.int64),
        "labels": ((size, LENGTH), torch.int64),
        "next_sentence_label": ((size,), torch.int64),
    }
    for row, types, mask, label in zip(
        originals(batch), batch["token_type_ids"].numpy(), batch["attention_mask"].numpy(), batch["next_sentence_label"]
    ):
        a, b = pair_of(row, types, mask.sum())
        assert (np.diff(a) == 1).all() and (np.diff(b) == 1).all()  # Both are contiguous text.
        (document,), (other,) = np.unique(document_of(corpus, a)), np.unique(document_of(corpus, b))
        if label == IS_NEXT:
            assert document == other and b[0] > a[-1]
            if len(a) + len(b) < LENGTH - 3:
                assert b[0] == a[-1] + 1  # No token between them was cut away.
        else:
            assert document != other


def test_masks_are_15_percent_of_the_real_tokens(corpus, tokenizer):
    batch = instances_of(corpus, tokenizer).batch(0, 200)
    ordinary = (torch.from_numpy(originals(batch)) > MASK).sum(1)
    assert (batch["labels"] != IGNORED).sum(1).tolist() == [max(1, round(0.15 * n)) for n in ordinary.tolist()]


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
        sentences = np.add.reduceat(tokens, corpus.sentences[:-1])
        assert (sentences > 0).mean() > 0.985  # A sentence is lost only where a pair is cut to the maximal length.
        assert tokens.max() == 1  # No token is used twice in A and in true next sentences.


def test_nothing_is_lost_when_nothing_is_cut(tmp_path, tokenizer):
    # All sentences have 5 tokens and fill the target of 35 exactly.
    corpus = make_corpus(tmp_path / "c", tokenizer, [[5] * n for n in (2, 3, 7, 8, 50, 300)])
    instances = instances_of(corpus, tokenizer, max_seq_length=38, short_seq_prob=0.0)
    plan = instances.plan(3)
    own = plan.label == IS_NEXT
    used = [np.arange(s, s + n) for s, n in zip(plan.a_start, plan.a_length)]
    used += [np.arange(s, s + n) for s, n in zip(plan.b_start[own], plan.b_length[own])]
    assert np.array_equal(np.sort(np.concatenate(used)), np.arange(corpus.num_tokens))


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
    assert [int(x) for x in cut_lengths(np.array(a), np.array(b), capacity)] == [expected_a, expected_b]


def test_cuts_fall_on_both_ends(tmp_path, tokenizer):
    corpus = make_corpus(tmp_path / "c", tokenizer, [[100, 100]] * 200)
    plan = instances_of(corpus, tokenizer, short_seq_prob=0.0).plan(0)
    assert (plan.a_length + plan.b_length == LENGTH - 3).all()
    cut = plan.a_start % 100 / (100 - plan.a_length)
    assert cut.min() < 0.05 and cut.max() > 0.95 and cut.mean() == pytest.approx(0.5, abs=0.08)


# --- Labels -----------------------------------------------------------------------------------------------


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
    first = corpus.sentences[corpus.documents]
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
    used = [np.arange(s, s + n) for s, n in zip(plan.a_start, plan.a_length)]
    used += [np.arange(s, s + n) for s, n in zip(plan.b_start[own], plan.b_length[own])]
    assert np.array_equal(np.sort(np.concatenate(used)), np.arange(corpus.num_tokens))
    assert (document_of(corpus, plan.a_start + 5) != document_of(corpus, plan.b_start + 5))[~own].all()


@pytest.mark.realdata
def test_labels_balance_on_real_paragraphs(tmp_path, real_data):
    """These are the numbers of docs/data_pipeline.md. Each paragraph of the held-out Wikipedia is a document here."""
    real = BertTokenizer(vocab=str(real_data / "assets" / "uncased_vocab.txt"))
    text = read_documents([real_data / "text" / "wiki_heldout.txt"])
    corpus = build_corpus([[paragraph] for document in text for paragraph in document], real, tmp_path / "c")
    lengths = np.diff(corpus.sentences)
    documents = [lengths[a:b] for a, b in zip(corpus.documents[:-1], corpus.documents[1:])]
    assert google_share(documents, 125, np.random.default_rng(0)) == pytest.approx(0.343, abs=0.005)
    instances = instances_of(corpus, real, max_seq_length=128)
    labels = np.concatenate([instances.plan(epoch).label for epoch in range(VARIANTS)])
    assert (labels == IS_NEXT).mean() == pytest.approx(0.5, abs=0.005)
    assert instances.plan(0).left_out == 0


# --- The other objectives ---------------------------------------------------------------------------------


def test_packed_segments_hold_every_token_once(corpus, tokenizer):
    instances = instances_of(corpus, tokenizer, objective="mlm")
    size = instances.epoch_size(0)
    batch = instances.batch(0, size)
    assert "next_sentence_label" not in batch and batch["token_type_ids"].sum() == 0
    rows = originals(batch)
    assert np.array_equal(np.sort(rows[rows > MASK]), np.arange(5, corpus.num_tokens + 5))
    starts, ends = set(corpus.sentences[:-1].tolist()), set(corpus.sentences[1:].tolist())
    for row, mask in zip(rows, batch["attention_mask"].numpy()):
        tokens = row[1 : mask.sum() - 1]
        assert row[0] == CLS and row[mask.sum() - 1] == SEP and (np.diff(tokens) == 1).all()
        assert len(np.unique(document_of(corpus, tokens))) == 1
        if len(tokens) == LENGTH - 2 or mask.sum() > 20:  # Shorter instances may begin and end inside a sentence.
            assert tokens[0] - 5 in starts or tokens[-1] - 4 in ends
    assert (batch["labels"] != IGNORED).sum() > 0.13 * corpus.num_tokens


def test_packed_segments_are_full(tmp_path, tokenizer):
    corpus = make_corpus(tmp_path / "c", tokenizer, [[10] * 50, [100] * 3])
    instances = instances_of(corpus, tokenizer, objective="mlm", max_seq_length=42, short_seq_prob=0.0)
    lengths = instances.plan(0).a_length.tolist()
    # 50 sentences of 10 tokens make twelve segments of 40 and one of 20. A sentence of 100 is cut into 40 + 40 + 20.
    assert sorted(lengths) == sorted([40] * 12 + [20] + [40, 40, 20] * 3)


def test_left_to_right_labels_are_the_next_tokens(corpus, tokenizer):
    batch = instances_of(corpus, tokenizer, objective="ltr").batch(0, 50)
    ids, labels = batch["input_ids"], batch["labels"]
    assert (ids != MASK).all() and "next_sentence_label" not in batch
    labelled = labels != IGNORED
    assert torch.equal(labels[:, :-1][labelled[:, :-1]], ids[:, 1:][labelled[:, :-1]])
    assert torch.equal(labelled.sum(1), batch["attention_mask"].sum(1) - 2)  # [CLS] and [SEP] have no labels.
    assert labelled[:, 0].all() and (labels != SEP).all()


# --- An instance depends on its position only -------------------------------------------------------------


def assert_same(one, two):
    assert one.keys() == two.keys()
    for name in one:
        assert torch.equal(one[name], two[name]), name


@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm", "ltr"])
def test_a_batch_is_its_parts_wherever_it_is_cut(corpus, tokenizer, objective):
    instances = instances_of(corpus, tokenizer, objective=objective)
    size = instances.epoch_size(0)
    start, stop = size - 11, size + 13  # The batch lies in two epochs.
    whole = instances.batch(start, stop)
    for cut in (start + 1, size, stop - 5):
        fresh = instances_of(corpus, tokenizer, objective=objective)
        later = fresh.batch(cut, stop)  # The later part is made first, so that it cannot depend on the earlier one.
        earlier = fresh.batch(start, cut)
        assert_same(whole, {name: torch.cat([earlier[name], later[name]]) for name in whole})


def test_positions_far_away_are_found_at_once(corpus, tokenizer):
    instances = instances_of(corpus, tokenizer)
    sizes = [instances.epoch_size(epoch) for epoch in range(VARIANTS)]
    position = 3 * sum(sizes) + sizes[0] + sizes[1] + 7
    assert instances.locate(position) == (32, 7)
    far = 10**12
    epoch, index = instances.locate(far)
    assert epoch // VARIANTS * sum(sizes) + sum(sizes[: epoch % VARIANTS]) + index == far
    assert instances.locate(0) == (0, 0) and instances.locate(sizes[0]) == (1, 0)
    assert_same(instances.batch(far, far + 3), instances_of(corpus, tokenizer).batch(far, far + 3))


def test_every_epoch_shows_each_instance_once_in_another_order(corpus, tokenizer):
    instances = instances_of(corpus, tokenizer)
    for epoch in (0, 1):
        order = instances.order(epoch)
        assert np.array_equal(np.sort(order), np.arange(instances.epoch_size(epoch)))
        assert np.abs(np.corrcoef(order, np.arange(len(order)))[0, 1]) < 0.15
    assert not np.array_equal(instances.order(0)[:50], instances.order(1)[:50])
    assert not np.array_equal(instances.order(0)[:50], instances_of(corpus, tokenizer, seed=2).order(0)[:50])


def test_epochs_and_seeds_differ_also_after_ten_epochs(corpus, tokenizer):
    instances = instances_of(corpus, tokenizer)
    assert instances.epoch_size(0) == instances.epoch_size(VARIANTS)
    rows = [instances._rows(epoch, 0, 20)["input_ids"] for epoch in (0, 1, VARIANTS)]
    rows.append(instances_of(corpus, tokenizer, seed=2).batch(0, 20)["input_ids"].numpy())
    for first in range(4):
        for second in range(first):
            assert not np.array_equal(rows[first], rows[second])


def test_the_same_segments_get_fresh_masks(corpus, tokenizer, monkeypatch):
    monkeypatch.setattr(PretrainingInstances, "order", lambda self, epoch: np.arange(self.epoch_size(epoch)))
    instances = instances_of(corpus, tokenizer)
    cycle = sum(instances.epoch_size(epoch) for epoch in range(VARIANTS))
    first, again = instances.batch(0, 50), instances.batch(cycle, cycle + 50)
    assert np.array_equal(originals(first), originals(again))
    assert (first["labels"] == again["labels"]).all(1).sum() < 5
    other = instances_of(corpus, tokenizer, seed=2)
    other.segment_seed, other.balance = instances.segment_seed, instances.balance
    assert np.array_equal(originals(first), originals(other.batch(0, 50)))
    assert (first["labels"] == other.batch(0, 50)["labels"]).all(1).sum() < 5


def test_fixed_instances_repeat_the_first_epoch(corpus, tokenizer):
    fixed = instances_of(corpus, tokenizer, fixed=True)
    size = fixed.epoch_size(0)
    assert fixed.epoch_size(5) == size and fixed.locate(2 * size + 3) == (2, 3)
    assert_same(fixed.batch(0, 20), fixed.batch(4 * size, 4 * size + 20))
    assert_same(fixed.batch(0, 20), instances_of(corpus, tokenizer).batch(0, 20))


def test_padding_to_the_longest_row(corpus, tokenizer):
    loose = instances_of(corpus, tokenizer, max_seq_length=64, short_seq_prob=0.9, pad_to_max=False)
    full = instances_of(corpus, tokenizer, max_seq_length=64, short_seq_prob=0.9)
    widths = set()
    for start in range(0, 64, 4):
        short, long = loose.batch(start, start + 4), full.batch(start, start + 4)
        width = short["input_ids"].shape[1]
        widths.add(width)
        assert width % 8 == 0 and width - long["attention_mask"].sum(1).max() < 8
        assert_same(short, {n: t[:, :width].contiguous() if t.ndim == 2 else t for n, t in long.items()})
    assert len(widths) > 1


# --- The user's mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "nsp"}, "objective is 'nsp'; expected one of mlm_nsp, mlm, ltr"),
        ({"max_seq_length": 7}, "max_seq_length is 7; expected 8 to 65535"),
        ({"short_seq_prob": 1.1}, "short_seq_prob is 1.1; expected 0 to 1"),
        ({"mlm_probability": 2.0}, "mlm_probability is 2.0"),
    ],
)
def test_settings_out_of_range_are_refused(corpus, tokenizer, settings, message):
    with pytest.raises(ValueError, match=message):
        instances_of(corpus, tokenizer, **settings)


def test_another_tokenizer_and_corpora_without_pairs(tmp_path, corpus, tokenizer):
    other = BertTokenizer(vocab={w: n for n, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])})
    with pytest.raises(ValueError, match="was made with another tokenizer"):
        instances_of(corpus, other)
    for number, documents in enumerate(([[5, 5]], [[5], [5], [5]])):
        single = make_corpus(tmp_path / str(number), tokenizer, documents)
        with pytest.raises(ValueError, match="next-sentence prediction needs at least 2 documents"):
            instances_of(single, tokenizer)
        assert instances_of(single, tokenizer, objective="mlm").batch(0, 1)["labels"].shape == (1, LENGTH)
    with pytest.raises(ValueError, match="is empty; expected stop above start"):
        instances_of(corpus, tokenizer).batch(5, 5)
    with pytest.raises(ValueError, match="position is -1"):
        instances_of(corpus, tokenizer).batch(-1, 5)
