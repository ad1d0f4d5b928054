"""In an evaluation all processes run equally many forward passes, and no output counts twice."""

import json
from types import SimpleNamespace

import pytest

from bert_training.engine.batches import deal_batches
from tests.helpers.dealt_evaluations import BATCH, CASES
from tests.helpers.torchrun import torchrun


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 8])
def test_batches_are_dealt_in_equal_numbers(world_size, count):
    batches = [f"batch {number}" for number in range(count)]
    hands = [deal_batches(batches, SimpleNamespace(rank=rank, world_size=world_size)) for rank in range(world_size)]
    assert len(set(map(len, hands))) == 1
    assert sorted(batch for hand in hands for batch, is_filler in hand if not is_filler) == batches
    assert {batch for hand in hands for batch, is_filler in hand if is_filler} <= set(batches[-1:])


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_find_what_one_finds(make_run, tmp_path, case):
    """Of 1 batch the second process gets none, of 3 it gets one less. The first process must not wait for it."""
    torchrun("tests/programs/dealt_evaluation.py", [tmp_path, case])
    found = json.loads((tmp_path / "result.json").read_text())
    expected = CASES[case](make_run(per_device_eval_batch_size=BATCH))
    for one, two in zip(expected, found, strict=True):
        logits = one.pop("logits", []), two.pop("logits", [])
        for a, b in zip(*logits, strict=True):
            assert b == pytest.approx(a, abs=1e-5)
        assert two == pytest.approx(one, rel=1e-5)
