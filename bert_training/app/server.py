"""The guard of the page: which requests are answered, by sender, route and content.

Gradio's server can do much more than this page needs: it fetches addresses for its callers, takes files, and shows and
creates storage on the Hub with the token of whoever started it. ``Guard`` passes on only what the page itself asks for.
"""

import hmac
import http.cookies
import json
import os
import re
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qs

import huggingface_hub.constants

from bert_training.files.json_files import parse_json
from tokenization.errors import UserError

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
# Everything that the page asks for. The files below the two folders are those of Gradio's package.
PAGE = ("GET", "/")
ROUTES = {PAGE, ("GET", "/theme.css"), ("GET", "/favicon.ico")}
FOLDERS = ("/assets/", "/static/")
ASK = re.compile(r"/gradio_api/run/\w+")  # the number of the function is in the body
MOST_WAITING = 32  # questions; Gradio's threads are 40


def forget_tokens() -> None:
    """Take the user's tokens of the Hub from this process, and let its libraries ask the Hub for nothing."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HF_OAUTH_TOKEN"):
        os.environ.pop(name, None)
    # For what is imported later, and for processes that are started; the constants are those of what is imported.
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_TOKEN_PATH": os.devnull, "HF_STORED_TOKENS_PATH": os.devnull}
    constants = huggingface_hub.constants
    constants.HF_HUB_OFFLINE = True
    constants.HF_TOKEN_PATH = constants.HF_STORED_TOKENS_PATH = os.devnull


class Guard:
    """An ASGI middleware that refuses what the page does not ask for, and adds ``HEADERS`` to the responses.

    Args:
        inputs: the number of a function of the page -> how many values it takes.
        hosts: the names under which the page may be asked for. Another name in a request means that some web page had
            its own name point to this machine (DNS rebinding). None allows all, and requests from other pages.
        token: a secret that the address of the page contains (``?token=...``), and then a cookie. None asks for none.
    """

    def __init__(
        self, app: App, inputs: Mapping[int, int], hosts: tuple[str, ...] | None = LOCAL, token: str | None = None
    ) -> None:
        self.app = app
        self.inputs = inputs
        self.waiting = 0  # questions that have no answer yet
        self.hosts = hosts
        self.token = token

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Check one request and pass it on, or refuse it. Websockets are refused."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # The page opens no websocket, so one can only come from elsewhere.
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        if refusal := self._refusal(scope):
            await _refuse(send, *refusal)
            return
        cookies = []
        if self.token is not None and (scope["method"], scope["path"]) == PAGE:
            cookies = [(b"set-cookie", f"{_cookie(scope)}={self.token}; Path=/; HttpOnly; SameSite=Strict".encode())]
        passed_on = _with_headers(send, [*HEADERS, *cookies])
        if _is_question(scope):
            await self._pass_on_question(scope, receive, passed_on)
        else:
            await self.app(scope, receive, passed_on)

    async def _pass_on_question(self, scope: Message, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        question = None if body is None else self._question(body)
        if question is None:
            await _refuse(send, 400, "This page has no such function, or it takes other texts, numbers and choices.")
        elif self.waiting >= MOST_WAITING:
            busy = {"error": f"{MOST_WAITING} questions are waiting for an answer; ask again later."}
            await _refuse(send, 503, json.dumps(busy), "application/json")  # the page shows what is under "error"
        else:
            self.waiting += 1
            try:
                await self.app(scope, _again(question, receive), send)
            finally:
                self.waiting -= 1

    def _refusal(self, scope: Message) -> tuple[int, str] | None:
        """Status and sentence for a request that is not passed on."""
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        route = scope["method"], scope["path"]
        if self.hosts is not None and _host(headers) not in self.hosts:
            return 421, "This page answers to 127.0.0.1 only."
        if not length.isdigit() or int(length) > LARGEST_REQUEST or b"transfer-encoding" in headers:
            return 413, f"A request may have at most {LARGEST_REQUEST:,} bytes."
        file = scope["method"] == "GET" and scope["path"].startswith(FOLDERS)
        if route not in ROUTES and not file and not _is_question(scope):
            return 404, "This page has no such address."
        if self.token is not None and route == PAGE and self._is_token(_in_address(scope, "token")):
            return None
        if self.hosts is not None and not _is_from_the_page(headers):
            return 403, "Another web page asked for this; open the page itself."
        if self.token is not None and not self._is_token(_token_in_cookie(scope, headers)):
            return 403, "Open the address that the command printed, with its token."
        return None

    def _question(self, body: bytes) -> bytes | None:
        """The body of a question to a function of the page, without what it does not need; None if it is not one.

        A question has plain values, as many as the function takes. For an object, Gradio may fetch the address in it;
        for other values, it prints a traceback.
        """
        try:
            asked = parse_json(body.decode("utf-8"))
        except (ValueError, RecursionError):
            return None
        if not isinstance(asked, dict):
            return None
        number, values = asked.get("fn_index"), asked.get("data")
        if type(number) is not int or not isinstance(values, list) or len(values) != self.inputs.get(number):
            return None
        if not all(isinstance(value, str | int | float | None) for value in values):
            return None
        return json.dumps({"fn_index": number, "data": values}).encode()

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), (self.token or "").encode())


def _is_question(scope: Message) -> bool:
    return scope["method"] == "POST" and ASK.fullmatch(scope["path"]) is not None


def _host(headers: dict[bytes, bytes]) -> str:
    """The name of the host that the request is for, without the port; "" if the request has none."""
    address = headers.get(b"host", b"").decode("latin-1")
    host, colon, _ = address.rpartition(":")
    return host if colon else address


def _is_from_the_page(headers: dict[bytes, bytes]) -> bool:
    """Whether the page itself asks, or the user by an address, or a program; browsers say so in two headers."""
    site, origin = headers.get(b"sec-fetch-site", b"none"), headers.get(b"origin")
    return site in (b"none", b"same-origin") and origin in (None, b"http://" + headers.get(b"host", b""))


def _cookie(scope: Message) -> str:
    """The name of the cookie; other pages on this machine have other ports, but would share its cookies."""
    return f"bert-{(scope.get('server') or ('', 0))[1]}"


def _in_address(scope: Message, name: str) -> str:
    return parse_qs(scope.get("query_string", b"").decode("latin-1")).get(name, [""])[0]


def _token_in_cookie(scope: Message, headers: dict[bytes, bytes]) -> str:
    try:
        cookies = http.cookies.SimpleCookie(headers.get(b"cookie", b"").decode("latin-1"))
    except http.cookies.CookieError:
        return ""
    found = cookies.get(_cookie(scope))
    return found.value if found else ""


async def _body(receive: Receive) -> bytes | None:
    """The content of a request; None if it is too long or its sender has gone."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > LARGEST_REQUEST:
            return None
        more = message.get("more_body", False)
    return body


