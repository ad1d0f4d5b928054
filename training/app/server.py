"""What stands between the browser and the page: no large request, no other host, nothing fetched from elsewhere."""

import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LARGEST_REQUEST = 2 * 2**20  # bytes; the page itself sends less than a tenth of it
POLICY = (  # the browser refuses whatever is not served by the page itself
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
POLICY_VIOLATION = 1008  # the code with which a websocket is closed (RFC 6455)
LOCAL = ("127.0.0.1", "localhost")


class Guard:
    """An ASGI middleware that limits requests, and adds ``HEADERS`` to the responses.

    Args:
        hosts: the names under which the page may be asked for. Another name in a request means that some web page had
            its own name point to this machine (DNS rebinding). None allows all.
    """

    def __init__(self, app: App, hosts: tuple[str, ...] | None = LOCAL) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Check one request and pass it on, or refuse it. Websockets are refused."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # The page opens no websocket, so one can only come from elsewhere.
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if self.hosts is not None and _host(headers) not in self.hosts:
            await _refuse(send, 421, "This page answers to 127.0.0.1 only.")
        elif not length.isdigit() or int(length) > LARGEST_REQUEST or b"transfer-encoding" in headers:
            await _refuse(send, 413, f"A request may have at most {LARGEST_REQUEST:,} bytes.")
        else:
            await self.app(scope, receive, _with_headers(send))


def _host(headers: dict[bytes, bytes]) -> str:
    """The name of the host that the request is for, without the port; "" if the request has none."""
    address = headers.get(b"host", b"").decode("latin-1")
    host, colon, _ = address.rpartition(":")
    return host if colon else address


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
        await send(message)

    return sending


async def _refuse(send: Send, status: int, sentence: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": sentence.encode("utf-8")})


def free_port(port: int) -> int:
    """The port itself, or a free one for 0. Raises ValueError if another program uses it."""
    with socket.socket() as trial:
        # As servers do it, so that connections that were just closed do not count as use.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as error:
            raise ValueError(
                f"--port {port}: cannot be opened on 127.0.0.1 ({error.strerror}); another program may use it. Give "
                "another port, or 0 for one that is free"
            ) from error
        return int(trial.getsockname()[1])
