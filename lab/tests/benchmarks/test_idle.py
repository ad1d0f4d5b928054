"""lab/benchmarks/idle.py: a measurement begins on idle cores only, or says that they were not."""

import subprocess
import sys

import pytest

from lab.benchmarks import idle
from lab.benchmarks.idle import busy_cores  # as it is; conftest.py replaces it in the module


def test_a_busy_process_is_seen():
    process = subprocess.Popen([sys.executable, "-c", "while True: sum(range(10_000))"])
    try:
        assert busy_cores(0.5) > idle.ALLOWED
    finally:
        process.kill()
        process.wait()


def test_busy_cores_are_refused_or_recorded(monkeypatch):
    monkeypatch.setattr(idle, "busy_cores", lambda: 1.3)
    with pytest.raises(SystemExit, match=r"other programs keep 1\.3 of \d+ busy.*add --busy"):
        idle.demand_idle_cores(accept_busy=False)
    assert idle.demand_idle_cores(accept_busy=True) == {"busy_cores_at_start": 1.3}
    monkeypatch.setattr(idle, "busy_cores", lambda: 0.02)
    assert idle.demand_idle_cores(accept_busy=False) == {"busy_cores_at_start": 0.02}
