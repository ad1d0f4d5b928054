"""Encode lines of text as token ids, sentence by sentence, in one process or several.

The workers are started with ``subprocess`` and import only this module. A worker of ``multiprocessing`` would first
import the whole script that started it, including torch.
"""

import functools
import itertools
import os
import pickle
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from bert_training.pretraining.sentences import split_sentences

_BATCH = 1 << 20


class Encoded(NamedTuple):
    """T tokens of S sentences, and the ends of D documents among them."""

    tokens: np.ndarray  # (T) int32, ids of all sentences, end to end
    lengths: np.ndarray  # (S) int64, tokens in each sentence
    ends: np.ndarray  # (D) int64, for each end of a document the number of sentences before it
    paragraphs: np.ndarray  # (D) int64, for each end of a document the number of paragraphs before it
    size: int  # the number of paragraphs


@functools.lru_cache(1)
def load_backend(content: str) -> tokenizers.Tokenizer:
    """The ``tokenizers`` object for the content of a tokenizer.json; it treats "[SEP]" in a text as ordinary text."""
    backend = tokenizers.Tokenizer.from_str(content)
    backend.encode_special_tokens = True
    return backend


def encode_lines(backend: tokenizers.Tokenizer, lines: Sequence[str | None]) -> Encoded:
    """Split ``lines``, paragraphs with None at the end of each document, into sentences and encode them."""
    sentences: list[str] = []
    ends: list[int] = []
    paragraphs: list[int] = []
    for place, line in enumerate(lines):
        if line is None:
            paragraphs.append(place - len(ends))
            ends.append(len(sentences))
        else:
            sentences.extend(split_sentences(line))
    found = [_ids(backend, batch) for batch in _batches(sentences)]
    tokens = np.concatenate([tokens for tokens, _ in found] or [np.zeros(0, np.int32)])
    lengths = np.concatenate([lengths for _, lengths in found] or [np.zeros(0, np.int64)])
    return Encoded(tokens, lengths, np.array(ends, np.int64), np.array(paragraphs, np.int64), len(lines) - len(ends))


def _batches(sentences: list[str]) -> Iterator[list[str]]:
    """The sentences in lists of about ``_BATCH`` characters, since what the library returns is large."""
    start = characters = 0
    for place, sentence in enumerate(sentences):
        characters += len(sentence)
        if characters >= _BATCH:
            yield sentences[start : place + 1]
            start, characters = place + 1, 0
    if start < len(sentences):
        yield sentences[start:]


def _ids(backend: tokenizers.Tokenizer, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    ids = [encoding.ids for encoding in backend.encode_batch_fast(sentences, add_special_tokens=False)]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    return np.fromiter(itertools.chain.from_iterable(ids), np.int32, int(lengths.sum())), lengths


def encoded_chunks(chunks: Iterator[list[str | None]], content: str, num_workers: int) -> Iterator[tuple[int, Encoded]]:
    """Yield (number of lines, their ids) for every chunk, in order.

    Args:
        chunks: lists of lines, with None at the end of each document.
        content: the content of a tokenizer.json.
        num_workers: as in ``results_in_order``.
    """
    return results_in_order((functools.partial(_sized, lines=chunk) for chunk in chunks), num_workers, content)


def _sized(backend: tokenizers.Tokenizer, lines: Sequence[str | None]) -> tuple[int, Encoded]:
    return len(lines), encode_lines(backend, lines)


def results_in_order(work: Iterable[Callable[..., Any]], num_workers: int, content: str | None = None) -> Iterator[Any]:
    """What each call returns, in order; at most ``2 * num_workers`` calls and results are in memory at a time.

    A single call is done by this process, because starting a worker takes longer.

    Args:
        work: what is called, with the tokenizer (``Worker.call``).
        num_workers: processes to start; with 1 this process does the work.
        content: the content of a tokenizer.json; None for work without one.
    """
    work = iter(work)
    ahead = list(itertools.islice(work, 2))
    calls = itertools.chain(ahead, work)
    if num_workers == 1 or len(ahead) < 2:
        backend = content and load_backend(content)
        for call in calls:
            yield call(backend)
        return
    with ExitStack() as stack:
        idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        threads = stack.enter_context(ThreadPoolExecutor(num_workers))
        for _ in range(num_workers):
            idle.put(stack.enter_context(Worker(content)))

        def done(call: Callable[..., Any]) -> Any:
            worker = idle.get()
            try:
                return worker.call(call)
            finally:
                idle.put(worker)

        pending: deque[Future[Any]] = deque()
        for call in calls:
            pending.append(threads.submit(done, call))
            if len(pending) == 2 * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class Worker:
    """A process that encodes. It reads pickles of functions from its standard input and writes pickles of results."""

    def __init__(self, content: str | None):
        root = str(Path(__file__).parents[2])
        program = (
            f"import sys; sys.path.insert(0, {root!r}); from bert_training.pretraining.encoding import serve; serve()"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # One thread for each worker, since there are as many workers as cores.
            env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},
            # Ctrl-C reaches the parent only. When the parent ends, the pipe closes, which ends the worker.
            start_new_session=True,
        )
        # Sent with the first work: a pipe holds less than a tokenizer.json, and waiting here until the process reads
        # it would start the workers one after another.
        self._unsent: list[Any] = [content]

    def call(self, work: Callable[..., Any]) -> Any:
        """What ``work`` returns in the process, called with the tokenizer; with None if there is none.

        Raises:
            RuntimeError: the process has died.
            Exception: what ``work`` raises.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        messages, self._unsent = [*self._unsent, work], []
        try:
            for message in messages:
                pickle.dump(message, self.process.stdin, pickle.HIGHEST_PROTOCOL)
            self.process.stdin.flush()
            result, error = pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError) as error:
            status = self.process.wait()
            raise RuntimeError(
                f"a tokenising process ended with status {status} (-9: killed, perhaps because memory ran out); run "
                "again with fewer workers: building continues where it stopped"
            ) from error
        if error is not None:
            raise error
        return result

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.process.kill()  # nobody will read its result
        self.process.communicate()


def serve() -> None:
    """The main function of a worker: do what comes from standard input until it ends."""
    receive, send = sys.stdin.buffer, sys.stdout.buffer
    try:
        content = pickle.load(receive)
    except EOFError:  # there was less work than workers
        return
    backend = content and load_backend(content)
    while True:
        try:
            work = pickle.load(receive)
        except EOFError:
            return
        try:
            answer = pickle.dumps((work(backend), None), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            answer = _pickled_error(error)
        send.write(answer)
        send.flush()


def _pickled_error(error: Exception) -> bytes:
    """An error as an answer; one that cannot be pickled as a RuntimeError with its text."""
    try:
        answer = pickle.dumps((None, error))
        pickle.loads(answer)
    except Exception:
        answer = pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
    return answer
