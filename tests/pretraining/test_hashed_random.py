"""bert_training/pretraining/hashed_random.py: random numbers that are hashes of counters."""

import numpy as np
import pytest

from bert_training.pretraining.hashed_random import below, random_bits, uniform


def test_random_bits_are_splitmix64():
    # These are the published first outputs of splitmix64 with seed 0 (Vigna, prng.di.unimi.it/splitmix64.c).
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(random_bits(counter)) for counter in range(3)] == published


def test_random_bits_broadcast_and_tell_counters_apart():
    grid = random_bits(7, np.arange(50)[:, None], np.arange(40)[None])
    assert grid.shape == (50, 40) and len(np.unique(grid)) == 2000
    assert int(grid[3, 5]) == int(random_bits(7, 3, 5)) != int(random_bits(7, 5, 3))
    assert int(random_bits(-1)) != int(random_bits(1))


def test_uniform_and_below_are_uniform():
    values = uniform(random_bits(1, np.arange(200_000)))
    assert values.min() >= 0 and values.max() < 1
    assert values.mean() == pytest.approx(0.5, abs=0.003) and values.var() == pytest.approx(1 / 12, abs=0.001)
    counts = np.bincount(below(random_bits(2, np.arange(70_000)), 7), minlength=8)
    assert counts[7] == 0 and np.abs(counts[:7] - 10_000).max() < 400  # 4 standard deviations
