"""The log of the service: lines of JSON on standard error, written by a thread of its own.

Who reads standard error may be slow, or may have stopped reading. Then lines are lost, and counted; requests go on.
"""

import atexit
import contextlib
import json
import logging
import os
import queue
import sys
import threading
import time
from typing import Any

MOST = 10_000  # lines that wait
LAST_SECONDS = 1.0  # for the lines that wait when the process ends
TOGETHER = 256  # lines that are written at once
PAUSE_SECONDS = 0.02  # in which lines collect: a thread that wakes for each of them would take time from the requests


class Log:
    """Writes lines without making anybody wait; ``lost`` says how many had no room."""

    def __init__(self, most: int = MOST) -> None:
        self.lost = 0
        self._waiting: queue.Queue[str] = queue.Queue(most)
        threading.Thread(target=self._serve, name="log", daemon=True).start()
        atexit.register(self.flush, LAST_SECONDS)

    def write(self, **facts: Any) -> None:
        """Add a line with the time and these facts."""
        facts = {name: round(value, 6) if isinstance(value, float) else value for name, value in facts.items()}
        line = json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())} | facts)
        try:
            self._waiting.put_nowait(line + "\n")
        except queue.Full:
            self.lost += 1

    def flush(self, seconds: float) -> None:
        """Wait until all lines are written, but no longer than that."""
        end = time.monotonic() + seconds
        while self._waiting.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.005)

    def _serve(self) -> None:
        while True:
            lines = [self._waiting.get()]
            time.sleep(PAUSE_SECONDS)
            with contextlib.suppress(queue.Empty):
                while len(lines) < TOGETHER:
                    lines.append(self._waiting.get_nowait())
            try:
                _write("".join(lines))
            except OSError:  # nobody reads any more
                self.lost += len(lines)
            for _ in lines:
                self._waiting.task_done()


class Handler(logging.Handler):
    """Hands what uvicorn and asyncio say to a log, without what a request may have brought."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Add a line with the first words, and the class of the error if there is one."""
        error = record.exc_info[0] if record.exc_info else None
        said = str(record.msg).partition("\n")[0][:200]
        self.log.write(event="warning", by=record.name, said=said, **({"error": error.__name__} if error else {}))


def take_over(log: Log) -> None:
    """From now on, what uvicorn and asyncio say goes to this log; their own handlers would wait for the reader."""
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [Handler(log)], False


def _write(line: str) -> None:
    """Past Python's buffer, whose lock a thread that waits here would hold when the process ends."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # not a file
        print(line, end="", file=sys.stderr, flush=True)
        return
    data = line.encode()
    while data:
        data = data[os.write(descriptor, data) :]
