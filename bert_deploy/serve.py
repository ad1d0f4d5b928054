"""Serve a finished model over HTTP, with a page to try it on.

    bert-repro serve runs/own
    curl -s http://127.0.0.1:8000/predict -H 'content-type: application/json' -d '{"text": "Please close the window."}'

The address that is printed is that of the page. POST /predict says what the model's head can say: classes, names,
answers, masked words, next sentences, endings; POST /embed gives vectors of texts. The answers are those of
`bert-repro ask`. Clients of other services find their own forms: OpenAI's at /v1/embeddings, those of
text-embeddings-inference at /embed and /predict, huggingface_hub's InferenceClient also at /. /docs describes the
requests, /health and /metrics are for those who watch over the service. SIGTERM lets it finish what it has.

It is served on this machine alone unless --host is given; there is no password. It needs FastAPI and uvicorn:
pip install ".[deploy]"
"""

import argparse
import asyncio
import base64
import contextlib
import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial, reduce
from operator import or_
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Annotated, Any, Literal

import numpy as np
import transformers
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, create_model
from starlette.middleware.trustedhost import TrustedHostMiddleware

from bert_deploy import readings
from bert_deploy.folder import OpenedModel, open_folder
from bert_deploy.onnx_files import BACKENDS, TORCH
from bert_deploy.readings import Rows, Steps
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.scripts import ANSWERS, CHOICE, CLASSES, MASKED, NAMES, NEXT_PIECE, NEXT_SENTENCE
from bert_training.networks.number_types import DTYPES, FLOAT32, warning_of
from bert_training.tasks.classification.trained_for import SEVERAL_LABELS
from bert_training.tasks.classification.verdicts import DIGITS, is_regression, not_read
from tokenization.errors import UserError

PAGE = Path(__file__).parent / "page"
CHARACTERS = 20_000  # of a text
TEXTS = 64  # of a request
LINES = 8  # sentences or endings to choose from
BATCH_SIZE = 16  # texts of simultaneous requests
PATIENCE = 0.002  # seconds
LOCAL = {"127.0.0.1": "127.0.0.1", "localhost": "localhost", "::1": "[::1]"}  # addresses, as requests name them
CONNECTIONS = 256  # beyond which a request gets status 503
STOP_SECONDS = 30  # for what has begun when the service is stopped


