"""What a client of the service may not do: send too much, too slowly, or ask under another machine's name.

Also what is counted and logged of every request: never its text, nor an address that it made up.
"""

import asyncio
import bisect
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

from uvicorn.protocols.http.h11_impl import H11Protocol

from bert_training.app.service_log import Log

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Response(NamedTuple):
    """An answer in JSON."""

    status: int
    content: bytes
    headers: Mapping[str, str] = {}


Post = Callable[[Mapping[bytes, bytes], bytes], Awaitable[Response]]

LARGEST_BODY = 2**20  # bytes
BODY_SECONDS = 10.0  # from the end of the headers to that of the body
IDLE_SECONDS = 5.0  # without a complete request, after which a connection is closed; it may take twice as long
ANSWER_SECONDS = 120.0  # for a request and its answer, after which the connection is closed
CONNECTIONS = 256
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
GONE = 499  # as nginx notes it: the client has closed the connection before the answer
CROWDED = b"""HTTP/1.1 503 Service Unavailable\r
content-type: application/json\r
content-length: 43\r
retry-after: 5\r
connection: close\r
\r
{"error": "too many connections are open"}\n"""
BROKEN = "this is a mistake of the service; its log says more"
ENDING = "the service is ending, and the answer was not ready in time"
PATHS = ("/predict", "/embed", "/health", "/metrics", "/docs", "/openapi.json")


