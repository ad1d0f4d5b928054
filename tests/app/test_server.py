"""bert_training/app/server.py: requests that are too large or meant for another host, and ports that are taken."""

import asyncio
import json
import socket

import pytest

from bert_training.app.server import LARGEST_REQUEST, MOST_WAITING, Guard, free_port


def ask(
    guard: Guard, method: str = "GET", path: str = "/", query: str = "", sent_body: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the body of the response to a request."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": sent_body}

    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    place = {"path": path, "query_string": query.encode(), "server": ("127.0.0.1", 7860)}
    asyncio.run(guard({"type": "http", "method": method, **place, "headers": lines}, receive, send))
    start, body = sent
    return start["status"], {key.decode(): value.decode() for key, value in start["headers"]}, body["body"]


ASK = ("POST", "/gradio_api/run/drawn_1")
INPUTS = {0: 4, 1: 1}  # how many values the functions of the page take


async def page(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": b"the page"})


def guarded(**options) -> Guard:
    return Guard(page, INPUTS, **options)


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "127.0.0.1", "localhost:7860"])
def test_the_page_is_served_with_a_policy_against_other_hosts(host):
    status, headers, body = ask(guarded(), host=host)
    assert (status, body) == (200, b"the page")
    assert headers["content-type"] == "text/html" and headers["content-security-policy"].startswith(
        "default-src 'self'"
    )
    assert "http" not in headers["content-security-policy"] and "*" not in headers["content-security-policy"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7860", "127.0.0.1.evil.example", ""])
def test_another_name_for_this_machine_is_refused(host):
    status, headers, _ = ask(guarded(), host=host)
    assert status == 421 and "content-security-policy" in headers
    assert ask(guarded(hosts=None), host=host)[0] == 200


@pytest.mark.parametrize("length", [str(LARGEST_REQUEST + 1), "-1", "many", ""])
def test_a_request_that_is_too_large_is_refused_before_it_is_read(length):
    status, _, body = ask(guarded(), host="localhost", content_length=length)
    assert status == 413 and b"at most 2,097,152 bytes" in body
    assert ask(guarded(), host="localhost", content_length=str(LARGEST_REQUEST))[0] == 200
    assert ask(guarded(), host="localhost", transfer_encoding="chunked")[0] == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/theme.css", 200),
        ("GET", "/assets/index.js", 200),
        ("POST", "/", 404),
        ("HEAD", "/", 404),
        ("POST", "/assets/index.js", 404),
        ("POST", "/gradio_api/upload", 404),
        ("GET", "/gradio_api/run/drawn", 404),
        ("POST", "/gradio_api/run/", 404),
        ("POST", "/gradio_api/run/drawn/../../upload", 404),
        ("POST", "/gradio_api/queue/join", 404),
        ("GET", "/gradio_api/queue/data", 404),
        ("GET", "/gradio_api/file=http://a.example/", 404),
        ("GET", "/gradio_api/run-history/buckets", 404),
        ("GET", "//theme.css", 404),
    ],
)
def test_only_what_the_page_asks_for_is_passed_on(method, path, status):
    assert ask(guarded(), method, path, host="localhost")[0] == status
    assert ask(guarded(hosts=None), method, path, host="space.example")[0] == status  # in a Space, too


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "same-origin", "origin": "http://localhost:7860"}, 200),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"origin": "http://127.0.0.1:7860"}, 403),  # the other name of this machine
        ({"origin": "https://localhost:7860"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_other_web_pages_are_refused(headers, status):
    assert ask(guarded(), host="localhost:7860", **headers)[0] == status
    assert ask(guarded(hosts=None), host="space.example", **headers)[0] == 200  # shown inside of another page


def test_the_token_of_the_address_becomes_a_cookie():
    guard = guarded(token="secret")
    assert ask(guard, host="localhost")[0] == 403
    assert ask(guard, query="token=other", host="localhost")[0] == 403
    # Somebody who clicks the address in another program's page has the token.
    status, headers, _ = ask(guard, query="a=b&token=secret", host="localhost", sec_fetch_site="cross-site")
    assert (status, headers["set-cookie"]) == (200, "bert-7860=secret; Path=/; HttpOnly; SameSite=Strict")
    for cookie, expected in (
        ("bert-7860=secret", 200),
        ("a=b; bert-7860=secret", 200),
        ("bert-7860=", 403),
        ("bert-7861=secret", 403),
        ("\x01=;bert", 403),
    ):
        assert ask(guard, path="/theme.css", host="localhost", cookie=cookie)[0] == expected, cookie
    assert "set-cookie" not in ask(guard, path="/theme.css", host="localhost", cookie="bert-7860=secret")[1]
    assert ask(guard, path="/theme.css", query="token=secret", host="localhost")[0] == 403
    assert "set-cookie" not in ask(guarded(), host="localhost")[1]


def test_what_was_checked_is_passed_on_and_nothing_else():
    received = []

    async def echo(scope, receive, send):
        received.extend([await receive(), await receive()])
        await page(scope, receive, send)

    needed = {"fn_index": 0, "data": ["a", 1, None, True]}
    others = {"batched": True, "event_data": {"path": "http://a.example"}, "oauth_token": "x", "session_hash": 5}
    body = json.dumps(needed | others).encode()
    assert ask(Guard(echo, INPUTS), *ASK, sent_body=body, host="localhost")[0] == 200
    assert json.loads(received[0]["body"]) == needed
    assert received[1]["body"] == body  # what the sender sends after it
    for refused in (b"{}", b"[1]", b"\xff", b"", b"[" * 100_000):
        assert ask(guarded(), *ASK, sent_body=refused, host="localhost")[0] == 400, refused


@pytest.mark.parametrize(
    "changed",
    [
        {"data": [{"path": "http://a.example"}]},
        {"data": [["a"]]},
        {"data": {"a": "a"}},
        {"data": "a"},
        {"data": []},
        {"data": ["a", "b"]},
        *({"fn_index": number} for number in (0, 2, -1, 10**400, 1.0, True, "1", None, [1])),
    ],
)
def test_a_question_that_the_page_does_not_ask(changed):
    asked = {"data": ["a"], "fn_index": 1}
    assert ask(guarded(), *ASK, sent_body=json.dumps(asked).encode(), host="localhost")[0] == 200
    status, _, body = ask(guarded(), *ASK, sent_body=json.dumps(asked | changed).encode(), host="localhost")
    assert (status, body) == (
        400, b"This page has no such function, or it takes other texts, numbers and choices."
    )  # fmt: skip


def test_more_questions_than_can_wait_are_refused_with_a_sentence_that_the_page_shows():
    """Those that wait are answered, and the next one is taken again, also after one that failed."""
    body = json.dumps({"data": ["a"], "fn_index": 1}).encode()
    place = {"path": ASK[1], "query_string": b"", "headers": [(b"host", b"localhost")]}
    statuses, sentences = [], []

    async def everyone() -> None:
        answering = asyncio.Event()

        async def slow(scope, receive, send):
            await answering.wait()
            await page(scope, receive, send)
            raise RuntimeError("the model failed")

        guard = Guard(slow, INPUTS)

        async def receive():
            return {"type": "http.request", "body": body}

        async def send(message):
            if "status" in message:
                statuses.append(message["status"])
            elif message["body"] != b"the page":
                sentences.append(json.loads(message["body"]))

        async def asks():
            await guard({"type": "http", "method": "POST", **place}, receive, send)

        waiting = [asyncio.create_task(asks()) for _ in range(MOST_WAITING)]
        await asyncio.sleep(0)
        await asks()
        answering.set()
        failed = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(error) for error in failed] == ["the model failed"] * MOST_WAITING
        await asyncio.gather(asks(), return_exceptions=True)

    asyncio.run(everyone())
    assert statuses == [503] + [200] * (MOST_WAITING + 1)
    assert sentences == [{"error": "32 questions are waiting for an answer; ask again later."}]


def test_the_start_and_the_end_of_the_server_are_passed_on():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    asyncio.run(Guard(app, INPUTS)({"type": "lifespan"}, None, None))
    assert seen == ["lifespan"]


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "evil.example"])
def test_a_websocket_is_refused_whatever_host_it_names(host):
    sent = []

    async def app(scope, receive, send):
        raise AssertionError("the websocket reached the page")

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(app, INPUTS)({"type": "websocket", "headers": [(b"host", host.encode())]}, None, send))
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
