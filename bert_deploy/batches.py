"""The queue of the service: readings of simultaneous requests, as rows of the same forward passes.

With ``size`` 1, one thread answers one text after another, and every answer has the digits that it has elsewhere. With
more, the rows of all texts that wait lie in a pool. Each thread takes the row that has waited longest and those that
are nearest to it in length, computes them in one pass, and answers the texts that are then complete; meanwhile the next
ones collect. A thread with nothing to do takes what comes at once. Floating-point sums then depend on what else is in
the pass: probabilities differ by less than 0.00001.
"""

import asyncio
import contextlib
import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from bert_deploy.folder import OpenedModel
from bert_deploy.readings import Rows, Steps, finished, outputs_of, run

MOST_PADDING = 1.25  # pieces with the padding, as a multiple of those without

Ask = Callable[[OpenedModel], Steps[Any]]


@dataclass(eq=False)
class Asked:
    """A reading that waits for its turn, and then for the outputs of its rows."""

    ask: Ask
    answer: asyncio.Future[Any]
    rows: Rows = Rows(())
    outputs: dict[int, dict[str, Any]] = field(default_factory=dict)

    def begin(self, opened: OpenedModel) -> None:
        """Say which rows are needed."""
        self.steps = self.ask(opened)
        self.rows = next(self.steps)

    @property
    def count(self) -> int:
        """How many rows it has."""
        return len(self.rows.rows)

    def length(self, number: int) -> int:
        """The pieces of a row."""
        return len(self.rows.rows[number]["input_ids"])

    def end(self) -> Any:
        """The answer, when all outputs are there."""
        return finished(self.steps, [self.outputs[number] for number in range(self.count)])


Place = tuple[Asked, int]  # one of the rows of a reading
Outcome = tuple[Asked, Any, Exception | None]


class Queue:
    """Answers in threads; at most ``most`` texts wait or are being read, ``pending`` of them now.

    Args:
        size: rows of a forward pass.
        threads: that compute side by side; each has a tokenizer, in which the library keeps settings of the last call.
    """

    def __init__(self, opened: OpenedModel, size: int, most: int, threads: int) -> None:
        self.pending, self._most, self._size = 0, most, size
        self._waiting: deque[Asked] = deque()
        self._rows: list[Place] = []
        self._changed = threading.Condition()
        for _ in range(threads):
            own = replace(opened, tokenizer=copy.deepcopy(opened.tokenizer))
            threading.Thread(target=self._serve, args=(own,), daemon=True).start()

    def put(self, asks: Sequence[Ask]) -> list[asyncio.Future[Any]]:
        """The answers to come, in the order of the texts; none if there is no room for all of them."""
        if self.pending + len(asks) > self._most:
            return []
        loop = asyncio.get_running_loop()
        asked = [Asked(ask, loop.create_future()) for ask in asks]
        self.pending += len(asked)
        for one in asked:
            one.answer.add_done_callback(self._count_down)
        with self._changed:
            self._waiting += asked
            self._changed.notify()
        return [one.answer for one in asked]

    def _count_down(self, answer: asyncio.Future[Any]) -> None:
        self.pending -= 1
        if not answer.cancelled():
            answer.exception()  # that of a second text of a request is nobody's

    def _serve(self, opened: OpenedModel) -> None:
        while True:
            texts, places = self._next()
            if self._size == 1:
                found = [_tried(one, partial(run, opened, one.ask(opened))) for one in texts]
            else:
                found = self._begin(opened, texts) if texts else self._compute(opened, places)
            if found:
                with contextlib.suppress(RuntimeError):  # the server has ended
                    found[0][0].answer.get_loop().call_soon_threadsafe(_deliver, found)

    def _next(self) -> tuple[list[Asked], list[Place]]:
        """Texts to begin with or, if there are none or rows enough for a pass, rows to compute."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._rows)
            if self._waiting and len(self._rows) < self._size:
                return [self._waiting.popleft() for _ in range(min(self._size, len(self._waiting)))], []
            taken = alike(self._rows, self._size)
            chosen = {(id(one), number) for one, number in taken}
            self._rows = [place for place in self._rows if (id(place[0]), place[1]) not in chosen]
            return [], taken

    def _begin(self, opened: OpenedModel, texts: list[Asked]) -> list[Outcome]:
        begun = [_tried(one, partial(one.begin, opened)) for one in texts]
        done = [
            _tried(one, one.end) if error is None else (one, None, error) for one, _, error in begun if not one.count
        ]
        with self._changed:
            self._rows += [(one, number) for one in texts for number in range(one.count)]
            self._changed.notify_all()
        return done

    def _compute(self, opened: OpenedModel, places: list[Place]) -> list[Outcome]:
        texts = list(dict.fromkeys(one for one, _ in places))
        rows = [one.rows.rows[number] for one, number in places]
        _, outputs, error = _tried(texts[0], lambda: outputs_of(opened, rows, texts[0].rows))
        if error:
            return [(one, None, error) for one in texts]
        with self._changed:  # another thread may have other rows of a text
            for (one, number), found in zip(places, outputs):
                one.outputs[number] = found
            complete = [one for one in texts if len(one.outputs) == one.count]
        return [_tried(one, one.end) for one in complete]


def alike(rows: Sequence[Place], size: int) -> list[Place]:
    """The first row and those nearest to it in length, of which little is padding; with or without the head."""
    encoder, length = rows[0][0].rows.encoder, rows[0][0].length(rows[0][1])
    fitting = [place for place in rows if place[0].rows.encoder == encoder]
    fitting.sort(key=lambda place: abs(place[0].length(place[1]) - length))  # stable: the oldest first
    longest, pieces = 0, 0
    for count, (one, number) in enumerate(fitting[:size]):
        longest, pieces = max(longest, one.length(number)), pieces + one.length(number)
        if count and longest * (count + 1) > MOST_PADDING * pieces:
            return fitting[:count]
    return fitting[:size]


def _tried(one: Asked, action: Callable[[], Any]) -> Outcome:
    try:
        return one, action(), None
    except Exception as error:  # whatever it is, the thread goes on
        return one, None, error


def _deliver(found: Sequence[Outcome]) -> None:
    for one, answer, error in found:
        if one.answer.done():  # another pass of it has failed, or its request was given up
            continue
        if error is None:
            one.answer.set_result(answer)
        else:
            one.answer.set_exception(error)
