"""Texts of simultaneous requests, as rows of one forward pass.

A text that is one row of the network, such as one to be classified, waits in a list. Each of the ``Batches``' threads
takes the text that has waited longest and those that are nearest to it in length, turns them into ids, computes and
answers all of them; meanwhile the next ones collect. A thread with nothing to do takes what comes at once, so that no
text waits while a core is idle. Only requests that come together share a batch.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_training.app.folder import OpenedModel
from bert_training.app.readings import encoder_of, outputs_of

MOST_PADDING = 1.25  # letters with the padding, as a multiple of those without

Row = dict[str, list[int]]


@dataclass(frozen=True)
class Single:
    """How a text that is one row is answered.

    Attributes:
        letters: of the text; its pieces are about as many times fewer as those of the other texts.
        row: from the opened model to the ids; raises ValueError if the text is refused.
        answer: the answer, from the opened model, the outputs of a batch, the number of the text in it and its row.
        options: arguments of the network; only texts with the same ones share a batch.
        encoder_alone: whether the head is left out; texts with the same options agree on that.
    """

    letters: int
    row: Callable[[OpenedModel], Row]
    answer: Callable[[OpenedModel, Any, int, Row], Any]
    options: tuple[tuple[str, Any], ...] = ()
    encoder_alone: bool = False


@dataclass(eq=False)
class _Waiting:
    single: Single
    answer: asyncio.Future[Any]
    row: Row = field(default_factory=dict)


class Batches:
    """Threads that answer texts; each has its own tokenizer, in which the library keeps settings of the last call.

    Args:
        openeds: one for each thread, all with the same network.
        size: the most texts of a batch.
    """

    def __init__(self, openeds: Sequence[OpenedModel], size: int) -> None:
        self._size = size
        self._waiting: list[_Waiting] = []
        self._changed = threading.Condition()
        for number, opened in enumerate(openeds):
            threading.Thread(target=self._serve, args=(opened,), name=f"batches-{number}", daemon=True).start()

    def put(self, singles: Sequence[Single]) -> list[asyncio.Future[Any]]:
        """The answers to come, in the order of the texts."""
        loop = asyncio.get_running_loop()
        waiting = [_Waiting(single, loop.create_future()) for single in singles]
        with self._changed:
            self._waiting += waiting
            self._changed.notify()
        return [one.answer for one in waiting]

    def _serve(self, opened: OpenedModel) -> None:
        while True:
            self._answer(opened, self._next())

    def _next(self) -> list[_Waiting]:
        """The text that has waited longest, and those nearest to it in length."""
        with self._changed:
            self._changed.wait_for(self._someone_waits)
            first = self._waiting[0]
            alike = [one for one in self._waiting if one.single.options == first.single.options]
            alike.sort(key=lambda one: abs(one.single.letters - first.single.letters))  # stable: the oldest first
            together = _with_little_padding(alike[: self._size])
            taken = set(map(id, together))
            self._waiting = [one for one in self._waiting if id(one) not in taken]
            if self._waiting:
                self._changed.notify()
            return together

    def _someone_waits(self) -> bool:
        """Whether a text is waited for. Those whose client has gone lose their place."""
        self._waiting = [one for one in self._waiting if not one.answer.cancelled()]
        return bool(self._waiting)

    def _answer(self, opened: OpenedModel, together: list[_Waiting]) -> None:
        loop = together[0].answer.get_loop()
        found: list[tuple[asyncio.Future[Any], Any]] = []
        rows: list[_Waiting] = []
        for one in together:
            try:
                if not one.answer.cancelled():
                    one.row = one.single.row(opened)
                    rows.append(one)
            except BaseException as error:
                found.append((one.answer, error))
        try:
            if rows:
                options = dict(rows[0].single.options)
                network = encoder_of(opened) if rows[0].single.encoder_alone else opened.model
                outputs = outputs_of(network, [one.row for one in rows], opened.tokenizer.pad_token_id, **options)
        except BaseException as error:
            found += [(one.answer, error) for one in rows]
        else:
            for number, one in enumerate(rows):
                try:
                    answer = one.single.answer(opened, outputs, number, one.row)
                except BaseException as error:
                    answer = error
                found.append((one.answer, answer))
        loop.call_soon_threadsafe(_deliver, found)


def _with_little_padding(waiting: Sequence[_Waiting]) -> list[_Waiting]:
    """The first of them, as many as make a batch of which little is padding; at least one."""
    longest, letters = 0, 0
    for count, one in enumerate(waiting, 1):
        longest, letters = max(longest, one.single.letters), letters + one.single.letters
        if count > 1 and longest * count > MOST_PADDING * letters:
            return list(waiting[: count - 1])
    return list(waiting)


def _deliver(found: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in found:
        if future.done():  # its request has gone
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
