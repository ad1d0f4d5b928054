"""Encode lines of text as token ids, sentence by sentence, in one process or several.

The workers are those of loky, which joblib brings. Workers of ``multiprocessing`` would first import the whole script
that started them, including torch. What they call is in modules that import neither torch nor transformers.
"""

import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from joblib.externals.loky import ProcessPoolExecutor

from bert_training.pretraining.held_out import Side
from bert_training.pretraining.sentences import split_sentences
from bert_training.pretraining.slices import Span, lines_of_span
from tokenization.coverage import Sample

CHUNK_CHARACTERS = 1 << 20


class Encoded(NamedTuple):
    """T tokens of S sentences, and the ends of D documents among them."""

    tokens: np.ndarray  # (T) int32, ids of all sentences, end to end
    lengths: np.ndarray  # (S) int64, tokens in each sentence
    ends: np.ndarray  # (D) int64, for each end of a document the number of sentences before it


Part = tuple[list[Encoded], list[tuple[int, str]]]  # ids, and what was drawn for the sample of the text


@functools.lru_cache(1)
def load_backend(content: str) -> tokenizers.Tokenizer:
    """The ``tokenizers`` object for the content of a tokenizer.json; it treats "[SEP]" in a text as ordinary text."""
    backend = tokenizers.Tokenizer.from_str(content)
    backend.encode_special_tokens = True
    return backend


def encode_lines(content: str, lines: Sequence[str | None]) -> Encoded:
    """Split ``lines``, paragraphs with None at the end of each document, into sentences and encode them.

    Args:
        content: the content of a tokenizer.json.
        lines: the lines.
    """
    sentences: list[str] = []
    ends: list[int] = []
    for line in lines:
        if line is None:
            ends.append(len(sentences))
        else:
            sentences.extend(split_sentences(line))
    found = [_ids(load_backend(content), batch) for batch in _batches(sentences)]
    tokens = np.concatenate([tokens for tokens, _ in found] or [np.zeros(0, np.int32)])
    lengths = np.concatenate([lengths for _, lengths in found] or [np.zeros(0, np.int64)])
    return Encoded(tokens, lengths, np.array(ends, np.int64))


def _batches(sentences: list[str]) -> Iterator[list[str]]:
    """The sentences in lists of about a million characters, since what the library returns is large."""
    start = characters = 0
    for place, sentence in enumerate(sentences):
        characters += len(sentence)
        if characters >= CHUNK_CHARACTERS:
            yield sentences[start : place + 1]
            start, characters = place + 1, 0
    if start < len(sentences):
        yield sentences[start:]


def _ids(backend: tokenizers.Tokenizer, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    ids = [encoding.ids for encoding in backend.encode_batch_fast(sentences, add_special_tokens=False)]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    return np.fromiter(itertools.chain.from_iterable(ids), np.int32, int(lengths.sum())), lengths


def chunks_of(lines: Iterable[str | None]) -> Iterator[list[str | None]]:
    """Consecutive lines in lists of about a million characters."""
    chunk: list[str | None] = []
    characters = 0
    for line in lines:
        chunk.append(line)
        characters += 1 if line is None else len(line)
        if characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def encode_piece(content: str, piece: Span, column: str, side: Side, below: int) -> Part:
    """Read and encode a piece; what a worker calls."""
    sample = Sample(below=below)
    lines = sampled(side.of(lines_of_span(piece, column)), sample, piece.number << 44 | piece.start)
    return [encode_lines(content, chunk) for chunk in chunks_of(lines)], sample.drawn


def encode_chunk(content: str, lines: list[str | None]) -> Part:
    """Encode lines that another process has read."""
    return [encode_lines(content, lines)], []


def sampled(lines: Iterable[str | None], sample: Sample, first: int) -> Iterator[str | None]:
    """``lines``, which are added to a sample with their places from ``first`` on."""
    for place, line in enumerate(lines, first):
        if line is not None:
            sample.add(line, place)
        yield line


def results_in_order(work: Iterable[Callable[[], Any]], num_workers: int) -> Iterator[Any]:
    """What each call returns, in order; at most ``2 * num_workers`` calls and results are in memory at a time.

    A single call is done by this process, because starting a worker takes longer.

    Args:
        work: what is called.
        num_workers: the most processes to start; with 1 this process does the work.
    """
    work = iter(work)
    ahead = list(itertools.islice(work, num_workers))
    calls = itertools.chain(ahead, work)
    if len(ahead) < 2:
        for call in calls:
            yield call()
        return
    pool = ProcessPoolExecutor(len(ahead), initializer=_begin_worker)
    try:
        pending: deque[Future[Any]] = deque()
        for call in calls:
            pending.append(pool.submit(call))
            if len(pending) == 2 * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BaseException:
        pool.shutdown(kill_workers=True)  # nobody will read their results
        raise
    pool.shutdown()


def _begin_worker() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread for each worker, since there are as many as cores
