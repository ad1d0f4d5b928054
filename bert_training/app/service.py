"""The service of a model: an ASGI application with /predict, /embed, /health, /metrics and a page about itself."""

import html
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import torch
import transformers
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from bert_training.app.exported import TORCH
from bert_training.app.folder import OpenedModel, open_folder
from bert_training.app.server import forget_tokens
from bert_training.app.service_limits import (
    IDLE_SECONDS,
    App,
    Limits,
    Metrics,
    Post,
    Response,
    TimedProtocol,
)
from bert_training.app.service_log import Log, take_over
from bert_training.app.service_readers import Full, Readers
from bert_training.app.service_requests import Asked, Vectors, bodies_of
from bert_training.networks.number_types import FLOAT32
from tokenization.errors import UserError

STOP_SECONDS = 30  # for what has begun when the service is stopped


@dataclass(frozen=True)
class Settings:
    """How a service runs; a worker process gets it from the one that starts it.

    Attributes:
        hosts: as of ``Limits``.
        batch_size, wait_s, most: as of ``Readers``.
        threads: of one worker.
        backend, dtype: as of ``open_folder``.
        side_by_side: whether each thread computes a batch of its own, see ``reads_single_rows``; otherwise all threads
            compute one batch together. It is known before the folder is opened, because a session of onnxruntime keeps
            the number of threads that it was made with.
        refuse_long_texts: as of ``OpenedModel``.
    """

    folder: str
    hosts: tuple[str, ...] | None
    batch_size: int = 1
    wait_s: float = 0.005
    most: int = 256
    workers: int = 1
    threads: int = 1
    backend: str = TORCH
    dtype: str = FLOAT32
    side_by_side: bool = True
    refuse_long_texts: bool = False

    def __call__(self) -> App:
        """The application, made in the process that serves it."""
        forget_tokens()
        transformers.utils.logging.disable_progress_bar()
        # Of batches side by side, each has one thread: two threads together do less than twice as much.
        torch.set_num_threads(1 if self.batch_size > 1 and self.side_by_side else self.threads)
        opened = open_folder(self.folder, self.backend, self.dtype)
        return make_service(replace(opened, refuses_long_texts=self.refuse_long_texts), self)


def make_service(opened: OpenedModel, settings: Settings) -> Limits:
    """The application for an opened model."""
    threads = settings.threads if settings.side_by_side else 1  # one thread at a time has all cores, also for /embed
    readers = Readers(opened, settings.batch_size, settings.wait_s, settings.most, threads)
    metrics, log = Metrics(), Log()
    take_over(log)
    # The page that FastAPI makes for its /docs would load its scripts from another host.
    app = FastAPI(title=opened.name, docs_url=None, redoc_url=None, description="A model, served by bert-repro serve.")
    app.add_exception_handler(HTTPException, _http)
    bodies = bodies_of(opened)
    kinds: dict[str, Any] = {
        "/predict": reduce(or_, bodies),
        "/embed": Vectors,
    }  # a union, if the head can do two things
    said = ", ".join(opened.abilities) or "vectors"
    _describe(app, kinds, {"/predict": f"What the model says: {said}", "/embed": "The vectors of texts"})

    async def answers(asked: Asked) -> Response:
        try:
            found = await readers.read(asked)
        except UserError as error:
            return _error(422, str(error))
        except Full as full:
            return _error(503, "too many texts are waiting; try again later", retry_after=str(full.seconds))
        metrics.texts += len(found)
        return Response(200, _json({"answers": found}))

    @app.get("/health", summary="Whether the service answers")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "model": opened.name, "abilities": opened.abilities}

    @app.get("/metrics", summary="Counts in Prometheus' text format", response_class=PlainTextResponse)
    async def counts() -> PlainTextResponse:
        text = "\n".join(metrics.lines(readers.pending, log.lost)) + "\n"
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    page = _page(opened.name, app.openapi(), bodies)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page, headers={"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"})

    posts = {path: _post(TypeAdapter(kind), answers) for path, kind in kinds.items()}
    return Limits(app, posts, metrics, log, settings.hosts)


def _describe(app: FastAPI, kinds: Mapping[str, Any], summaries: Mapping[str, str]) -> None:
    """Add the routes that ``Limits`` answers to the description of the service."""

    def described(kind: Any) -> Callable[..., Any]:
        async def route(asked: kind) -> None:
            raise NotImplementedError

        return route

    for path, kind in kinds.items():
        app.add_api_route(path, described(kind), methods=["POST"], summary=summaries[path])


def _post(kind: TypeAdapter[Asked], answers: Callable[[Asked], Awaitable[Response]]) -> Post:
    """What answers a POST whose body is of this kind."""

    async def post(headers: Mapping[bytes, bytes], body: bytes) -> Response:
        # Any other type may come from a form of another web page, which needs nobody's permission to send it.
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
            return _error(422, "body: expected the content-type application/json")
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            return _error(400, "the body is not JSON in UTF-8")
        try:
            asked = kind.validate_python(content)
        except ValidationError as error:
            return _error(422, _mistakes(error))
        return await answers(asked)

    return post


def server_config(app: Any, **options: Any) -> uvicorn.Config:
    """How uvicorn serves the application; it logs nothing of a request."""
    return uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        lifespan="off",
        log_level="warning",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(IDLE_SECONDS),
        timeout_graceful_shutdown=STOP_SECONDS,
        **options,
    )


def _page(name: str, schema: dict[str, Any], bodies: list[type[Asked]]) -> str:
    """A page about the routes and the fields of the bodies; it needs no script and no other host."""
    routes = [
        f"<li><code>{method.upper()} {path}</code> {html.escape(route['summary'])}</li>"
        for path, methods in schema["paths"].items()
        for method, route in methods.items()
    ]
    shown: list[type[Asked]] = list(dict.fromkeys([*bodies, Vectors]))
    parts = [
        f"<h2>{html.escape(str(body.__doc__))}</h2>"
        f"<pre>{html.escape(json.dumps(body.model_json_schema(), indent=2))}</pre>"
        for body in shown
    ]
    title = html.escape(name)
    return (
        f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{title}</title><style>body{{font-family:sans-serif;"
        f"max-width:50em;margin:2em auto}}</style><h1>{title}</h1><ul>{''.join(routes)}</ul><p>The same for programs: "
        f"<a href=openapi.json>openapi.json</a></p>{''.join(parts)}"
    )


# --- what is refused ---------------------------------------------------------------------------------------


def _json(content: Any) -> bytes:
    # Names of fields come from the request, and may hold what cannot be written as UTF-8.
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _error(status: int, sentence: str, **headers: str) -> Response:
    return Response(
        status, _json({"error": sentence}), {name.replace("_", "-"): value for name, value in headers.items()}
    )


def _mistakes(error: ValidationError) -> str:
    """What is wrong with a body, without what it holds."""
    lines = []
    for one in error.errors(include_url=False, include_input=False)[:4]:
        place = ".".join(str(part)[:40] for part in one["loc"]) or "body"
        lines.append(f"{place}: {one['msg'].removeprefix('Value error, ')[:200]}")
    return "; ".join(lines)


async def _http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)
