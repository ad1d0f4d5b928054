"""The log of the service: lines of JSON on standard error, written by a thread of its own.

Who reads standard error may be slow, or may have stopped reading. Then lines are lost, and counted; requests go on.
"""

import atexit
import contextlib
import json
import os
import queue
import sys
import threading
import time
from typing import Any

MOST = 10_000  # lines that wait
LAST_SECONDS = 1.0  # for the lines that wait when the process ends


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
            line = self._waiting.get()
            with contextlib.suppress(OSError):  # nobody reads any more
                _write(line)
            self._waiting.task_done()


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
