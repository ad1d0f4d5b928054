"""bert_training/pretraining/sections.py: corpora too large for one plan, and offsets beyond 32 bits."""

import itertools

import numpy as np
import pytest

from bert_training.pretraining import instances as instances_module
from bert_training.pretraining import masking, sections, segments
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from bert_training.pretraining.sections import Section, first_document, sections_of
from bert_training.pretraining.segments import PLANNERS
from tests.helpers.made_up_corpora import made_up, offsets
from tests.helpers.numbered_corpus import instances_of, make_corpus, numbered_tokenizer, originals, random_lengths
from tokenization.fingerprint import tokenizer_sha256

OBJECTIVES = ("mlm_nsp", "mlm_sop", "mlm", "ltr")


@pytest.fixture(scope="module")
def tokenizer():
    return numbered_tokenizer()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer):
    """About 7,500 tokens, so that no id occurs twice."""
    return make_corpus(tmp_path_factory.mktemp("c") / "c", tokenizer, random_lengths(60, (1, 30)))


@pytest.fixture
def small(monkeypatch):
    """Sections of about two thousand tokens, the samples of which are nearly all of them."""
    monkeypatch.setattr(sections, "WHOLE_TOKENS", 3000)
    monkeypatch.setattr(sections, "SECTION_TOKENS", 2000)
    monkeypatch.setattr(sections, "_SAMPLES", 1)


# --- Which sections ---------------------------------------------------------------------------------------


def test_a_corpus_of_ordinary_size_is_one_section(corpus):
    assert sections_of(corpus) == [corpus]
    assert sections_of(corpus, most=corpus.num_tokens) == [corpus]
    assert len(sections_of(corpus, most=corpus.num_tokens - 1, size=1000)) > 1


def test_every_document_is_in_one_section(corpus):
    found = sections_of(corpus, most=1, size=1000)
    borders = [section.documents for section in found]
    assert all(before[-1] == after[0] for before, after in itertools.pairwise(borders))
    assert np.array_equal(np.concatenate([own[:-1] for own in borders]), corpus.documents[:-1])
    assert sum(section.num_tokens for section in found) == corpus.num_tokens
    assert sum(section.num_sentences for section in found) == corpus.num_sentences
    longest = np.diff(corpus.sentences[corpus.documents]).max()
    assert 6 <= len(found) <= 9 and all(500 <= section.num_tokens <= 1500 + longest for section in found)


def test_a_section_without_pairs_is_joined_to_another():
    """Documents of one sentence have no pairs; they stand at the beginning, in the middle and at the end."""
    counts = [1] * 20 + [5] * 20 + [1] * 20 + [5] * 20 + [1] * 20
    total = sum(counts)
    corpus = Section("path", np.arange(total + 1) * 10, offsets(np.array(counts)))
    found = sections_of(corpus, most=1, size=100)
    assert len(found) > 8 and sum(section.num_documents for section in found) == 100
    assert all(section.num_documents >= 2 and section.num_sentences > section.num_documents for section in found)
    alone = Section("path", np.arange(41) * 10, offsets(np.full(40, 1)))
    assert len(sections_of(alone, most=1, size=100)) == 1  # Which is refused by the planner, as ever.


def test_the_first_document_at_a_token(corpus):
    starts = corpus.sentences[corpus.documents[:-1]]
    for token in (0, 1, int(starts[5]), int(starts[5]) + 1, int(starts[-1]) + 1, corpus.num_tokens):
        assert first_document(corpus, token) == np.searchsorted(starts, token)


