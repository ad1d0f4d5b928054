"""A lean client for the service: requests over connections that stay open, a new one as soon as the last is answered.

It shares the cores with the service that it measures, so it reads and writes bytes and parses nothing: an answer that
is known byte for byte costs one comparison. What it took of the processor stands in its result.

    python lab/benchmarks/load.py 8000 bodies.json --requests 2000 --clients 16

The file is a list of bodies. Request number n sends body n modulo their number. The program prints one JSON object.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

AGAIN_SECONDS = 0.05  # before a connection that was refused is tried again
TOLERANCE = 1e-5  # of a number, beside others in the batch
PATIENCE_SECONDS = 60.0  # without any answer: the service hangs


class Load:
    """What has been asked and answered.

    Args:
        bodies: of the requests, as JSON.
        expected: what the service must answer to each; None takes the first answer as the right one.
        tolerance: by which a number of an answer may differ.
    """

    def __init__(self, port: int, bodies: list[Any], requests: int, expected: list[Any] | None, tolerance: float):
        self.port, self.tolerance = port, tolerance
        self.messages = [message(port, body) for body in bodies]
        self.expected: list[Any] = list(expected) if expected else [None] * len(bodies)
        self.known: list[set[bytes]] = [set() for _ in bodies]  # right answers, as they came
        self.numbers = iter(range(requests))
        self.seconds: list[float] = []
        self.wrong: list[str] = []
        self.sent_again = 0  # their connection broke before the answer
        self.last = time.monotonic()

    async def client(self) -> None:
        """Ask until nothing is left to ask."""
        reader = writer = None
        try:
            for number in self.numbers:
                place, began = number % len(self.messages), time.perf_counter()
                while True:
                    try:
                        if writer is None:
                            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                        assert reader is not None
                        writer.write(self.messages[place])
                        status, body = await response(reader)
                        break
                    except (OSError, asyncio.IncompleteReadError):
                        if writer is not None:
                            writer.close()
                        reader = writer = None
                        self.sent_again += 1
                        await asyncio.sleep(AGAIN_SECONDS)
                self.seconds.append(time.perf_counter() - began)
                self.last = time.monotonic()
                if body not in self.known[place]:
                    self._check(place, status, body)
        finally:
            if writer is not None:
                writer.close()

    def _check(self, place: int, status: int, body: bytes) -> None:
        found = json.loads(body) if status == 200 else None
        if self.expected[place] is None:
            self.expected[place] = found
        if found is None or not alike(found, self.expected[place], self.tolerance):
            self.wrong.append(f"{status} {body[:200].decode('utf-8', 'replace')}")
        elif len(self.known[place]) < 50:
            self.known[place].add(body)


def message(port: int, body: Any) -> bytes:
    """The bytes of a request."""
    content = json.dumps(body).encode()
    head = f"POST /predict HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


async def response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of an answer. Raises OSError or IncompleteReadError if the connection ends before."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]
    body = await reader.readexactly(int(length))
    if b"connection: close" in head:
        reader.feed_eof()  # the next request finds the connection ended, and opens another
    return int(head[9:12]), body


def alike(found: Any, expected: Any, tolerance: float) -> bool:
    """Whether two answers have the same fields and words, and numbers that differ by no more than this."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(alike(found[key], expected[key], tolerance) for key in found)
    if isinstance(found, list) and isinstance(expected, list):
        pairs = zip(found, expected)
        return len(found) == len(expected) and all(alike(one, other, tolerance) for one, other in pairs)
    if isinstance(found, float) and isinstance(expected, float | int):
        return abs(found - expected) <= tolerance
    return bool(found == expected)


async def run(load: Load, clients: int) -> float:
    """The seconds of the load. Raises TimeoutError if nothing is answered for ``PATIENCE_SECONDS``."""
    began = time.perf_counter()
    tasks = [asyncio.create_task(load.client()) for _ in range(clients)]
    while True:
        _, pending = await asyncio.wait(tasks, timeout=1)
        if not pending:
            break
        if time.monotonic() - load.last > PATIENCE_SECONDS:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise TimeoutError(f"no answer for {PATIENCE_SECONDS:g} seconds; {len(load.seconds):,} came before")
    for task in tasks:
        task.result()
    return time.perf_counter() - began


def summary(load: Load, seconds: float, cpu: float) -> dict[str, Any]:
    """Requests a second, percentiles in milliseconds, and the share of one core that the client took."""
    times = sorted(load.seconds)

    def percentile(share: float) -> float:
        return round(1000 * times[min(len(times) - 1, int(share * len(times)))], 2)

    return {
        "requests": len(times),
        "seconds": round(seconds, 3),
        "requests_per_s": round(len(times) / seconds, 1),
        "p50_ms": percentile(0.5),
        "p99_ms": percentile(0.99),
        "longest_ms": round(1000 * times[-1], 1),
        "client_share_of_a_core": round(cpu / seconds, 3),
        "client_ms_per_request": round(1000 * cpu / len(times), 3),
        "wrong": len(load.wrong),
        "first_wrong": load.wrong[:3],
        "sent_again": load.sent_again,
    }


def main() -> None:
    """Ask, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("bodies", type=Path)
    parser.add_argument("--expected", type=Path, help="a list of answers; otherwise the first one counts as right")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="by which numbers may differ")
    args = parser.parse_args()
    bodies = json.loads(args.bodies.read_text(encoding="utf-8"))
    expected = json.loads(args.expected.read_text(encoding="utf-8")) if args.expected else None
    load = Load(args.port, bodies, args.requests, expected, args.tolerance)
    cpu = time.process_time()
    seconds = asyncio.run(run(load, args.clients))
    found = summary(load, seconds, time.process_time() - cpu)
    json.dump(found, sys.stdout)
    print()


if __name__ == "__main__":
    main()
