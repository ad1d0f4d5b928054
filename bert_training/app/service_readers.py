"""The threads in which the service reads texts, and the network that they share.

With ``batch_size`` 1, one thread reads one text after another, and every answer has the digits that it has elsewhere.
With more, texts that are one row of the network each go through ``service_batches.py``. For all others, such as
questions with their windows, as many threads read at the same time, and ``SharedNetwork`` puts what they ask the
network into one forward pass, which has all cores; the functions of ``readings.py`` know nothing of that.
Floating-point sums then depend on what else is in the batch: probabilities differ by less than 0.00001.
"""

import asyncio
import copy
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from bert_training.app.folder import OpenedModel
from bert_training.app.service_batches import Batches, Single
from tokenization.errors import UserError

Reading = Callable[[OpenedModel], Any]
ROWS = ("input_ids", "token_type_ids", "attention_mask")
# Outputs with a dimension for the tokens; "logits" has one if the class is among TAGGERS.
PER_TOKEN = ("prediction_logits", "start_logits", "end_logits", "last_hidden_state", "hidden_states")
TAGGERS = ("MaskedLM", "TokenClassification", "FeatureTagger")


class Asked(Protocol):
    """A request."""

    def readings(self) -> Iterable[Reading]:
        """A function of the opened model for every text."""
        ...

    def singles(self, opened: OpenedModel) -> list[Single]:
        """The same as texts that are one row each; none if they are not."""
        ...


