"""Count the words of files by ranges of bytes, in several processes, for a vocabulary.

The counts of ranges are added up, and a vocabulary depends on the counts alone, so that it is the same, byte for byte,
for any number of processes.
"""

import functools
import queue
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tqdm import tqdm

from bert_training.files.unchanged import unchanged
from bert_training.inputs.texts import no_text
from bert_training.pretraining.encoding import Worker
from bert_training.pretraining.ranges import RangeReader, Rule, Span, plan_shards
from tokenization.train_wordpiece import count_words


def count_words_of_files(
    files: Sequence[Path],
    do_lower_case: bool,
    strip_accents: bool | None,
    tokenize_chinese_chars: bool,
    *,
    text_column: str = "text",
    num_workers: int = 1,
    progress: bool = True,
    shard_bytes: int | None = None,
) -> Counter[str]:
    """The words of the files as ``count_words`` counts them.

    Args:
        files: the files.
        do_lower_case: see ``count_words``, as for the next two.
        text_column: the field of the text.
        num_workers: processes to start; with 1 this process does the work.
        progress: show a progress bar if standard error is a terminal.
        shard_bytes: see ``plan_shards``.

    Raises:
        ValueError: a file cannot be read, has no text, or is changed meanwhile.
    """
    rules = (do_lower_case, strip_accents, tokenize_chinese_chars)
    shards = plan_shards(files, shard_bytes)
    words: Counter[str] = Counter()
    paragraphs = dict.fromkeys(range(len(files)), 0)
    # disable=None means that tqdm shows no bar unless stderr is a terminal.
    with (
        unchanged(*files),
        ExitStack() as stack,
        tqdm(total=len(shards), unit=" parts", desc="counting words", disable=None if progress else True) as bar,
    ):
        work = [
            functools.partial(count_words_of_spans, spans=spans, column=text_column, rules=rules) for spans in shards
        ]
        for counted in results_in_order(stack, work, num_workers):
            words.update(counted.words)
            for number, found in counted.paragraphs:
                paragraphs[number] += found
            bar.update()
    for number, count in paragraphs.items():
        if not count:
            raise no_text(files[number])
    return words


Rules = tuple[bool, bool | None, bool]  # do_lower_case, strip_accents, tokenize_chinese_chars


class Counted(NamedTuple):
    """What a shard has."""

    words: Counter[str]
    paragraphs: list[tuple[int, int]]  # for each span, (number of its file, paragraphs)
    read: list[tuple[list[tuple[int, int]], Rule]]  # for each span, the extents and the rule of ``RangeReader``


def results_in_order(stack: ExitStack, work: Sequence[Callable[..., Any]], num_workers: int) -> Iterator[Any]:
    """What each call returns, in order; at most twice as many results as there are workers wait in memory.

    Args:
        stack: at its end, the workers end.
        work: what is called, as ``Worker.call`` does it.
        num_workers: processes to start; with 1 this process does the work.
    """
    if num_workers == 1 or len(work) == 1:
        for call in work:
            yield call(None)
        return
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    threads = stack.enter_context(ThreadPoolExecutor(num_workers))
    for _ in range(min(num_workers, len(work))):
        idle.put(stack.enter_context(Worker(None)))

    def done(call: Callable[..., Any]) -> Any:
        worker = idle.get()
        try:
            return worker.call(call)
        finally:
            idle.put(worker)

    pending: list[Future[Any]] = []
    for call in work:
        pending.append(threads.submit(done, call))
        if len(pending) == 2 * num_workers:
            yield pending.pop(0).result()
    for future in pending:
        yield future.result()


def count_words_of_spans(_: tokenizers.Tokenizer | None, spans: Sequence[Span], column: str, rules: Rules) -> Counted:
    """The words of a shard; what a worker calls."""
    paragraphs: list[tuple[int, int]] = []
    read: list[tuple[list[tuple[int, int]], Rule]] = []

    def texts() -> Iterator[str]:
        for span in spans:
            count, reader = 0, RangeReader(span, column)
            for _, line in reader:
                if line is not None:
                    count += 1
                    yield line
            paragraphs.append((span.number, count))
            read.append((reader.extents, reader.rule))

    return Counted(count_words(texts(), *rules), paragraphs, read)