class Metrics:
    """Counts of this process in Prometheus' text format."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: Counter[int] = Counter()  # the number of a bucket -> requests
        self.total_seconds = 0.0
        self.texts = 0

    def note(self, path: str, status: int, seconds: float) -> None:
        """Count a request; the times are those of /predict and /embed that were answered."""
        self.requests[path, status] += 1
        if path in ("/predict", "/embed") and status == 200:
            self.seconds[bisect.bisect_left(BUCKETS, seconds)] += 1
            self.total_seconds += seconds

    def lines(self, pending: int, lost: int) -> Iterator[str]:
        """The lines of /metrics.

        Args:
            pending: texts that wait or are being read.
            lost: lines of the log that nobody has read in time.
        """
        yield "# HELP bert_requests_total Requests by path and status.\n# TYPE bert_requests_total counter"
        for (path, status), count in sorted(self.requests.items()):
            yield f'bert_requests_total{{path="{path}",status="{status}"}} {count}'
        yield "# HELP bert_texts_total Texts, pairs or questions that were answered.\n# TYPE bert_texts_total counter"
        yield f"bert_texts_total {self.texts}"
        yield "# HELP bert_pending_texts Texts that wait or are being read.\n# TYPE bert_pending_texts gauge"
        yield f"bert_pending_texts {pending}"
        yield "# HELP bert_log_lines_lost_total Lines of the log that were not read in time."
        yield f"# TYPE bert_log_lines_lost_total counter\nbert_log_lines_lost_total {lost}"
        yield "# HELP bert_request_seconds Seconds of an answered request.\n# TYPE bert_request_seconds histogram"
        count = 0
        for number, edge in enumerate((*BUCKETS, "+Inf")):
            count += self.seconds[number]
            yield f'bert_request_seconds_bucket{{le="{edge}"}} {count}'
        yield f"bert_request_seconds_sum {self.total_seconds:.6f}\nbert_request_seconds_count {count}"


class Limits:
    """An ASGI middleware: reads the body within the limits before the application sees the request; counts and logs.

    Args:
        app: answers what has no place in ``posts``.
        posts: path -> what answers a POST there, from the headers and the body to the status, the further headers and
            the content. FastAPI's own way to a route takes longer than a small network for a text.
        log: where requests and mistakes are noted.
        hosts: the names under which the service may be asked for, against web pages whose own name points to this
            machine (DNS rebinding); None allows all.
    """

    def __init__(
        self, app: App, posts: Mapping[str, Post], metrics: Metrics, log: Log, hosts: tuple[str, ...] | None
    ) -> None:
        self.app, self.posts, self.metrics, self.log, self.hosts = app, posts, metrics, log, hosts

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        began, status, body = time.perf_counter(), 0, b""

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            headers = dict(scope["headers"])
            refusal, body = await self._refusal(headers, receive)
            if refusal:
                await _refuse(noting, *refusal)
            elif scope["method"] == "POST" and scope["path"] in self.posts:
                if response := await _unless_gone(self.posts[scope["path"]](headers, body), receive):
                    await _respond(noting, response)
                else:
                    status = GONE
            else:
                await self.app(scope, _given(body, receive), noting)
        except asyncio.CancelledError:  # by uvicorn, after SIGTERM and its patience with what had begun
            if status:
                raise
            await _refuse(noting, 503, ENDING)
        except Exception as error:  # the service lives, and what went wrong is logged without the text
            self.log.write(event="error", error=type(error).__name__, at=_place(error))
            if not status:
                await _refuse(noting, 500, BROKEN)
        finally:
            seconds = time.perf_counter() - began
            path = scope["path"] if scope["path"] in PATHS else "other"
            self.metrics.note(path, status, seconds)
            if path not in ("/health", "/metrics"):
                method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
                self.log.write(
                    event="request", method=method, path=path, status=status, bytes=len(body), seconds=seconds
                )

    async def _refusal(self, headers: Mapping[bytes, bytes], receive: Receive) -> tuple[tuple[int, str] | None, bytes]:
        """Status and sentence if the request is refused; and its body."""
        if self.hosts is not None and _name(headers.get(b"host", b"")) not in self.hosts:
            return (421, f"this service answers to {' and '.join(self.hosts)} only"), b""
        too_large = (413, f"a request may have at most {LARGEST_BODY:,} bytes")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 10 or int(length) > LARGEST_BODY:
            return too_large, b""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(receive)
        except TimeoutError:
            return (408, f"the body did not come within {BODY_SECONDS:g} seconds"), b""
        if body is None:
            return (400, "the connection was closed before the body was complete"), b""
        return (too_large, b"") if len(body) > LARGEST_BODY else (None, body)


async def _body(receive: Receive) -> bytes | None:
    """The body, or its beginning if it is too large; None if the sender has gone."""
    body = bytearray()
    while len(body) <= LARGEST_BODY:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return bytes(body)


def _given(body: bytes, receive: Receive) -> Receive:
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receiving() -> Message:
        return waiting.pop() if waiting else await receive()

    return receiving


def _name(host: bytes) -> str:
    address = host.decode("latin-1")
    first, colon, port = address.rpartition(":")
    return (first if colon and port.isdigit() else address).strip("[]")


async def _unless_gone(answer: Awaitable[Response], receive: Receive) -> Response | None:
    """The answer; None, and it is cancelled, if the client closes the connection before it is there."""

    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    answering, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(leave())
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return await answering if answering.done() else None
    finally:
        answering.cancel()
        leaving.cancel()


async def _respond(send: Send, response: Response) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(response.content)).encode())]
    more = [(name.encode(), value.encode()) for name, value in response.headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": [*headers, *more]})
    await send({"type": "http.response.body", "body": response.content})


async def _refuse(send: Send, status: int, sentence: str) -> None:
    # The connection is closed, because what is left of the body has not been read.
    body = json.dumps({"error": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})


def _place(error: BaseException) -> str:
    trace, place = error.__traceback__, ""
    while trace is not None:
        place, trace = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}", trace.tb_next
    return place


class TimedProtocol(H11Protocol):
    """Uvicorn's protocol with h11, the one of its parsers that limits headers, and an end to all waiting.

    Every ``IDLE_SECONDS`` a connection is looked at: one that has no complete request, and had none the last time, is
    closed; so is one whose request or answer takes longer than ``ANSWER_SECONDS``.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._last: Any = None  # the cycle, and whether it has ended, at the last look
        self._since = self.loop.time()
        self._clock = self.loop.call_later(IDLE_SECONDS, self._look)
        if len(self.connections) > CONNECTIONS:  # uvicorn's own limit would refuse the requests of all others, too
            transport.write(CROWDED)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._clock.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        written = self.cycle is None or self.cycle.response_complete
        idle = written and not self.transport.get_write_buffer_size()
        if self._last != (self.cycle, idle):
            self._last, self._since = (self.cycle, idle), self.loop.time()
        if self.loop.time() - self._since >= (IDLE_SECONDS if idle else ANSWER_SECONDS):
            self.transport.abort()
        else:
            self._clock = self.loop.call_later(IDLE_SECONDS, self._look)
