"""lab/benchmarks/waiting_policy.py: the settings take turns, and the busy process runs only when it should."""

import json
import os

import pytest

from lab.benchmarks import waiting_policy


def test_settings_take_turns_with_and_without_the_busy_process(tmp_path, monkeypatch, capsys):
    running, calls = [], []
    start = waiting_policy.subprocess.Popen

    def started(command, **more):
        process = start(command, **more)
        if command[0] == waiting_policy.sys.executable:  # This leaves out git, which is asked for the commit.
            running.append(process)
        return process

    def measure_in_process(variables, seconds):
        alive = [process for process in running if process.poll() is None]
        calls.append((variables, len(alive), seconds))
        return float(len(calls))

    monkeypatch.setattr(waiting_policy.subprocess, "Popen", started)
    monkeypatch.setattr(waiting_policy, "measure_in_process", measure_in_process)
    output = tmp_path / "found.json"
    flags = ["--settings", "default", "passive", "--repetitions", "2", "--seconds", "3", "--output", str(output)]
    waiting_policy.main(flags)
    wanted = [({}, 0, 3.0), ({"OMP_WAIT_POLICY": "passive"}, 0, 3.0), ({}, 1, 3.0)]
    wanted += [({"OMP_WAIT_POLICY": "passive"}, 1, 3.0)]
    assert calls == wanted * 2
    assert len(running) == 4 and all(process.poll() is not None for process in running)
    record = json.loads(output.read_text())
    assert record["steps_per_second"]["idle"]["passive"] == {"median": 4.0, "range": [2.0, 6.0]}
    assert record["steps_per_second"]["beside one busy process"]["default"] == {"median": 5.0, "range": [3.0, 7.0]}
    assert {"command", "commit", "versions", "device", "cores", "load_at_start", "repetitions"} <= record.keys()


@pytest.mark.slow
def test_a_measurement_sees_only_its_own_variables(monkeypatch):
    monkeypatch.setitem(os.environ, "OMP_WAIT_POLICY", "active")
    assert waiting_policy.measure_in_process({"OMP_WAIT_POLICY": "passive"}, 0.1) > 0
