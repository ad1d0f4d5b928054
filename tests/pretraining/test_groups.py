"""bert_training/pretraining/instances.py: several shards, several groups of them, and offsets beyond 32 bits."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_training.pretraining import instances as groups
from bert_training.pretraining import instances as instances_module
from bert_training.pretraining import masking
from bert_training.pretraining.corpus import Offsets, Shard
from bert_training.pretraining.instances import (
    InstanceSettings,
    PretrainingInstances,
    groups_of,
    promised_size,
    with_pairs,
)
from bert_training.pretraining.segments import PLANNERS
from tests.helpers.made_up_corpora import made_up, offsets
from tests.helpers.numbered_corpus import instances_of, make_corpus, originals, random_lengths
from tokenization.bert_tokenizer import tokenizer_sha256

OBJECTIVES = ("mlm_nsp", "mlm_sop", "mlm", "ltr")


@pytest.fixture(scope="module")
def sliced(tmp_path_factory, tokenizer):
    """The same text in several shards."""
    folder = tmp_path_factory.mktemp("sliced") / "c"
    return make_corpus(folder, tokenizer, random_lengths(60, (1, 30)), slice_bytes=9000)


@pytest.fixture
def small(monkeypatch):
    """Groups of about two thousand tokens, the samples of which are nearly all of them."""
    monkeypatch.setattr(groups, "TOGETHER", 2000)
    monkeypatch.setattr(groups, "_SAMPLES", 1)


# --- Which groups -----------------------------------------------------------------------------------------


def test_every_shard_is_in_one_group(sliced, corpus, monkeypatch):
    assert groups_of(corpus.shards) == [corpus.shards] and groups_of(sliced.shards) == [sliced.shards]
    assert len(sliced.shards) == 5
    monkeypatch.setattr(groups, "TOGETHER", 4000)
    found = groups_of(sliced.shards)
    assert found == [sliced.shards[::2], sliced.shards[1::2]]
    monkeypatch.setattr(groups, "TOGETHER", 1)
    assert groups_of(sliced.shards) == [[shard] for shard in sliced.shards]


def test_shards_without_pairs_are_left_out_where_pairs_are_needed():
    lonely = Offsets("path", np.arange(41) * 10, offsets(np.full(40, 1)))
    paired = Offsets("path", np.arange(81) * 10, offsets(np.full(40, 2)))
    assert with_pairs([lonely, paired]) == [paired]
    assert with_pairs([lonely]) == [lonely]  # Which is refused by the planner.


def test_the_first_document_at_a_token(corpus):
    (shard,) = corpus.shards
    starts = shard.sentences[shard.documents[:-1]]
    for token in (0, 1, int(starts[5]), int(starts[5]) + 1, int(starts[-1]) + 1, corpus.num_tokens):
        assert shard.first_document(token) == np.searchsorted(starts, token)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_epoch_of_several_shards_has_the_instances_of_all_in_one_order(sliced, tokenizer, objective):
    """Every one of them once, and those of all shards among the first."""
    instances = instances_of(sliced, tokenizer, objective=objective)
    batch = instances.batch(0, instances.epoch_size(0))
    found = batch["input_ids"].numpy() if objective == "ltr" else originals(batch)
    expected = [
        instances._rows_of_shard(shard, plan, np.arange(len(plan)))["input_ids"]
        for shard, plan in zip(sliced.shards, instances.plans(0), strict=True)
    ]
    borders = np.cumsum(list(map(len, expected)))
    assert np.array_equal(found, np.concatenate(expected)[instances.order(0)])
    assert set(np.searchsorted(borders, instances.order(0)[:60], side="right")) == set(range(5))
    assert (np.diff([plan.label.mean() for plan in instances.plans(0)]) != 0).any() or objective in ("mlm", "ltr")


# --- The stream of instances ------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm"])
def test_a_batch_depends_on_its_position_alone(sliced, tokenizer, objective):
    """Also across the borders of groups and epochs, and in a process that has planned no group before."""
    one = instances_of(sliced, tokenizer, objective=objective)
    size = one.epoch_size(0)
    assert len(one.groups) == 4 and one.epoch_size(7) == size
    whole = one.batch(0, size + 50)
    for start in (size // 4 - 20, size - 25):  # the second one ends in the second epoch
        part = instances_of(sliced, tokenizer, objective=objective).batch(start, start + 50)
        for name, tensor in part.items():
            assert (tensor == whole[name][start : start + 50]).all(), (name, start)
    assert one.locate(3 * size + 4) == (3, 4)


@pytest.mark.usefixtures("small")
def test_an_epoch_shows_nearly_every_instance_once_and_the_next_one_others_first(sliced, tokenizer):
    one = instances_of(sliced, tokenizer, objective="mlm")
    size = one.epoch_size(0)
    planned = sum(len(plan) for group in range(len(one.groups)) for plan in one.plans(0, group))
    assert size == pytest.approx(planned, rel=0.02)
    shown = [set(originals(one.batch(epoch * size, (epoch + 1) * size)).ravel()) for epoch in (0, 1)]
    assert all(len(ids) > 0.97 * sliced.num_tokens for ids in shown)
    firsts = [originals(one.batch(epoch * size, epoch * size + 20))[:, 1] for epoch in range(6)]
    assert len({first.tobytes() for first in firsts}) == 6  # Other instances come first
    orders = {tuple(part[0] for part in one._in_groups(epoch, 0, size)) for epoch in range(6)}
    assert len(orders) > 2 and all(sorted(order) == list(range(len(one.groups))) for order in orders)


@pytest.mark.usefixtures("small")
def test_instances_beyond_the_plan_of_a_group_are_masked_anew(sliced, tokenizer):
    one = instances_of(sliced, tokenizer, objective="mlm")
    one._promised = one._promised * 2  # as if the samples had promised twice as many
    group, _, stop, first = next(one._in_groups(0, 0, one.epoch_size(0)))
    planned = sum(map(len, one.plans(0, group)))
    assert first == 0 and stop > planned
    batch, again = one.batch(0, 5), one.batch(planned, planned + 5)
    assert np.array_equal(originals(batch), originals(again)) and not (batch["labels"] == again["labels"]).all()


@pytest.mark.usefixtures("small")
def test_every_instance_of_an_epoch_has_masks_of_its_own(sliced, tokenizer, monkeypatch):
    """Also if it is the first one of its group, as others are."""
    numbers = []

    def noted(rule, ids, seed, epoch, index):
        numbers.extend(index.tolist())
        return masking.mask_batch(rule, ids, seed, epoch, index)

    monkeypatch.setattr(instances_module, "mask_batch", noted)
    one = instances_of(sliced, tokenizer, objective="mlm")
    one.batch(0, one.epoch_size(0))
    assert numbers == list(range(one.epoch_size(0)))


def test_a_promise_is_close_to_the_plan():
    """4 samples of 131,072 tokens of a shard in two kinds of text."""
    for shape in ((4000, (1, 60), (3, 40)), (30_000, (1, 6), (5, 60))):
        corpus = made_up(*shape)

        def size_of(documents):
            return len(PLANNERS["packed"](documents, 1, 10, 125, 0.1)(0))

        assert promised_size(corpus, size_of) == pytest.approx(size_of(corpus), rel=0.02)


# --- Offsets beyond 32 bits -------------------------------------------------------------------------------

FAR = (2**31 - 5_000, 2**32 - 5_000, 2**40 - 5_000)  # The text crosses the border.


@pytest.mark.parametrize("first", FAR)
@pytest.mark.parametrize("planner", ["next_or_random", "in_order_or_swapped", "packed"])
def test_a_plan_of_far_tokens_is_that_of_near_ones(first, planner):
    near, far = (PLANNERS[planner](made_up(40, (1, 30), (3, 40), start), 1, 10, 125, 0.1)(0) for start in (0, first))
    assert np.array_equal(far.a_start, near.a_start + first) and np.array_equal(far.b_start, near.b_start + first)
    assert np.array_equal(far.a_length, near.a_length) and far.used_tokens == near.used_tokens


class EndlessTokens:
    """Token number n is n % 7919 + 5, for n up to 2**60."""

    def __getitem__(self, index):
        assert index.dtype == np.int64
        return (index % 7919 + 5).astype(np.uint16)


@pytest.mark.parametrize(("first", "objective"), list(zip(FAR * 2, OBJECTIVES)))
def test_the_ids_of_far_tokens_are_read_in_their_places(tokenizer, first, objective):
    far = made_up(40, (1, 30), (3, 40), first)
    shard = Shard(far.path, far.sentences, far.documents, EndlessTokens(), None, {}, states={})
    corpus = SimpleNamespace(shards=[shard], tokenizer_sha256=tokenizer_sha256(tokenizer))
    instances = PretrainingInstances(
        corpus, tokenizer, InstanceSettings(seed=1, max_seq_length=64, objective=objective, random_replace_prob=0)
    )
    batch, plan = instances.batch(0, 40), instances.plan(0)
    ids = batch["input_ids"].numpy() if objective == "ltr" else originals(batch)
    for row, place in zip(ids, instances.order(0)[:40]):
        a = np.arange(plan.a_length[place]) + plan.a_start[place]
        b = np.arange(plan.b_length[place]) + plan.b_start[place]
        assert a[0] >= first and np.array_equal(row[1 : 1 + len(a)], a % 7919 + 5)
        assert np.array_equal(row[2 + len(a) : 2 + len(a) + len(b)], b % 7919 + 5)