def _is_text(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty")
    return text


Text = Annotated[str, StringConstraints(strict=True, max_length=CHARACTERS), AfterValidator(_is_text)]
SeveralTexts = Annotated[list[Text], Field(min_length=1, max_length=TEXTS)]
TwoTexts = Annotated[list[Text], Field(min_length=2, max_length=2)]
OneOrTwo = Annotated[list[Text], Field(min_length=1, max_length=2)]


# --- what is asked ------------------------------------------------------------------------------------------


class Body(BaseModel):
    """The body of a request; ``each`` has the arguments of every reading."""

    model_config = ConfigDict(extra="forbid")

    def each(self) -> list[dict[str, Any]]:
        """One reading."""
        return [dict(self)]

    def said(self, found: list[Any]) -> Any:
        """The content of the answer, with what each reading found."""
        return {"answers": found}


class OneText(Body):
    """A text. A [MASK] stands for a missing word; a model that reads from left to right goes on with the text."""

    text: Text = Field(examples=["The old house by the river was sold."])


class Texts(Body):
    """Several texts."""

    texts: SeveralTexts

    def each(self) -> list[dict[str, Any]]:
        """A reading of every text."""
        return [{"text": text} for text in self.texts]


class Pair(Body):
    """A text to judge or, with second_text, a pair."""

    text: Text = Field(examples=["The old house by the river was sold."])
    second_text: Text | None = None


class Pairs(Body):
    """Several pairs to judge."""

    pairs: list[TwoTexts] = Field(min_length=1, max_length=TEXTS)

    def each(self) -> list[dict[str, Any]]:
        """A reading of every pair."""
        return [{"text": first, "second_text": second} for first, second in self.pairs]


class OneQuestion(Body):
    """A question about a text."""

    question: Text = Field(examples=["Who wrote it?"])
    context: Text = Field(examples=["It was written by Ada."])


class Questions(Body):
    """Several questions with their texts."""

    questions: list[OneQuestion] = Field(min_length=1, max_length=TEXTS)

    def each(self) -> list[dict[str, Any]]:
        """A reading of every question."""
        return [dict(one) for one in self.questions]


class Followers(Body):
    """A text, and those of which each may be its next sentence."""

    text: Text = Field(examples=["The house was old."])
    candidates: list[Text] = Field(min_length=1, max_length=LINES, examples=[["It was sold."]])


class Endings(Body):
    """The beginning of a text, and the endings to choose from."""

    text: Text = Field(examples=["The house was old."])
    endings: list[Text] = Field(min_length=2, max_length=LINES, examples=[["It was sold.", "It flew."]])


class Inputs(Body):
    """Texts, as clients of text-embeddings-inference send them; their vectors have length 1 unless told otherwise."""

    inputs: Text | SeveralTexts
    normalize: bool = True
    truncate: bool = False

    def each(self) -> list[dict[str, Any]]:
        """A vector of every text."""
        texts = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        return [{"text": text, "normalize": self.normalize, "truncate": self.truncate} for text in texts]

    def said(self, found: list[Any]) -> Any:
        """The vectors, as a list also of a single one."""
        return found


class OpenAIInput(Body):
    """Texts, as OpenAI's clients send them."""

    input: Text | SeveralTexts
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = None

    def each(self) -> list[dict[str, Any]]:
        """A vector of every text, of length 1."""
        return [{"text": text} for text in ([self.input] if isinstance(self.input, str) else self.input)]

    def said(self, found: list[Any]) -> Any:
        """The vectors, numbered, with how many tokens were read."""
        vectors = [vector if self.encoding_format == "float" else _in_base64(vector) for vector, _ in found]
        data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        tokens = sum(count for _, count in found)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": self.model, "usage": usage}


class JudgedInputs(Body):
    """What is judged, as clients of text-embeddings-inference send it: a text, a pair, or a list of lists of these."""

    inputs: Text | TwoTexts | Annotated[list[OneOrTwo], Field(min_length=1, max_length=TEXTS)]
    raw_scores: Literal[False] = False
    truncate: bool = True

    def _alone(self) -> bool:
        return isinstance(self.inputs, str) or isinstance(self.inputs[0], str)

    def each(self) -> list[dict[str, Any]]:
        """A reading of every text or pair."""
        rows: Any = [self.inputs] if self._alone() else self.inputs
        texts = [dict(zip(("text", "second_text"), [row] if isinstance(row, str) else row)) for row in rows]
        return [{**row, "truncate": self.truncate} for row in texts]

    def said(self, found: list[Any]) -> Any:
        """The classes with their scores, in a list for each row of a list of rows."""
        return found[0] if self._alone() else found


class TaskInputs(Body):
    """One or more texts to judge, as huggingface_hub's InferenceClient sends them; no parameters are known."""

    inputs: Text | SeveralTexts
    parameters: dict[str, Any] = Field({}, max_length=0)

    def each(self) -> list[dict[str, Any]]:
        """A reading of every text."""
        return [{"text": text} for text in ([self.inputs] if isinstance(self.inputs, str) else self.inputs)]

    def said(self, found: list[Any]) -> Any:
        """The classes with their scores, in a list for each text."""
        return found


class Looked(Body):
    """A text or a pair, and the layer whose attention is looked at, counted from 1."""

    text: Text
    second_text: Text | None = None
    layer: int


# --- and what is answered -----------------------------------------------------------------------------------


def _classes(opened: OpenedModel, text: str, second_text: str | None = None) -> Steps[Any]:
    said = (yield from readings.verdict(opened, text, second_text)).ranked()
    more = {} if said.thresholds is None else {"thresholds": dict(zip(said.names, said.thresholds, strict=True))}
    return said.record() | more


def _answer(opened: OpenedModel, question: str, context: str) -> Steps[Any]:
    reply = yield from readings.answer(opened, question, context)
    score = next((entry["probability"] for entry in reply.entries if entry["text"] == reply.answer), 0.0)
    said = {"answer": reply.answer, "score": round(score, DIGITS), "start": reply.start, "end": reply.end}
    said |= not_read(reply.lost)
    return said if reply.null_odds is None else said | {"null_odds": reply.null_odds, "threshold": reply.threshold}


def _names(opened: OpenedModel, text: str) -> Steps[Any]:
    found = yield from readings.names_in(opened, text)
    return {"names": [name.record(text) for name in found]}


def _gaps(opened: OpenedModel, text: str) -> Steps[Any]:
    found = yield from readings.masked_words(opened, text)
    return {"gaps": [_guesses(gap) for gap in found]}


def _followers(opened: OpenedModel, text: str, candidates: list[str]) -> Steps[Any]:
    return {"candidates": _guesses((yield from readings.next_sentence(opened, text, candidates)))}


def _endings(opened: OpenedModel, text: str, endings: list[str]) -> Steps[Any]:
    return {"endings": _guesses((yield from readings.choose(opened, text, endings)))}


def _vector(opened: OpenedModel, text: str) -> Steps[Any]:
    vector = yield from readings.vector(opened, text)
    return {"vector": [round(value, DIGITS) for value in vector.tolist()]}


def _unit_vector(opened: OpenedModel, text: str, normalize: bool = True, truncate: bool = False) -> Steps[list[float]]:
    vector = yield from readings.vector(opened, text, truncate)
    return (vector / max(float(np.linalg.norm(vector)), 1e-12) if normalize else vector).tolist()


def _counted_vector(opened: OpenedModel, text: str) -> Steps[tuple[list[float], int]]:
    vector = yield from _unit_vector(opened, text)
    return vector, len(readings.row_of(opened, text)["input_ids"])


def _in_base64(vector: list[float]) -> str:
    return base64.b64encode(np.array(vector, dtype="<f4").tobytes()).decode()


def _scored_classes(
    opened: OpenedModel, text: str, second_text: str | None = None, truncate: bool = True
) -> Steps[Any]:
    said = (yield from readings.verdict(opened, text, second_text)).ranked()
    if said.lost and not truncate:
        raise UserError(f"This model would not read {said.lost:,} pieces of the text; shorten it, or set truncate.")
    shares = said.shares.tolist() if said.score is None else [said.score]
    return [{"label": name, "score": round(share, DIGITS)} for name, share in zip(said.names, shares, strict=True)]


def _attention(opened: OpenedModel, text: str, second_text: str | None, layer: int) -> Steps[Any]:
    yield Rows(())
    names, weights = readings.attention(opened, text, second_text, layer)
    return {"pieces": names, "heads": weights.astype(float).round(4).tolist()}


def _pieces(opened: OpenedModel, text: str) -> Steps[Any]:
    yield Rows(())
    return asdict(readings.pieces(opened, text))


def _guesses(found: list[readings.Guess]) -> list[dict[str, Any]]:
    return [{"text": one.text} | _share(one.probability) | not_read(one.lost) for one in found]


def _share(probability: float) -> dict[str, float]:
    return {"probability": round(probability, DIGITS)}


# Of every ability, the bodies that ask for it, and the generator that answers.
Answering = dict[type[Body], Callable[..., Steps[Any]]]
ABILITIES: dict[str, Answering] = {
    CLASSES: {**dict.fromkeys((Pair, Texts, Pairs), _classes), JudgedInputs: _scored_classes},
    ANSWERS: dict.fromkeys((OneQuestion, Questions), _answer),
    NAMES: dict.fromkeys((OneText, Texts), _names),
    MASKED: dict.fromkeys((OneText, Texts), _gaps),
    NEXT_PIECE: dict.fromkeys((OneText, Texts), _gaps),
    NEXT_SENTENCE: {Followers: _followers},
    CHOICE: {Endings: _endings},
}
VECTORS: Answering = {**dict.fromkeys((OneText, Texts), _vector), Inputs: _unit_vector}


# --- the application ----------------------------------------------------------------------------------------


Ask = Callable[[OpenedModel], Steps[Any]]


class Queue:
    """One thread answers the texts in their order; texts that wait at the same time share forward passes.

    After a pass of several texts, the next one waits for others: until none has come for ``PATIENCE``.

    Args:
        size: the most texts that are read together. With 1, every answer has the digits that it has elsewhere.

    Attributes:
        pending: how many texts wait or are being read.
    """

    def __init__(self, opened: OpenedModel, size: int) -> None:
        self.pending, self._opened, self._size = 0, opened, size
        self._waiting: SimpleQueue[tuple[Ask, asyncio.Future[Any]]] = SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def put(self, asks: Sequence[Ask]) -> list[asyncio.Future[Any]]:
        """The answers to come, in the order of the texts."""
        answers: list[asyncio.Future[Any]] = [asyncio.get_running_loop().create_future() for _ in asks]
        self.pending += len(asks)
        for ask, answer in zip(asks, answers):
            answer.add_done_callback(self._count_down)
            self._waiting.put((ask, answer))
        return answers

    def _count_down(self, answer: asyncio.Future[Any]) -> None:
        self.pending -= 1
        if not answer.cancelled():
            answer.exception()  # that of a second text of a request is nobody's

    def _serve(self) -> None:
        taken: list[tuple[Ask, asyncio.Future[Any]]] = []
        while True:
            # Clients that have just been answered ask again at once; otherwise the first of them would be read alone.
            patience = PATIENCE if len(taken) > 1 else 0
            taken = [self._waiting.get()]
            with contextlib.suppress(Empty):
                while len(taken) < self._size:
                    taken.append(self._waiting.get(timeout=patience))
            said = readings.run(self._opened, [ask(self._opened) for ask, _ in taken])
            with contextlib.suppress(RuntimeError):  # the server has ended
                taken[0][1].get_loop().call_soon_threadsafe(_deliver, [answer for _, answer in taken], said)


def _deliver(answers: Sequence[asyncio.Future[Any]], said: Sequence[Any]) -> None:
    for answer, one in zip(answers, said):
        if answer.done():  # its request was given up
            continue
        if isinstance(one, Exception):
            answer.set_exception(one)
        else:
            answer.set_result(one)


class Counts:
    """What /metrics says, in Prometheus' text format."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.requests: Counter[tuple[str, int]] = Counter()
        self.texts, self.seconds = 0, 0.0

    def lines(self) -> Iterator[str]:
        """The lines, with the type of each before it."""
        answered = sum(count for (_, status), count in self.requests.items() if status == 200)
        yield "# TYPE bert_requests_total counter"
        for (path, status), count in sorted(self.requests.items()):
            yield f'bert_requests_total{{path="{path}",status="{status}"}} {count}'
        yield f"# TYPE bert_texts_total counter\nbert_texts_total {self.texts}"
        yield f"# TYPE bert_pending_texts gauge\nbert_pending_texts {self.queue.pending}"
        yield f"# TYPE bert_request_seconds summary\nbert_request_seconds_sum {self.seconds:.6f}"
        yield f"bert_request_seconds_count {answered}\n"


def make_service(opened: OpenedModel, batch_size: int = BATCH_SIZE) -> FastAPI:
    """The application for an opened model."""
    # The pages that FastAPI makes of the description would load their scripts from another host.
    app = FastAPI(title=opened.name, description="A model, served by bert-repro serve.", docs_url=None, redoc_url=None)
    queue = Queue(opened, batch_size)
    counts = Counts(queue)
    heads: Answering = reduce(or_, (ABILITIES[ability] for ability in opened.abilities), {}) or VECTORS
    asked: list[tuple[str, str, Answering]] = [
        ("/predict", f"What the model says: {', '.join(opened.abilities) or 'vectors'}", heads),
        ("/embed", "The vectors of texts", VECTORS),
        ("/v1/embeddings", "The vectors of texts, for OpenAI's clients", {OpenAIInput: _counted_vector}),
        ("/pieces", "How a text becomes pieces", {OneText: _pieces}),
    ]
    if hasattr(opened.model, "base_model"):  # not of an exported file
        layers = (int, Field(ge=1, le=opened.model.config.num_hidden_layers))
        looked = create_model("Looked", __base__=Looked, __doc__=Looked.__doc__, layer=layers)
        asked.append(("/attention", "How the pieces of a text look at each other", {looked: _attention}))
    if CLASSES in opened.abilities:
        asked.append(("/", "The classes of texts, for InferenceClient", {TaskInputs: _scored_classes}))
    for path, summary, answering in asked:
        app.post(path, summary=summary)(_route(path, answering, queue, counts))

    @app.get("/health", summary="Whether the service answers")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "model": opened.name, "abilities": opened.abilities}

    @app.get("/model", summary="What the page has to know of the model")
    async def model() -> dict[str, Any]:
        return facts_of(opened)

    @app.get("/metrics", summary="Counts in Prometheus' text format", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse("\n".join(counts.lines()), media_type="text/plain; version=0.0.4")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(PAGE / "docs.html")

    @app.exception_handler(RequestValidationError)
    async def mistaken(request: Request, error: RequestValidationError) -> Response:
        counts.requests[request.url.path, 422] += 1
        return _refusal([{name: one[name] for name in ("type", "loc", "msg")} for one in error.errors()])

    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


def _route(path: str, answering: Answering, queue: Queue, counts: Counts) -> Callable[..., Awaitable[Response]]:
    kind: Any = reduce(or_, answering)

    async def route(asked: kind) -> Response:
        began, status = time.perf_counter(), 500
        response: Response
        answers = queue.put([partial(answering[type(asked)], **arguments) for arguments in asked.each()])
        try:
            found = await asyncio.gather(*answers)
            response, status = JSONResponse(asked.said(found)), 200
            counts.texts += len(found)
            counts.seconds += time.perf_counter() - began
        except UserError as error:
            response, status = _refusal(str(error)), 422
        finally:
            counts.requests[path, status] += 1
        return response

    return route


def _refusal(detail: Any) -> Response:
    # Names of fields come from the request, and may hold what cannot be written as UTF-8; so JSON in ASCII.
    content = {"detail": detail} | (
        {"message": detail} if isinstance(detail, str) else {}
    )  # as OpenAI's client shows it
    return Response(json.dumps(content), 422, media_type="application/json")


def facts_of(opened: OpenedModel) -> dict[str, Any]:
    """What the page has to know: which forms it has, and how they begin."""
    config = opened.model.config
    return {
        "name": opened.name,
        "abilities": opened.abilities,
        "network": type(opened.model).__name__,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "parameters": getattr(opened.model, "num_parameters", lambda: None)(),  # an exported file does not say
        "vocabulary": len(opened.tokenizer),
        "longest": opened.longest,
        "mask": opened.tokenizer.mask_token,
        "texts": opened.texts,
        "score": is_regression(config),
        "several_labels": config.problem_type == SEVERAL_LABELS,
        "attention": hasattr(opened.model, "base_model"),
    }


# --- the command --------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises ValueError for a folder that cannot be served."""
    args = _arguments(argv)
    transformers.utils.logging.disable_progress_bar()
    # Not in this thread, which would keep OpenMP's threads beside those of the queue. If there are more of them than
    # cores, they sleep while they wait for each other, and a text takes two thirds longer.
    with ThreadPoolExecutor(1) as opener:
        opened = opener.submit(open_folder, args.folder, args.backend, args.dtype).result()
    for line in warning_of(args.dtype):
        print(line, file=sys.stderr)
    opened = replace(opened, refuses_long_texts=args.refuse_long_texts)
    app = make_service(opened, args.batch_size)
    if args.host in LOCAL:  # against web pages whose own name points to this machine
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOCAL.values()])
    config = uvicorn.Config(
        app,
        args.host,
        args.port,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    with config.bind_socket() as listener:
        listener.listen(config.backlog)  # who reads the address may connect at once
        host = f"[{args.host}]" if ":" in args.host else args.host
        print(f"{opened.name}: http://{host}:{listener.getsockname()[1]}/ (SIGTERM or Ctrl-C ends it)", flush=True)
        # uvicorn raises the signal again when all is answered.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        uvicorn.Server(config).run([listener])


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_parser("serve", __doc__)
    parser.add_argument("folder", help="The folder of a model, as a script of this project or transformers saved it.")
    parser.add_argument("--host", default="127.0.0.1", help="Address to listen on; the default is this machine alone.")
    parser.add_argument("--port", type=int, default=8000, help="Port; 0 takes one that is free.")
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default=TORCH,
        help="What computes; onnx takes a folder of bert-repro export, and its file in 8 bits if any.",
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default=FLOAT32,
        help="Numbers of torch; bfloat16 is faster where processors have it, and changes the third decimal place.",
    )
    parser.add_argument(
        "--batch_size",
        type=int,
        choices=(1, 2, 4, 8, 16, 32, 64),
        default=BATCH_SIZE,
        help=f"Texts of simultaneous requests that share a forward pass (default: {BATCH_SIZE}). 1 gives every text "
        "the same digits at any time; more is faster, and changes probabilities by less than 0.00001.",
    )
    parser.add_argument(
        "--refuse_long_texts",
        action="store_true",
        help="Refuse a text that is not read whole; without this, tokens_not_read says how many tokens are left out.",
    )
    return parser.parse_args(argv)
