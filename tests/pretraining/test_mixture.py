"""bert_training/pretraining/data.py: exact shares, and instances that are a function of their position."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bert_training.inputs.flags.phases import Phase, whole_shares
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.data import (
    MixedInstances,
    Shares,
    epoch_size,
    note_new_epochs,
    phase_streams,
    record_mixture,
)
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from tests.helpers.small_corpora import make_tokenizer, random_documents


def test_every_step_and_every_prefix_has_its_share():
    """Floor or ceil of it, in exact whole numbers, for two to six sources; beyond a period as well."""
    draw = np.random.default_rng(0)
    weights = [[0.7, 0.3], [1, 0], [1 / 3, 2 / 3], [5, 3, 2], [0.123456, 0.5, 0.2], [1] * 6]
    weights += [[*draw.integers(0, 30, size).tolist(), 1] for size in (1, 2, 3, 4, 5) * 12]
    for given in weights:
        shares = Shares(given, int(draw.choice([1, 2, 7, 16, 100])))
        numbers = np.array(whole_shares(given))
        total, batch = numbers.sum(), shares.batch
        for step in [*range(40), 10**9]:
            has = np.bincount(shares.order(step), minlength=len(given))
            assert has.sum() == batch
            assert (np.abs(has * total - batch * numbers) < total).all(), (given, step)
            assert (np.abs(shares.before(step + 1) * total - (step + 1) * batch * numbers) < total).all(), (given, step)
            assert (shares.before(step + 1) - shares.before(step) == has).all()


@pytest.mark.parametrize(
    ("weights", "shares"),
    [([7, 3], (7, 3)), ([0.7, 0.3], (7, 3)), ([2, 0], (1, 0)), ([1, 2.0001], (3333, 6667)), ([0.1] * 3, (1, 1, 1))],
)
def test_shares_are_whole_numbers(weights, shares):
    assert whole_shares(weights) == shares


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> list[PretrainingInstances]:
    """Two small sources, of which the first is short; padded to the longest row of a batch."""
    tokenizer, folder = make_tokenizer(), tmp_path_factory.mktemp("sources")
    return [
        PretrainingInstances(
            build_corpus(random_documents(count, seed=count), tokenizer, folder / str(count)),
            tokenizer,
            InstanceSettings(seed=count, max_seq_length=24, objective="mlm_nsp", pad_to_max=False),
        )
        for count in (8, 40)
    ]


def rows(batch) -> list[dict]:
    """The instances of a batch without their padding."""
    lengths = batch["attention_mask"].sum(1).tolist()
    return [
        {name: (row[:length] if row.dim() else row).tolist() for name, values in batch.items() for row in [values[i]]}
        for i, length in enumerate(lengths)
    ]


def test_an_instance_is_the_next_one_of_its_source(sources):
    mixed = MixedInstances(sources, [0.6, 0.4], 7)
    together = rows(mixed.batch(0, 210))
    places, positions = mixed.places(0, 210)
    for source, instances in enumerate(sources):
        mine = np.flatnonzero(places == source)
        assert positions[mine].tolist() == list(range(len(mine)))
        assert [together[place] for place in mine] == rows(instances.batch(0, len(mine)))
    assert max(positions[places == 0]) > 2 * sources[0].epoch_size(0)  # Its masks are new in each epoch.
    parts = [rows(mixed.batch(start, start + 5)) for start in range(100, 150, 5)]
    assert [row for part in parts for row in part] == together[100:150]


def test_a_later_phase_goes_on_where_its_source_stopped(sources):
    phases = [Phase(24, 0.5, 2, 1, 0, 5, (1, 1)), Phase(24, 0.5, 3, 2, 5, 9, (1, 2))]
    first, second = phase_streams(phases, {24: sources}, world_size=2)
    assert first.read_before(5).tolist() == second.read_before(0).tolist() == [10, 10]
    assert second.read_before(4).tolist() == [10 + 16, 10 + 32]
    assert torch.equal(second.batch(0, 1)["input_ids"], sources[second.places(0, 1)[0][0]].batch(10, 11)["input_ids"])
    alone = Phase(24, 1.0, 2, 1, 0, 5)
    assert phase_streams([alone], {24: sources[:1]}, 2) == sources[:1]  # Without a mixture, the instances themselves.


def test_an_epoch_has_the_instances_of_all_sources_and_a_new_one_is_announced(sources):
    size = sources[0].epoch_size(0)
    assert epoch_size(sources, (0.6, 0.4)) == size + sources[1].epoch_size(0)
    assert epoch_size(sources, (1.0, 0.0)) == epoch_size(sources[:1], ()) == size
    said, logged = [], []
    phases = [Phase(24, 1.0, 4, 1, 0, size, (1, 1))]  # 2 instances of each source a step
    run = SimpleNamespace(is_main=True, say=said.append, log=lambda **event: logged.append(event))
    run.facts = {"mixture": [{"name": "a.txt"}, {"name": "b.txt"}]}
    for step in range(1, size + 1):
        note_new_epochs(run, phases, phase_streams(phases, {24: sources}, 1), step)
    first = [event["step"] for event in logged if event["source"] == "a.txt"]
    assert first[0] == size // 2 + 1 and len(said) == len(logged)  # the step that reads instance number `size`
    assert said[0].startswith(f"step {first[0]}: a.txt has run out and begins its epoch 2 of instances of 24 tokens")


def test_the_recorded_share_counts_the_batches_of_the_phases(make_run):
    """9 steps of 64 rows of one file, then 1 step of 8 rows of the other: 8 of 584 instances."""
    run, of_size = make_run(), SimpleNamespace(epoch_size=lambda _: 1000)
    phases = [Phase(128, 0.9, 64, 1, 0, 9, (1, 0)), Phase(512, 0.1, 8, 1, 9, 10, (0, 1))]
    text = SimpleNamespace(entries=[SimpleNamespace(name=name) for name in ("a", "b")])
    record_mixture(run, text, phases, {128: [of_size] * 2, 512: [of_size] * 2})
    assert [one["share"] for one in run.facts["mixture"]] == pytest.approx([576 / 584, 8 / 584], abs=1e-6)
