"""bert_training/tasks/cut_texts.py: rows_around gives every part of a long text as much context as fits."""

import random
from itertools import pairwise

from bert_training.tasks.cut_texts import rows_around


def test_rows_around_parts_worked_by_hand():
    assert rows_around([(0, 2), (2, 6), (6, 10)], 10, 6) == {0: [0], 1: [1], 4: [2]}
    assert rows_around([(0, 2), (2, 6), (6, 10)], 10, 10) == {0: [0, 1, 2]}
    assert rows_around([(0, 1), (1, 2), (9, 10)], 10, 5) == {0: [0, 1], 5: [2]}


def test_every_part_has_the_most_even_surroundings():
    generator = random.Random(0)
    for _ in range(200):
        cuts = sorted({0, *(generator.randrange(1, 60) for _ in range(9)), 60})
        parts = list(pairwise(cuts))
        room = max(b - a for a, b in parts) + generator.randrange(20)
        rows = rows_around(parts, 60, room)
        assert sorted(number for numbers in rows.values() for number in numbers) == list(range(len(parts)))
        for first, numbers in rows.items():
            for begin, end in (parts[number] for number in numbers):
                stop = min(60, first + room)
                assert first <= begin and end <= stop and stop - first == min(room, 60)
                # Of all rows that contain the part, none has more context on the side that has less.
                poorer = min(begin - first, stop - end)
                best = max(min(begin - f, min(60, f + room) - end) for f in range(max(0, end - room), begin + 1))
                assert poorer == best or first in (0, 60 - room)
