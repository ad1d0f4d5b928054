"""What the service can be asked, for every head, and how its answers look.

Each class is the body of a request; ``readings`` are the functions of ``readings.py`` that answer it, a call for every
text. The numbers are those of the functions, rounded as ``bert-repro ask`` rounds them.
"""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from bert_training.app import readings
from bert_training.app.folder import ANSWERS, CHOICE, CLASSES, MASKED, NAMES, NEXT_PIECE, NEXT_SENTENCE, OpenedModel
from bert_training.app.service_batches import Row, Single
from bert_training.app.service_readers import Reading
from bert_training.tasks.classification.verdicts import DIGITS, Verdict, not_read

TEXTS = 64  # of a request


def _is_text(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty")
    if "\0" in text:
        raise ValueError("the text has a NUL character")
    return text


def _is_line(text: str) -> str:
    if len(text.splitlines()) > 1:
        raise ValueError("a text to choose from is one line; this one has a line break")
    return text.strip()


Text = Annotated[str, StringConstraints(strict=True, max_length=readings.CHARACTERS), AfterValidator(_is_text)]
Line = Annotated[Text, AfterValidator(_is_line)]
Several = Annotated[list[Text], Field(min_length=1, max_length=TEXTS)]


class Asked(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")

    def readings(self) -> Iterator[Reading]:
        """What answers it: a function of the opened model for every answer."""
        raise NotImplementedError

    @classmethod
    def is_one_row(cls, opened: OpenedModel) -> bool:
        """Whether each text of such a request is one row of this network, so that it may share a batch."""
        return False

    def singles(self, opened: OpenedModel) -> list[Single]:
        """The same as texts that may share a batch; none if they are not each one row of this network."""
        return []

    def _one_of(self, *names: str) -> None:
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of the fields {', '.join(names)}, got {' and '.join(given) or 'none'}")


class _Texts(Asked):
    """One text, or several."""

    text: Text | None = Field(None, examples=["The old house by the river was sold."])
    texts: Several | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        self._one_of("text", "texts")
        return self

    def _all(self) -> list[str]:
        return self.texts or [str(self.text)]


class Classes(Asked):
    """A text (with second_text, a pair), several texts, or several pairs."""

    text: Text | None = Field(None, examples=["The old house by the river was sold."])
    second_text: Text | None = None
    texts: Several | None = None
    pairs: list[Annotated[list[Text], Field(min_length=2, max_length=2)]] | None = Field(
        None, min_length=1, max_length=TEXTS
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        self._one_of("text", "texts", "pairs")
        if self.second_text is not None and self.text is None:
            raise ValueError("second_text belongs to text; several pairs are given as pairs")
        return self

    def readings(self) -> Iterator[Reading]:
        """One for each text or pair."""
        return (partial(_classes, text=text, second=second) for text, second in self._all())

    @classmethod
    def is_one_row(cls, opened: OpenedModel) -> bool:
        """Unless long texts are read in a way of their own."""
        return opened.reading.long_texts == "cut"

    def singles(self, opened: OpenedModel) -> list[Single]:
        """One for each text or pair, unless long texts are read in a way of their own."""
        if not self.is_one_row(opened):
            return []
        return [
            Single(len(text) + len(second or ""), partial(readings.labels_row, text=text, second=second), _classes_of)
            for text, second in self._all()
        ]

    def _all(self) -> list[tuple[str, str | None]]:
        if self.pairs:
            return [(first, second) for first, second in self.pairs]
        return [(text, self.second_text) for text in self.texts or [str(self.text)]]


def _classes(opened: OpenedModel, text: str, second: str | None) -> dict[str, Any]:
    return _said(readings.verdict(opened, text, second))


def _classes_of(opened: OpenedModel, outputs: Any, number: int, row: Row) -> dict[str, Any]:
    logits = outputs["logits"][number]
    logits = logits[len(row["input_ids"]) - 1] if opened.at_the_end else logits
    return _said(opened.judge(logits.float().numpy())._replace(lost=row["lost"][0]))


def _said(verdict: Verdict) -> dict[str, Any]:
    said = verdict.ranked()
    more = {} if said.thresholds is None else {"thresholds": dict(zip(said.names, said.thresholds, strict=True))}
    return said.record() | more


class OneQuestion(BaseModel):
    """A question about a text."""

    model_config = ConfigDict(extra="forbid")
    question: Text = Field(examples=["Who wrote it?"])
    context: Text = Field(examples=["It was written by Ada."])


class Questions(Asked):
    """A question about a text, or several with their texts."""

    question: Text | None = Field(None, examples=["Who wrote it?"])
    context: Text | None = Field(None, examples=["It was written by Ada."])
    questions: list[OneQuestion] | None = Field(None, min_length=1, max_length=TEXTS)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        self._one_of("question", "questions")
        if (self.question is None) != (self.context is None):
            raise ValueError("question and context belong together")
        return self

    def readings(self) -> Iterator[Reading]:
        """One for each question."""
        pairs = [(one.question, one.context) for one in self.questions or ()]
        for question, context in pairs or [(str(self.question), str(self.context))]:
            yield partial(_answer, question=question, context=context)


def _answer(opened: OpenedModel, question: str, context: str) -> dict[str, Any]:
    reply = readings.answer(opened, question, context)
    score = next((entry["probability"] for entry in reply.entries if entry["text"] == reply.answer), 0.0)
    said = {"answer": reply.answer, "score": round(score, DIGITS), "start": reply.start, "end": reply.end}
    said |= not_read(reply.lost)
    return said if reply.null_odds is None else said | {"null_odds": reply.null_odds, "threshold": reply.threshold}


class Names(_Texts):
    """Texts in which names are tagged."""

    def readings(self) -> Iterator[Reading]:
        """One for each text."""
        return (partial(_names, text=text) for text in self._all())


def _names(opened: OpenedModel, text: str) -> dict[str, Any]:
    found = readings.names_in(opened, text)
    spans = [{"kind": name.kind, "start": name.start, "end": name.end} for name in found]
    more = [{"text": text[name.start : name.end], "probability": round(name.probability, DIGITS)} for name in found]
    return {"names": [span | rest for span, rest in zip(spans, more, strict=True)]}


class Gaps(_Texts):
    """Texts with a [MASK] where a word is missing or, for a model that reads left to right, that go on."""

    text: Text | None = Field(None, examples=["The old [MASK] by the river was sold."])

    def readings(self) -> Iterator[Reading]:
        """One for each text."""
        return (partial(_gaps, text=text) for text in self._all())


def _gaps(opened: OpenedModel, text: str) -> dict[str, Any]:
    return {"gaps": [_guesses(gap) for gap in readings.masked_words(opened, text)]}


class Followers(Asked):
    """A text, and those of which each may be its next sentence."""

    text: Text = Field(examples=["The house was old."])
    candidates: list[Line] = Field(min_length=1, max_length=readings.LINES, examples=[["It was sold."]])

    def readings(self) -> Iterator[Reading]:
        """One."""
        yield lambda opened: {"candidates": _guesses(readings.next_sentence(opened, self.text, tuple(self.candidates)))}


class Endings(Asked):
    """The beginning of a text, and the endings to choose from."""

    text: Text = Field(examples=["The house was old."])
    endings: list[Line] = Field(min_length=2, max_length=readings.LINES, examples=[["It was sold.", "It flew."]])

    def readings(self) -> Iterator[Reading]:
        """One."""
        yield lambda opened: {"endings": _guesses(readings.choose(opened, self.text, tuple(self.endings)))}


class Vectors(_Texts):
    """Texts that become vectors: the mean over the vectors of the last layer, as extract_features.py writes it."""

    def readings(self) -> Iterator[Reading]:
        """One for each text."""
        return (partial(_vector, text=text) for text in self._all())

    @classmethod
    def is_one_row(cls, opened: OpenedModel) -> bool:
        """Always."""
        return True

    def singles(self, opened: OpenedModel) -> list[Single]:
        """One for each text."""
        options = (("output_hidden_states", True),)
        row = readings.vector_row
        return [Single(len(text), partial(row, text=text), _vector_of, options, True) for text in self._all()]


def _vector(opened: OpenedModel, text: str) -> dict[str, Any]:
    return _rounded(readings.vector(opened, text))


def _vector_of(opened: OpenedModel, outputs: Any, number: int, row: Row) -> dict[str, Any]:
    return _rounded(outputs["hidden_states"][-1][number, : len(row["input_ids"])].float().numpy().mean(axis=0))


def _rounded(vector: np.ndarray) -> dict[str, Any]:
    return {"vector": [round(value, DIGITS) for value in vector.tolist()]}


def _guesses(found: list[readings.Guess]) -> list[dict[str, Any]]:
    return [
        {"text": guess.text, "probability": round(guess.probability, DIGITS)} | not_read(guess.lost) for guess in found
    ]


BODIES: dict[str, type[Asked]] = {
    CLASSES: Classes,
    ANSWERS: Questions,
    NAMES: Names,
    MASKED: Gaps,
    NEXT_PIECE: Gaps,
    NEXT_SENTENCE: Followers,
    CHOICE: Endings,
}


def bodies_of(opened: OpenedModel) -> list[type[Asked]]:
    """What /predict can be asked: a body for each ability of the head, and vectors of an encoder without one."""
    return list(dict.fromkeys(BODIES[ability] for ability in opened.abilities)) or [Vectors]


def reads_single_rows(opened: OpenedModel) -> bool:
    """Whether every text that /predict is asked for is one row of the network."""
    return all(body.is_one_row(opened) for body in bodies_of(opened))
