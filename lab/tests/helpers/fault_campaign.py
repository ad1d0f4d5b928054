"""The rows of the fault campaign, and the decorator that makes a test one of them.

A test of the campaign gets a seed from 0 to ``number`` - 1 and draws its fault from it. By default every tenth seed
runs; with ``BERT_REPRO_FAULTS=all``, which ``make faults`` sets, all do. One fault is repeated by its seed:

    pytest "lab/tests/faults/test_kills.py::test_a_killed_pretraining_goes_on[17]"
"""

from collections.abc import Callable
from typing import TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., None])

# The name of a row -> how many faults it must have at least.
ROWS = {
    "kills of a pre-training": 200,
    "kills of other scripts": 50,
    "kills while a file is written": 200,
    "signals": 50,
    "errors of the disk": 60,
    "damaged files": 110,
    "a world that changes": 26,
    "numbers that are not finite": 20,
    "hostile input": 20,
    "a long run": 1,
}
LONG_RUN_SECONDS = 7200


def faults(row: str, number: int, in_ci: bool = True) -> Callable[[Test], Test]:
    """Decorator of a test with an argument ``seed``: it stands for ``number`` faults of this row of ``ROWS``.

    Args:
        in_ci: whether every tenth seed runs by default, and therefore in continuous integration.
    """
    assert row in ROWS, f"{row!r} is none of {list(ROWS)}"

    def decorate(test: Test) -> Test:
        for mark in (
            pytest.mark.parametrize("seed", range(number)),
            pytest.mark.faults(row, in_ci=in_ci),
            pytest.mark.slow,
        ):
            test = mark(test)
        return test

    return decorate
