"""bert_training/pretraining/instances.py: what is in a batch, which depends on its position only."""

import pickle

import numpy as np
import pytest
import torch

from bert_training.engine.batches import IGNORED
from bert_training.pretraining import segments
from bert_training.pretraining.instances import VARIANTS, PretrainingInstances
from bert_training.pretraining.segments import IS_NEXT
from tests.helpers.numbered_corpus import LENGTH, document_of, instances_of, make_corpus, originals

PAD, UNK, CLS, SEP, MASK = range(5)


def pair_of(row, types, length):
    """The ids of A and of B in one unmasked row, after a check of everything around them."""
    assert row[0] == CLS and row[length - 1] == SEP and (row[length:] == PAD).all()
    (middle,) = np.flatnonzero(row[1 : length - 1] == SEP) + 1
    assert types.tolist() == [0] * (middle + 1) + [1] * (length - middle - 1) + [0] * (len(row) - length)
    return row[1:middle], row[middle + 1 : length - 1]


# --- The content of a batch -------------------------------------------------------------------------------


def test_pairs_are_spans_with_the_right_label(corpus, tokenizer):
    instances = instances_of(corpus, tokenizer)
    size = instances.epoch_size(0)
    batch = instances.batch(0, size)
    assert {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in batch.items()} == {
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


def test_swapped_pairs_are_consecutive_text(corpus, tokenizer):
    """The segment that came first in the text is A with the label 0 and B with the label 1."""
    instances = instances_of(corpus, tokenizer, objective="mlm_sop")
    batch = instances.batch(0, instances.epoch_size(0))
    labels = batch["next_sentence_label"].tolist()
    for row, types, mask, label in zip(
        originals(batch), batch["token_type_ids"].numpy(), batch["attention_mask"].numpy(), labels
    ):
        a, b = pair_of(row, types, mask.sum())
        earlier, later = (b, a) if label else (a, b)
        assert len(np.unique(document_of(corpus, [*a, *b]))) == 1
        assert (np.diff(earlier) == 1).all() and (np.diff(later) == 1).all() and later[0] > earlier[-1]
        if len(a) + len(b) < LENGTH - 3:
            assert later[0] == earlier[-1] + 1  # No token between them was cut away.
    assert 0.4 < np.mean(labels) < 0.6


def test_the_masks_do_not_depend_on_the_swap(corpus, tokenizer, monkeypatch):
    """Without any swap, the same instances have the same number of predicted tokens, and at the same places where the
    lengths of the segments are the same. A mask that depended on the label would give the label away.
    """
    settings = {"objective": "mlm_sop", "short_seq_prob": 0.0, "mlm_probability": 0.3}
    swapped = instances_of(corpus, tokenizer, **settings)
    size = swapped.epoch_size(0)
    batch, plan = swapped.batch(0, size), swapped.plan(0)
    order = swapped.order(0)
    monkeypatch.setattr(segments, "uniform", lambda bits: np.full(bits.shape, 0.75))
    ordered = instances_of(corpus, tokenizer, **settings)
    assert ordered.plan(0).label.sum() == 0 and plan.label.sum() > size / 3
    monkeypatch.undo()
    other = ordered.batch(0, size)
    masked, others = (found["labels"].numpy() != IGNORED for found in (batch, other))
    assert np.array_equal(masked.sum(1), others.sum(1))
    same = (plan.label[order] == 1) & (plan.a_length[order] == ordered.plan(0).a_length[order])
    assert same.sum() > 3 and np.array_equal(masked[same], others[same])


def test_masks_are_15_percent_of_the_real_tokens(corpus, tokenizer):
    batch = instances_of(corpus, tokenizer).batch(0, 200)
    ordinary = (torch.from_numpy(originals(batch)) > MASK).sum(1)
    assert (batch["labels"] != IGNORED).sum(1).tolist() == [max(1, round(0.15 * count)) for count in ordinary.tolist()]


# --- The other objectives -----------------------------------------------------------------------------------


def test_packed_segments_hold_every_token_once(corpus, tokenizer):
    instances = instances_of(corpus, tokenizer, objective="mlm")
    size = instances.epoch_size(0)
    batch = instances.batch(0, size)
    assert "next_sentence_label" not in batch and batch["token_type_ids"].sum() == 0
    rows = originals(batch)
    assert np.array_equal(np.sort(rows[rows > MASK]), np.arange(5, corpus.num_tokens + 5))
    starts, ends = set(corpus.shards[0].sentences[:-1].tolist()), set(corpus.shards[0].sentences[1:].tolist())
    for row, mask in zip(rows, batch["attention_mask"].numpy()):
        tokens = row[1 : mask.sum() - 1]
        assert row[0] == CLS and row[mask.sum() - 1] == SEP and (np.diff(tokens) == 1).all()
        assert len(np.unique(document_of(corpus, tokens))) == 1
        if len(tokens) == LENGTH - 2 or mask.sum() > 20:  # Shorter instances may begin and end inside a sentence.
            assert tokens[0] - 5 in starts or tokens[-1] - 4 in ends
    assert (batch["labels"] != IGNORED).sum() > 0.13 * corpus.num_tokens


def test_left_to_right_labels_are_the_next_tokens(corpus, tokenizer):
    batch = instances_of(corpus, tokenizer, objective="ltr").batch(0, 50)
    ids, labels = batch["input_ids"], batch["labels"]
    assert (ids != MASK).all() and "next_sentence_label" not in batch
    labelled = labels != IGNORED
    assert torch.equal(labels[:, :-1][labelled[:, :-1]], ids[:, 1:][labelled[:, :-1]])
    assert torch.equal(labelled.sum(1), batch["attention_mask"].sum(1) - 2)  # [CLS] and [SEP] have no labels.
    assert labelled[:, 0].all() and (labels != SEP).all()


# --- An instance depends on its position only -------------------------------------------------------------


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm", "ltr", "mlm_sop"])
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


@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm", "mlm_sop"])
def test_processes_that_are_no_forks_make_the_same_batches(corpus, tokenizer, objective):
    """On macOS they get the instances as a pickle, without the plans."""
    instances = instances_of(corpus, tokenizer, objective=objective)
    expected = instances.batch(3, 9)
    assert_same(expected, pickle.loads(pickle.dumps(instances)).batch(3, 9))


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
    rows = [instances._rows(epoch, 0, 0, 20, 0)["input_ids"] for epoch in (0, 1, VARIANTS)]
    rows.append(instances_of(corpus, tokenizer, seed=2).batch(0, 20)["input_ids"].numpy())
    for first in range(4):
        for second in range(first):
            assert not np.array_equal(rows[first], rows[second])


def test_the_same_segments_get_fresh_masks(corpus, tokenizer, monkeypatch):
    monkeypatch.setattr(PretrainingInstances, "order", lambda self, epoch, section=0: np.arange(self.epoch_size(epoch)))
    instances = instances_of(corpus, tokenizer)
    cycle = sum(instances.epoch_size(epoch) for epoch in range(VARIANTS))
    first, again = instances.batch(0, 50), instances.batch(cycle, cycle + 50)
    assert np.array_equal(originals(first), originals(again))
    assert (first["labels"] == again["labels"]).all(1).sum() < 5
    other = instances_of(corpus, tokenizer, seed=2)
    other._planners = instances._planners
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
        assert_same(
            short,
            {name: tensor[:, :width].contiguous() if tensor.ndim == 2 else tensor for name, tensor in long.items()},
        )
    assert len(widths) > 1


# --- The user's mistakes ----------------------------------------------------------------------------------


def test_corpora_without_pairs(tmp_path, tokenizer):
    for number, documents in enumerate(([[5, 5]], [[5], [5], [5]])):
        single = make_corpus(tmp_path / str(number), tokenizer, documents)
        with pytest.raises(ValueError, match="next-sentence prediction needs at least 2 documents"):
            instances_of(single, tokenizer)
        assert instances_of(single, tokenizer, objective="mlm").batch(0, 1)["labels"].shape == (1, LENGTH)
