"""The service of a model and its page: one ASGI application.

POST /predict asks the head, /embed for vectors, /attention and /pieces for what the page draws; /model, /health and
/metrics say what is served and how it fares. The answers are those of ``readings.py``, rounded as ``bert-repro ask``
rounds them. The page at / is static and asks the same routes.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, create_model

from bert_deploy import readings
from bert_deploy.batches import Queue
from bert_deploy.folder import OpenedModel
from bert_deploy.readings import Rows, Steps
from bert_training.inputs.flags.scripts import ANSWERS, CHOICE, CLASSES, MASKED, NAMES, NEXT_PIECE, NEXT_SENTENCE
from bert_training.tasks.classification.trained_for import SEVERAL_LABELS
from bert_training.tasks.classification.verdicts import DIGITS, is_regression, not_read
from tokenization.errors import UserError

PAGE = Path(__file__).parent / "page"
CHARACTERS = 20_000  # of a text
TEXTS = 64  # of a request
LINES = 8  # sentences or endings to choose from


def _is_text(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty")
    return text


Text = Annotated[str, StringConstraints(strict=True, max_length=CHARACTERS), AfterValidator(_is_text)]


# --- what is asked ------------------------------------------------------------------------------------------


class Body(BaseModel):
    """The body of a request; ``each`` has the arguments of every reading."""

    model_config = ConfigDict(extra="forbid")

    def each(self) -> list[dict[str, Any]]:
        """One reading."""
        return [dict(self)]


class OneText(Body):
    """A text. A [MASK] stands for a missing word; a model that reads from left to right goes on with the text."""

    text: Text = Field(examples=["The old house by the river was sold."])


class Texts(Body):
    """Several texts."""

    texts: list[Text] = Field(min_length=1, max_length=TEXTS)

    def each(self) -> list[dict[str, Any]]:
        """A reading of every text."""
        return [{"text": text} for text in self.texts]


class Pair(Body):
    """A text to judge or, with second_text, a pair."""

    text: Text = Field(examples=["The old house by the river was sold."])
    second_text: Text | None = None


class Pairs(Body):
    """Several pairs to judge."""

    pairs: list[Annotated[list[Text], Field(min_length=2, max_length=2)]] = Field(min_length=1, max_length=TEXTS)

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


class Looked(Body):
    """A text or a pair, and the layer whose attention is looked at, counted from 1."""

    text: Text
    second_text: Text | None = None
    layer: int


# --- and what is answered -----------------------------------------------------------------------------------


def _classes(opened: OpenedModel, text: str, second_text: str | None = None) -> Steps[Any]:
    said = (yield from readings.verdict.steps(opened, text, second_text)).ranked()
    more = {} if said.thresholds is None else {"thresholds": dict(zip(said.names, said.thresholds, strict=True))}
    return said.record() | more


def _answer(opened: OpenedModel, question: str, context: str) -> Steps[Any]:
    reply = yield from readings.answer.steps(opened, question, context)
    score = next((entry["probability"] for entry in reply.entries if entry["text"] == reply.answer), 0.0)
    said = {"answer": reply.answer, "score": round(score, DIGITS), "start": reply.start, "end": reply.end}
    said |= not_read(reply.lost)
    return said if reply.null_odds is None else said | {"null_odds": reply.null_odds, "threshold": reply.threshold}


def _names(opened: OpenedModel, text: str) -> Steps[Any]:
    found = yield from readings.names_in.steps(opened, text)
    said = [asdict(name) | {"text": text[name.start : name.end]} | _share(name.probability) for name in found]
    return {"names": said}


def _gaps(opened: OpenedModel, text: str) -> Steps[Any]:
    found = yield from readings.masked_words.steps(opened, text)
    return {"gaps": [_guesses(gap) for gap in found]}


def _followers(opened: OpenedModel, text: str, candidates: list[str]) -> Steps[Any]:
    return {"candidates": _guesses((yield from readings.next_sentence.steps(opened, text, candidates)))}


def _endings(opened: OpenedModel, text: str, endings: list[str]) -> Steps[Any]:
    return {"endings": _guesses((yield from readings.choose.steps(opened, text, endings)))}


def _vector(opened: OpenedModel, text: str) -> Steps[Any]:
    vector = yield from readings.vector.steps(opened, text)
    return {"vector": [round(value, DIGITS) for value in vector.tolist()]}


def _attention(opened: OpenedModel, text: str, second_text: str | None, layer: int) -> Steps[Any]:
    yield Rows(())
    names, weights = readings.attention(opened, text, second_text, layer)
    return {"pieces": names, "heads": weights.round(4).tolist()}


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
    CLASSES: dict.fromkeys((Pair, Texts, Pairs), _classes),
    ANSWERS: dict.fromkeys((OneQuestion, Questions), _answer),
    NAMES: dict.fromkeys((OneText, Texts), _names),
    MASKED: dict.fromkeys((OneText, Texts), _gaps),
    NEXT_PIECE: dict.fromkeys((OneText, Texts), _gaps),
    NEXT_SENTENCE: {Followers: _followers},
    CHOICE: {Endings: _endings},
}
VECTORS: Answering = dict.fromkeys((OneText, Texts), _vector)


# --- the application ----------------------------------------------------------------------------------------


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


def make_service(opened: OpenedModel, batch_size: int = 1, max_queue: int = 256, threads: int = 1) -> FastAPI:
    """The application for an opened model."""
    # The pages that FastAPI makes of the description would load their scripts from another host.
    app = FastAPI(title=opened.name, description="A model, served by bert-repro serve.", docs_url=None, redoc_url=None)
    queue = Queue(opened, batch_size, max_queue, threads)
    counts = Counts(queue)
    heads: Answering = reduce(or_, (ABILITIES[ability] for ability in opened.abilities), {}) or VECTORS
    asked: list[tuple[str, str, Answering]] = [
        ("/predict", f"What the model says: {', '.join(opened.abilities) or 'vectors'}", heads),
        ("/embed", "The vectors of texts", VECTORS),
        ("/pieces", "How a text becomes pieces", {OneText: _pieces}),
    ]
    if hasattr(opened.model, "base_model"):  # not of an exported file
        layers = (int, Field(ge=1, le=opened.model.config.num_hidden_layers))
        looked = create_model("Looked", __base__=Looked, __doc__=Looked.__doc__, layer=layers)
        asked.append(("/attention", "How the pieces of a text look at each other", {looked: _attention}))
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
        return _refusal(422, [{name: one[name] for name in ("type", "loc", "msg")} for one in error.errors()])

    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


def _route(path: str, answering: Answering, queue: Queue, counts: Counts) -> Callable[..., Awaitable[Response]]:
    kind: Any = reduce(or_, answering)

    async def route(asked: kind) -> Response:
        began, status = time.perf_counter(), 500
        answers = queue.put([partial(answering[type(asked)], **arguments) for arguments in asked.each()])
        try:
            found = await asyncio.gather(*answers)
            response = JSONResponse({"answers": found}) if found else _refusal(503, "too many texts are waiting")
            counts.texts += len(found)
            counts.seconds += time.perf_counter() - began if found else 0
            status = response.status_code
        except UserError as error:
            response, status = _refusal(422, str(error)), 422
        finally:
            counts.requests[path, status] += 1
        return response

    return route


def _refusal(status: int, detail: Any) -> Response:
    # Names of fields come from the request, and may hold what cannot be written as UTF-8; so JSON in ASCII.
    later = {"retry-after": "1"} if status == 503 else {}
    return Response(json.dumps({"detail": detail}), status, later, "application/json")


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
