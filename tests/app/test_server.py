"""training/app/server.py: requests that are too large or meant for another host, and ports that are taken."""

import asyncio
import socket

import pytest

from training.app.server import LARGEST_REQUEST, Guard, free_port


def ask(guard: Guard, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the body of the response to a request."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b""}

    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(guard({"type": "http", "headers": lines}, receive, send))
    start, body = sent
    return start["status"], {key.decode(): value.decode() for key, value in start["headers"]}, body["body"]


async def page(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": b"the page"})


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "127.0.0.1", "localhost:7860"])
def test_the_page_is_served_with_a_policy_against_other_hosts(host):
    status, headers, body = ask(Guard(page), host=host)
    assert (status, body) == (200, b"the page")
    assert headers["content-type"] == "text/html" and headers["content-security-policy"].startswith(
        "default-src 'self'"
    )
    assert "http" not in headers["content-security-policy"] and "*" not in headers["content-security-policy"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7860", "127.0.0.1.evil.example", ""])
def test_another_name_for_this_machine_is_refused(host):
    status, headers, _ = ask(Guard(page), host=host)
    assert status == 421 and "content-security-policy" in headers
    assert ask(Guard(page, hosts=None), host=host)[0] == 200


@pytest.mark.parametrize("length", [str(LARGEST_REQUEST + 1), "-1", "many", ""])
def test_a_request_that_is_too_large_is_refused_before_it_is_read(length):
    status, _, body = ask(Guard(page), host="localhost", content_length=length)
    assert status == 413 and b"at most 2,097,152 bytes" in body
    assert ask(Guard(page), host="localhost", content_length=str(LARGEST_REQUEST))[0] == 200
    assert ask(Guard(page), host="localhost", transfer_encoding="chunked")[0] == 413


def test_the_start_and_the_end_of_the_server_are_passed_on():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    asyncio.run(Guard(app)({"type": "lifespan"}, None, None))
    assert seen == ["lifespan"]


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "evil.example"])
def test_a_websocket_is_refused_whatever_host_it_names(host):
    sent = []

    async def app(scope, receive, send):
        raise AssertionError("the websocket reached the page")

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(app)({"type": "websocket", "headers": [(b"host", host.encode())]}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_a_port_that_is_taken_is_an_error_and_zero_finds_a_free_one():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"--port {port}: cannot be opened on 127.0.0.1 .*Give another port"):
            free_port(port)
        assert free_port(0) not in (0, port)
    assert free_port(port) == port
