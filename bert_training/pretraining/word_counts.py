"""Count the words of files by ranges of bytes, in several processes, for a vocabulary.

The counts of ranges are added up, and a vocabulary depends on the counts alone, so that it is the same, byte for byte,
for any number of processes.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import tokenizers
from tqdm import tqdm

from bert_training.files.hashing import unchanged
from bert_training.inputs.texts import check_has_text
from bert_training.pretraining.encoding import results_in_order
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
        tqdm(total=len(shards), unit=" parts", desc="counting words", disable=None if progress else True) as bar,
    ):
        work = [
            functools.partial(count_words_of_spans, spans=spans, column=text_column, rules=rules) for spans in shards
        ]
        for counted in results_in_order(work, min(num_workers, max(1, len(work)))):
            words.update(counted.words)
            for number, found in counted.paragraphs:
                paragraphs[number] += found
            bar.update()
    for number, count in paragraphs.items():
        check_has_text(files[number], count)
    return words


Rules = tuple[bool, bool | None, bool]  # do_lower_case, strip_accents, tokenize_chinese_chars


class Counted(NamedTuple):
    """What a shard has."""

    words: Counter[str]
    paragraphs: list[tuple[int, int]]  # for each span, (number of its file, paragraphs)
    read: list[tuple[list[tuple[int, int]], Rule]]  # for each span, the extents and the rule of ``RangeReader``


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
