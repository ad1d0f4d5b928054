"""The load of the service's benchmark: it notices wrong answers and broken connections, and its tables can be read."""

import asyncio
import json

import pytest

from lab import tables
from lab.benchmarks import load, service
from lab.benchmarks.load import Load, alike


def answered(answers, requests, expected=None):
    """The load, after a server has given these answers to one client in their order; None closes the connection."""
    given = iter(answers)

    async def client(reader, writer):
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            answer = next(given)
            if answer is None:
                break
            status, content = answer
            body = json.dumps(content).encode()
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()

    async def run():
        server = await asyncio.start_server(client, "127.0.0.1", 0)
        async with server:
            made = Load(server.sockets[0].getsockname()[1], [{"text": "a"}, {"text": "b"}], requests, expected, 1e-5)
            seconds = await load.run(made, 1)
        return load.summary(made, seconds, 0.1)

    return asyncio.run(run())


def test_wrong_answers_are_counted_and_broken_connections_asked_again(monkeypatch):
    monkeypatch.setattr(load, "AGAIN_SECONDS", 0.001)
    a, b = {"label": "x", "share": 0.25}, {"label": "y", "share": 0.5}
    near = {"label": "x", "share": 0.250009}
    found = answered([(200, a), (200, b), None, (200, near), (200, a), (503, b), (200, b)], 6, [a, b])
    assert (found["requests"], found["wrong"], found["sent_again"]) == (6, 2, 1)
    assert found["first_wrong"][0].startswith('200 {"label": "x"') and found["first_wrong"][1].startswith("503")
    assert answered([(200, a), (200, b), (200, a)], 3)["wrong"] == 0
    assert answered([(200, a), (200, b), (200, b)], 3)["wrong"] == 1, "the first answer counts as the right one"


def test_a_service_that_hangs_is_noticed(monkeypatch):
    monkeypatch.setattr(load, "PATIENCE_SECONDS", 0.1)

    async def run():
        async def silent(reader, writer):
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with server:
            await load.run(Load(server.sockets[0].getsockname()[1], [{}], 1, None, 0), 1)

    with pytest.raises(TimeoutError, match=r"no answer for 0\.1 seconds; 0 came before"):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        ({"a": [1.0, "x"]}, {"a": [1.000001, "x"]}, True),
        ({"a": [1.0, "x"]}, {"a": [1.1, "x"]}, False),
        ({"a": [1.0, "x"]}, {"a": [1.0, "y"]}, False),
        ({"a": [1.0]}, {"a": [1.0, 2.0]}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, {"a": 2}, False),
    ],
)
def test_answers_are_alike_but_for_small_differences_of_floats(found, expected, same):
    assert alike(found, expected, 1e-5) == same


def test_the_tables_say_what_was_measured():
    turns = [
        {"ratio": ratio, "requests_per_s": 100 * ratio, "p50_ms": 20.0, "p99_ms": 60.0, "wrong": 1, "requests": 50}
        | {"client_share_of_a_core": 0.05, "client_ms_per_request": 0.1}
        for ratio in (5.0, 6.0, 5.5)
    ]
    row = {"way": "batches", "flags": "--batch_size 16", **service._middle(turns)}
    speed = {"clients": 16, "pipeline_per_s": 100.0, "results": [row]}
    text = tables.service(speed)
    assert "| batches | `--batch_size 16` | 5.50 | 5.00 to 6.00 | 550.0 | 20 | 60 | 5 | 3 of 150 |" in text