class Full(Exception):
    """There is no room in the queue; ``seconds`` says when there may be."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Readers:
    """Reads texts in threads; at most ``most`` of them wait or are being read.

    Args:
        batch_size: how many texts are read at the same time.
        wait_s: how long a text that is not one row waits for others to share a forward pass with.
        threads: that compute batches of single rows.
    """

    def __init__(self, opened: OpenedModel, batch_size: int, wait_s: float, most: int, threads: int = 1) -> None:
        self.network = SharedNetwork(opened, batch_size, wait_s) if batch_size > 1 else None
        self._batches = None
        if batch_size > 1:
            self._batches = Batches([_with_own_tokenizer(opened, opened.model) for _ in range(threads)], batch_size)
        self.most = most
        self.pending = 0
        self._opened = opened
        self._own = threading.local()
        self._threads = batch_size
        self._pool = ThreadPoolExecutor(batch_size, "reader")
        self._seconds = 0.05  # of a text, lately

    async def read(self, asked: Asked) -> list[Any]:
        """The answers, in the order of the texts. Raises Full, UserError for too many, and what a reading raises."""
        singles = asked.singles(self._opened) if self._batches else []
        readings = [] if singles else list(asked.readings())
        count = len(singles) + len(readings)
        if count > self.most:  # these would never find room
            raise UserError(f"expected at most {self.most} texts (the service's --max_queue), got {count}")
        if self.pending + count > self.most:
            raise Full(max(1, min(60, math.ceil(self.pending * self._seconds))))
        began = time.perf_counter()
        self.pending += count
        if self._batches and singles:
            tasks = self._batches.put(singles)
        else:
            loop = asyncio.get_running_loop()
            tasks = [loop.run_in_executor(self._pool, self._read, reading) for reading in readings]
        for task in tasks:
            task.add_done_callback(self._done)
        try:
            if len(tasks) == 1:
                return [await tasks[0]]
            return list(await asyncio.gather(*tasks))
        finally:  # the rest of a request of which one text was refused, or whose sender has gone
            answered = all(task.done() for task in tasks)
            for task in tasks:
                task.cancel()
            if singles and answered:  # what waits now is answered in about as long, those before these included
                self._note((time.perf_counter() - began) / max(count, self.pending))

    def _done(self, task: asyncio.Future[Any]) -> None:
        self.pending -= 1
        if not task.cancelled():
            task.exception()  # has been raised by gather, or is that of a second text

    def _read(self, reading: Reading) -> Any:
        began = time.perf_counter()
        try:
            if self.network is None:
                return reading(self._opened)
            with self.network.reading():
                return reading(self._own_copy(self.network))
        finally:
            self._note((time.perf_counter() - began) / self._threads)

    def _note(self, seconds: float) -> None:
        self._seconds += 0.1 * (seconds - self._seconds)

    def _own_copy(self, network: "SharedNetwork") -> OpenedModel:
        if not hasattr(self._own, "opened"):
            self._own.opened = _with_own_tokenizer(self._opened, network)
        return self._own.opened


def _with_own_tokenizer(opened: OpenedModel, network: Any) -> OpenedModel:
    """For a thread: the library sets truncation and padding in a tokenizer before each call."""
    return dataclasses.replace(opened, model=network, tokenizer=copy.deepcopy(opened.tokenizer))


@dataclasses.dataclass
class _Asked:
    batch: dict[str, torch.Tensor]
    options: dict[str, Any]
    answer: "Future[Any]" = dataclasses.field(default_factory=Future)

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(self.batch["input_ids"].shape)

    @property
    def joins(self) -> bool:
        """Whether it consists of rows (B, L) and nothing else."""
        return set(self.batch) == set(ROWS) and len(self.size) == 2


class SharedNetwork:
    """Looks like a network to those who call it; calls from several threads share a forward pass.

    The oldest call is answered next, together with those whose rows are nearest to it in length.
    """

    def __init__(self, opened: OpenedModel, batch_size: int, wait_s: float) -> None:
        self._model: PreTrainedModel = opened.model
        self._pad = {"input_ids": opened.tokenizer.pad_token_id, "token_type_ids": 0, "attention_mask": 0}
        architecture = getattr(opened.model, "architecture", type(opened.model).__name__)
        tagger = any(name in architecture for name in TAGGERS)
        self._per_token = (*PER_TOKEN, "logits") if tagger else PER_TOKEN
        self._batch_size, self._wait_s = batch_size, wait_s
        self._waiting: list[_Asked] = []
        self._reading = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._serve, name="network", daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def reading(self) -> "SharedNetwork":
        """A context in which a thread may call the network; the others wait for its call."""
        return self

    def __enter__(self) -> None:
        with self._changed:
            self._reading += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._reading -= 1
            self._changed.notify_all()

    def __call__(self, **arguments: Any) -> Any:
        """The outputs for the rows of this call."""
        batch = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
        asked = _Asked(batch, {name: value for name, value in arguments.items() if name not in batch})
        with self._changed:
            self._waiting.append(asked)
            self._changed.notify_all()
        return asked.answer.result()

    def _serve(self) -> None:
        while True:
            together = self._next()
            try:
                answers = self._forward(together)
            except BaseException as error:
                for asked in together:
                    asked.answer.set_exception(error)
            else:
                for asked, answer in zip(together, answers, strict=True):
                    asked.answer.set_result(answer)

    def _next(self) -> list[_Asked]:
        """The calls that share the next forward pass."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            # Others are waited for while there are some that have not called yet.
            self._changed.wait_for(lambda: len(self._waiting) >= self._reading, self._wait_s)
            first, *others = self._waiting
            together, rows = [first], first.size[0]
            for asked in sorted(others, key=lambda other: abs(other.size[-1] - first.size[-1])):
                alike = first.joins and asked.joins and asked.options == first.options
                if alike and rows + asked.size[0] <= self._batch_size:
                    together.append(asked)
                    rows += asked.size[0]
            self._waiting = [asked for asked in self._waiting if all(asked is not other for other in together)]
            return together

    @torch.inference_mode()
    def _forward(self, together: list[_Asked]) -> list[Any]:
        first = together[0]
        if len(together) == 1:
            return [self._model(**first.batch, **first.options)]
        longest = max(asked.size[1] for asked in together)
        batch = {name: torch.cat([self._padded(asked, name, longest) for asked in together]) for name in ROWS}
        outputs = self._model(**batch, **first.options)
        ends = torch.tensor([asked.size[0] for asked in together]).cumsum(0).tolist()
        return [self._part(outputs, slice(end - asked.size[0], end), asked) for asked, end in zip(together, ends)]

    def _padded(self, asked: _Asked, name: str, longest: int) -> torch.Tensor:
        missing = longest - asked.size[1]
        return torch.nn.functional.pad(asked.batch[name], (0, missing), value=self._pad[name])

    def _part(self, outputs: ModelOutput, rows: slice, asked: _Asked) -> ModelOutput:
        """The rows of one call, without the padding."""

        def cut(name: str, value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(cut(name, one) for one in value)
            return value[rows, : asked.size[1]] if name in self._per_token else value[rows]

        return type(outputs)(**{name: cut(name, value) for name, value in outputs.items()})
