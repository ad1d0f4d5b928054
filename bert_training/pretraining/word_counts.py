"""Count the words of files by ranges of bytes, in several processes, for a vocabulary.

The counts of ranges are added up, and a vocabulary depends on the counts alone, so that it is the same, byte for byte,
for any number of processes.
"""

import functools
import queue
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import tokenizers
from tqdm import tqdm

from bert_training.files.unchanged import unchanged
from bert_training.pretraining.documents import no_text
from bert_training.pretraining.encoding import Worker
from bert_training.pretraining.ranges import RangeReader, Span, plan_shards
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
        for counted, found in _counted(stack, shards, text_column, rules, num_workers):
            words.update(counted)
            for number, count in found:
                paragraphs[number] += count
            bar.update()
    for number, count in paragraphs.items():
        if not count:
            raise no_text(files[number])
    return words


Rules = tuple[bool, bool | None, bool]
Counted = tuple[Counter[str], list[tuple[int, int]]]


def _counted(
    stack: ExitStack, shards: list[list[Span]], column: str, rules: Rules, num_workers: int
) -> Iterator[Counted]:
    """The counts of each shard, in order; at most twice as many as there are workers wait in memory."""
    if num_workers == 1 or len(shards) == 1:
        for spans in shards:
            yield count_words_of_spans(None, spans, column, rules)
        return
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    threads = stack.enter_context(ThreadPoolExecutor(num_workers))
    for _ in range(min(num_workers, len(shards))):
        idle.put(stack.enter_context(Worker(None)))

    def count(spans: list[Span]) -> Counted:
        worker = idle.get()
        try:
            counted: Counted = worker.call(
                functools.partial(count_words_of_spans, spans=spans, column=column, rules=rules)
            )
            return counted
        finally:
            idle.put(worker)

    pending: list[Future[Counted]] = []
    for spans in shards:
        pending.append(threads.submit(count, spans))
        if len(pending) == 2 * num_workers:
            yield pending.pop(0).result()
    for future in pending:
        yield future.result()


def count_words_of_spans(_: tokenizers.Tokenizer | None, spans: Sequence[Span], column: str, rules: Rules) -> Counted:
    """The words of a shard, and (number of the file, paragraphs) for each of its spans; what a worker calls."""
    paragraphs: list[tuple[int, int]] = []

    def texts() -> Iterator[str]:
        for span in spans:
            count = 0
            for _, line in RangeReader(span, column):
                if line is not None:
                    count += 1
                    yield line
            paragraphs.append((span.number, count))

    return count_words(texts(), *rules), paragraphs
