"""What all tests of the benchmarks share."""

import pytest

from lab.benchmarks import idle


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch):
    """The benchmarks begin although other tests or programs run on this machine."""
    monkeypatch.setattr(idle, "busy_cores", lambda: 0.0)
