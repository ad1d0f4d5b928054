"""bert_training/files/processes.py: a run uses the cores that it was given, and no more."""

import os

from bert_training.files.processes import usable_cores


def test_a_scheduler_may_grant_fewer_cores_than_there_are(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5, 7}, raising=False)
    assert usable_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