# --- The stream of instances ------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm"])
def test_a_batch_depends_on_its_position_alone(corpus, tokenizer, objective):
    """Also across the borders of sections and epochs, and in a process that has planned no section before."""
    one = instances_of(corpus, tokenizer, objective=objective)
    size = one.epoch_size(0)
    assert len(one.sections) == 4 and one.epoch_size(7) == size
    whole = one.batch(0, size + 50)
    for start in (size // 4 - 20, size - 25):  # the second one ends in the second epoch
        part = instances_of(corpus, tokenizer, objective=objective).batch(start, start + 50)
        for name, tensor in part.items():
            assert (tensor == whole[name][start : start + 50]).all(), (name, start)
    assert one.locate(3 * size + 4) == (3, 4)


@pytest.mark.usefixtures("small")
def test_an_epoch_shows_nearly_every_instance_once_and_the_next_one_others_first(corpus, tokenizer):
    one = instances_of(corpus, tokenizer, objective="mlm")
    size = one.epoch_size(0)
    planned = sum(len(one.plan(0, section)) for section in range(len(one.sections)))
    assert size == pytest.approx(planned, rel=0.02)
    shown = [set(originals(one.batch(epoch * size, (epoch + 1) * size)).ravel()) for epoch in (0, 1)]
    assert all(len(ids) > 0.97 * corpus.num_tokens for ids in shown)
    firsts = [originals(one.batch(epoch * size, epoch * size + 20))[:, 1] for epoch in range(6)]
    assert len({first.tobytes() for first in firsts}) == 6  # Other instances come first
    orders = {tuple(part[0] for part in one._in_sections(epoch, 0, size)) for epoch in range(6)}
    assert len(orders) > 2 and all(sorted(order) == list(range(len(one.sections))) for order in orders)


@pytest.mark.usefixtures("small")
def test_instances_beyond_the_plan_of_a_section_are_masked_anew(corpus, tokenizer):
    one = instances_of(corpus, tokenizer, objective="mlm")
    one._promised = one._promised * 2  # as if the samples had promised twice as many
    section, _, stop, first = next(one._in_sections(0, 0, one.epoch_size(0)))
    planned = len(one.plan(0, section))
    assert first == 0 and stop > planned
    batch, again = one.batch(0, 5), one.batch(planned, planned + 5)
    assert np.array_equal(originals(batch), originals(again)) and not (batch["labels"] == again["labels"]).all()


@pytest.mark.usefixtures("small")
def test_every_instance_of_an_epoch_has_masks_of_its_own(corpus, tokenizer, monkeypatch):
    """Also if it is the first one of its section, as others are."""
    numbers = []

    def noted(rule, ids, seed, epoch, index):
        numbers.extend(index.tolist())
        return masking.mask_batch(rule, ids, seed, epoch, index)

    monkeypatch.setattr(instances_module, "mask_batch", noted)
    one = instances_of(corpus, tokenizer, objective="mlm")
    one.batch(0, one.epoch_size(0))
    assert numbers == list(range(one.epoch_size(0)))


@pytest.mark.usefixtures("small")
def test_the_other_document_of_a_pair_is_one_of_the_section(corpus, tokenizer):
    one = instances_of(corpus, tokenizer)
    for number, section in enumerate(one.sections):
        plan = one.plan(0, number)
        first, last = (int(section.sentences[section.documents[end]]) for end in (0, -1))
        assert plan.b_start.min() >= first and (plan.b_start + plan.b_length).max() <= last


def test_a_promise_is_close_to_the_plan():
    """4 samples of 131,072 tokens of each section; sections of 2 million tokens in two kinds of text."""
    for shape in ((4000, (1, 60), (3, 40)), (30_000, (1, 6), (5, 60))):
        corpus = made_up(*shape)

        def size_of(section):
            return len(PLANNERS["packed"](section, 1, 10, 125, 0.1)(0))

        for section in sections_of(corpus, most=1, size=1 << 21):
            assert sections.promised_size(section, size_of) == pytest.approx(size_of(section), rel=0.02)


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
    corpus = made_up(40, (1, 30), (3, 40), first)
    corpus.tokens, corpus.check_unchanged = EndlessTokens(), lambda: None
    corpus.manifest = {"key": {"tokenizer_sha256": tokenizer_sha256(tokenizer)}}
    corpus.num_tokens -= first
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


@pytest.mark.parametrize(("first", "planner"), [(2**31 - 300, "next_or_random"), (2**32 - 300, "packed")])
def test_sentences_beyond_32_bits_are_planned(tmp_path, first, planner):
    """A file with a hole: the sentences before the section have no place on the disk, and are never read in order."""
    near = made_up(40, (1, 30), (3, 40))
    path = tmp_path / "sentences.bin"
    with open(path, "wb") as file:
        file.seek(8 * first)
        file.write(near.sentences.tobytes())
    far = Section(tmp_path, np.asarray(np.memmap(path, np.int64, "r")), near.documents + first)
    plan = PLANNERS[planner](far, 1, 10, 125, 0.1)(0)
    shown = [np.arange(start, start + length) for start, length in zip(plan.a_start, plan.a_length)]
    assert (
        far.num_tokens == near.num_tokens
        and plan.b_start.min() >= 0
        and (plan.b_start + plan.b_length).max() <= near.num_tokens
    )
    every = np.sort(np.concatenate(shown))
    assert every[-1] < near.num_tokens and len(np.unique(every)) == len(every)
    if planner == "packed":
        assert np.array_equal(every, np.arange(near.num_tokens))


def test_a_position_far_in_the_stream_is_located(tokenizer, corpus):
    """After 2**40 instances of a corpus of some hundred."""
    instances = instances_of(corpus, tokenizer)
    cycle = sum(instances.epoch_size(epoch) for epoch in range(10))
    far = 2**40 // cycle * cycle
    assert instances.locate(far + 3) == (10 * (far // cycle), 3)
    assert (instances.batch(far, far + 8)["input_ids"] != instances.batch(0, 8)["input_ids"]).any()


def test_a_section_is_planned_block_by_block(corpus, monkeypatch):
    monkeypatch.setattr(segments, "_BLOCK_SENTENCES", 30)
    for section in sections_of(corpus, most=1, size=2000):
        blocks = [block.document for block in segments._blocks(section)]
        assert len(blocks) > 2
        assert np.array_equal(np.unique(np.concatenate(blocks)), np.arange(section.num_documents))


def test_a_section_is_a_view(corpus):
    found = sections_of(corpus, most=1, size=1000)
    assert all(section.sentences is corpus.sentences for section in found)
    assert all(np.shares_memory(section.documents, corpus.documents) for section in found)
