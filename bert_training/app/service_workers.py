"""The processes of ``bert-repro serve --workers``: one that dies or hangs is replaced, and all end with the first.

Uvicorn's own supervisor waits for the answer of a worker that is still importing torch, and meanwhile hears neither
signals nor the death of another. Here nothing waits for a worker.
"""

import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from socket import socket
from threading import Thread
from typing import Any

import uvicorn

from bert_training.app.serve import leave, on_signals
from bert_training.app.service_log import Log, take_over
from tokenization.errors import UserError

LOOK_SECONDS = 0.2  # between two looks at the workers
STUCK_SECONDS = 600.0  # without a sign of life; a worker imports torch first, on a machine that may be busy
BEAT_SECONDS = 1.0
LATE_SECONDS = 5.0  # beyond uvicorn's own bound on what has begun, after which a worker is killed
# A sign of life of a worker that answers requests. One that ends before it does cannot serve, and nor could the next.
SERVES = b"s"


class Workers:
    """A number of processes with one application each, which accept connections of the same sockets."""

    def __init__(self, config: uvicorn.Config, sockets: Sequence[socket]) -> None:
        self.config, self.sockets = config, sockets
        self.log = Log()
        take_over(self.log)
        self.workers: list[_Worker] = []
        self._ending = False

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises ValueError if a worker cannot start."""
        with on_signals(self._end):
            try:
                self.workers = [_Worker(self.config, self.sockets) for _ in range(self.config.workers)]
                while not self._ending:
                    time.sleep(LOOK_SECONDS)
                    for place, worker in enumerate(self.workers):
                        if not self._ending and worker.is_lost():
                            self._replace(place)
            finally:
                self._stop()

    def _end(self, *_: Any) -> None:
        self._ending = True

    def _replace(self, place: int) -> None:
        old = self.workers[place]
        old.kill()
        if (old.process.exitcode or 0) > 0 and not old.has_served:
            raise UserError(
                f"a worker ended by itself with status {old.process.exitcode}, before it could serve; the folder may "
                "have changed, or there is no memory for as many workers"
            )
        self.workers[place] = new = _Worker(self.config, self.sockets)
        self.log.write(event="worker replaced", old=old.process.pid, new=new.process.pid)

    def _stop(self) -> None:
        """Let the workers finish what they have begun, but no longer than is promised."""
        for worker in self.workers:
            worker.process.terminate()
        end = time.monotonic() + (self.config.timeout_graceful_shutdown or 0) + LATE_SECONDS
        for worker in self.workers:
            worker.process.join(max(0.0, end - time.monotonic()))
            worker.kill()


class _Worker:
    def __init__(self, config: uvicorn.Config, sockets: Sequence[socket]) -> None:
        context = multiprocessing.get_context("spawn")
        self._beats, theirs = context.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(target=_work, args=(config, list(sockets), theirs, os.getpid()))
        self.process.start()
        theirs.close()
        self._heard = time.monotonic()
        self.has_served = False

    def is_lost(self) -> bool:
        """Whether it has died, or given no sign of life for ``STUCK_SECONDS``."""
        try:
            while self._beats.poll():
                self.has_served |= self._beats.recv_bytes() == SERVES
                self._heard = time.monotonic()
        except (OSError, EOFError):  # it is about to end
            pass
        return not self.process.is_alive() or time.monotonic() - self._heard > STUCK_SECONDS

    def kill(self) -> None:
        """End it if it has not ended."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self._beats.close()


def _work(config: uvicorn.Config, sockets: list[socket], beats: Connection, parent: int) -> None:
    """What a worker does."""
    server = uvicorn.Server(config)
    Thread(target=_beat, args=(server, beats, parent), name="beat", daemon=True).start()
    try:
        serve_until_signal(server, sockets)
    except UserError as error:  # the folder has changed since the first process opened it
        raise SystemExit(f"error: {error}") from None


def _beat(server: uvicorn.Server, beats: Connection, parent: int) -> None:
    """Give signs of life, and end with the process that started this one, however that ended."""
    while os.getppid() == parent:
        try:
            beats.send_bytes(SERVES if server.started else b".")
        except OSError:
            break
        time.sleep(BEAT_SECONDS)
    server.should_exit = True


def serve_until_signal(server: uvicorn.Server, sockets: list[socket]) -> None:
    """Open the model and serve until SIGTERM or Ctrl-C; one that comes before it can serve ends it at once.

    Uvicorn ends with the signal that stopped it. It finds a handler that does nothing here, so that the exit status is
    0, and that the process ends as Python does, with all that it has to clean up.
    """
    with on_signals(leave):
        server.config.load()  # uvicorn's own call would hear no signal until it is done
    with on_signals(lambda *_: None):
        server.run(sockets)
