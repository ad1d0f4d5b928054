"""bert-repro serve --workers: nothing waits for a worker, and all end with the first process."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from bert_training.app import service_workers
from bert_training.app.service_workers import Workers, _Worker
from tests.helpers.model_folders import save_model
from tests.helpers.repository import ROOT
from tokenization.errors import UserError


class Process:
    """A worker of which the test says when it is lost, and with which status it ended."""

    def __init__(self, *_):
        self.made.append(self)
        self.process, self.has_served = self, False
        self.pid, self.exitcode, self.did = len(self.made), None, []

    def is_lost(self):
        return self.exitcode is not None

    def kill(self):
        self.did.append("kill")

    def terminate(self):
        self.did.append("terminate")

    def join(self, seconds):
        self.did.append(f"join {seconds:.0f}")


Process.made = []


def run(monkeypatch, *events):
    """Run two workers; each event is called between two looks. All processes that were made."""
    monkeypatch.setattr(Process, "made", [])
    monkeypatch.setattr(service_workers, "_Worker", Process)
    waiting = [*events, lambda: os.kill(os.getpid(), signal.SIGTERM)]
    monkeypatch.setattr(
        service_workers, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: waiting.pop(0)())
    )
    Workers(SimpleNamespace(workers=2, timeout_graceful_shutdown=30), []).run()
    return Process.made


def ends(status):
    return lambda: setattr(Process.made[0], "exitcode", status)


def test_a_killed_worker_is_replaced_and_the_signal_ends_all(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    killed, second, new = run(monkeypatch, ends(-9))
    assert killed.did == ["kill"]
    assert second.did == new.did == ["terminate", "join 35", "kill"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_workers_that_cannot_start_are_not_started_for_ever(monkeypatch):
    with pytest.raises(UserError, match="ended by itself with status 1"):
        run(monkeypatch, ends(1))
    assert len(Process.made) == 2 and "terminate" in Process.made[1].did


def test_a_worker_that_has_served_is_replaced_whatever_it_ended_with(monkeypatch):
    def ends_later():
        Process.made[0].has_served, Process.made[0].exitcode = True, 1

    assert len(run(monkeypatch, ends_later)) == 3


def test_a_worker_without_a_sign_of_life_is_lost(monkeypatch):
    worker = _Worker.__new__(_Worker)
    worker.process = SimpleNamespace(is_alive=lambda: True)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"), os.fdopen(writer, "wb"):
        worker._beats = SimpleNamespace(poll=lambda: False)
        worker._heard = time.monotonic() - service_workers.STUCK_SECONDS + 60
        assert not worker.is_lost()
        worker._heard -= 120
        assert worker.is_lost()
        beats, worker.has_served = [b"."], False
        worker._beats = SimpleNamespace(poll=lambda: bool(beats), recv_bytes=beats.pop)
        assert not worker.is_lost() and not worker.has_served
        beats.append(service_workers.SERVES)
        assert not worker.is_lost() and worker.has_served


def test_a_worker_ends_when_the_process_that_started_it_is_gone(monkeypatch):
    monkeypatch.setattr(service_workers, "BEAT_SECONDS", 0.01)
    server, sent = SimpleNamespace(should_exit=False), []
    pipe = SimpleNamespace(send_bytes=sent.append)
    service_workers._beat(server, pipe, parent=-1)
    assert server.should_exit and not sent


@pytest.mark.slow
@pytest.mark.parametrize("while_they_start", [True, False])
def test_sigterm_ends_all_within_the_bound_and_prints_lines_of_json_alone(tmp_path, pretrained, while_they_start):
    """No progress bars of the workers, and no warning about what they leave behind."""
    folder = save_model(tmp_path / "classes", pretrained, "BertForSequenceClassification")
    command = [sys.executable, "-m", "bert_training", "serve", str(folder), "--port", "0", "--workers", "2"]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        said = threading.Thread(target=lambda: lines.extend(process.stderr))
        said.start()
        try:
            port = int(process.stdout.readline().split("/docs")[0].rpartition(":")[2])
            if not while_they_start:
                from tests.app.test_service import answered, until

                until(lambda: answered(port), 120)
            process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            assert process.wait(60) == 0 and time.monotonic() - began < 45
        finally:
            process.kill()
            said.join()
    assert all(json.loads(line)["event"] == "request" for line in lines), lines