def _again(body: bytes, receive: Receive) -> Receive:
    """What gives ``body``, and then what ``receive`` gives."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receiving() -> Message:
        return waiting.pop() if waiting else await receive()

    return receiving


def _with_headers(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *headers]}
        await send(message)

    return sending


async def _refuse(send: Send, status: int, content: str, kind: str = "text/plain; charset=utf-8") -> None:
    headers = [(b"content-type", kind.encode("ascii")), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content.encode("utf-8")})


def start(app: App, host: str, port: int) -> threading.Thread:
    """Serve an ASGI application in a thread, and return the thread when the server accepts requests.

    Raises:
        ValueError: the server ends at once, for example because another program has taken the port.
    """
    import uvicorn  # comes with Gradio, which is optional

    server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning", server_header=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise UserError(f"--port {port}: the page could not be started there; give another port")
        time.sleep(0.01)
    return thread


def free_port(port: int) -> int:
    """The port itself, or a free one for 0. Raises ValueError if another program uses it."""
    with socket.socket() as trial:
        # As servers do it, so that connections that were just closed do not count as use.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(
                f"--port {port}: cannot be opened on 127.0.0.1 ({error.strerror}); another program may use it. Give "
                "another port, or 0 for one that is free"
            ) from error
        return int(trial.getsockname()[1])
