"""bert_training/files/repeated_hashes.py against a dictionary, with several files of hashes."""

from collections import defaultdict

import numpy as np
import pytest

from bert_training.files import repeated_hashes
from bert_training.files.repeated_hashes import HASH, repeated_places


@pytest.mark.parametrize("in_memory", [3, 17, 1000])
@pytest.mark.parametrize("least", [2, 4])
@pytest.mark.parametrize("buckets", [1, 5])
def test_all_places_but_the_first_of_hashes_in_enough_groups(tmp_path, monkeypatch, in_memory, least, buckets):
    """Some hashes differ in one half only, and some occur many times in one group."""
    monkeypatch.setattr(repeated_hashes, "_BUCKETS", buckets)
    for seed in range(6):
        rng = np.random.default_rng([seed, in_memory, least])
        count = int(rng.integers(0, 300))
        hashes = np.empty(count, HASH)
        hashes["high"], hashes["low"] = rng.zipf(1.3, count) % 40, rng.integers(0, 2, count)
        places = np.cumsum(rng.integers(1, 4, count))
        groups = np.sort(rng.integers(0, max(1, count // 3), count))
        cuts = np.sort(rng.integers(0, count + 1, 4))
        blocks = zip(*(np.split(array, cuts) for array in (hashes, places, groups)))
        found = [*repeated_places(blocks, count, least, tmp_path, in_memory)]
        by_hash = defaultdict(list)
        for (high, low), place, group in zip(hashes.tolist(), places.tolist(), groups.tolist()):
            by_hash[high, low].append((place, group))
        wanted = {
            place
            for members in by_hash.values()
            if len({group for _, group in members}) >= least
            for place, _ in members[1:]
        }
        flat = np.concatenate(found).tolist() if found else []
        assert len(flat) == len(set(flat)) and set(flat) == wanted
        assert not [*tmp_path.iterdir()]
