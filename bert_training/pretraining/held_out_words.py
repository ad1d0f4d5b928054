"""The words of a held-out text whose loss can be compared between vocabularies.

Words, windows and the choice of hidden words are functions of the text alone, so that every vocabulary, length, seed
and number of processes is asked about the same words in the same places:

- A word is what BERT's rules take for one before the vocabulary is consulted (``BasicTokenizer``, without lowering the
  case): the characters between white space, where a punctuation mark or an ideograph is a word of its own.
- The first ``CHARACTERS`` of the text are cut into windows of ``WINDOW`` consecutive words of one document; the last
  window of a document may be shorter.
- Of a window, 15 % of the words are hidden, at least one; windows are taken until there are as many hidden words as
  asked for. A hash of the numbers of window and word decides both.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bert_training.pretraining.hashed_random import random_bits
from tokenization import BasicTokenizer

WINDOW = 64  # words, and about 85 pieces of English
HIDDEN = 0.15  # as in training
CHARACTERS = 1 << 19  # of the text; reading and cutting them takes less than a second
_WINDOW_STREAM, _WORD_STREAM = 11, 12

Document = list[str]  # its words


@dataclass(frozen=True)
class WordWindow:
    """Consecutive words of a document, and the places of the hidden ones among them."""

    words: tuple[str, ...]
    hidden: tuple[int, ...]


def word_windows(lines: Iterable[str | None], count: int) -> list[WordWindow]:
    """Windows with ``count`` hidden words in all, or as many as the beginning of the text has, in its order.

    Args:
        lines: the paragraphs of the text, and None at the end of each document.
        count: the number of hidden words.
    """
    windows = [
        document[start : start + WINDOW] for document in _documents(lines) for start in range(0, len(document), WINDOW)
    ]
    chosen, missing = [], count
    for number in np.argsort(random_bits(_WINDOW_STREAM, np.arange(len(windows))), kind="stable").tolist():
        if not missing:
            break
        words = windows[number]
        order = np.argsort(random_bits(_WORD_STREAM, number, np.arange(len(words))), kind="stable")
        hidden = order[: min(missing, max(1, round(HIDDEN * len(words))))].tolist()
        missing -= len(hidden)
        chosen.append((number, WordWindow(tuple(words), tuple(sorted(hidden)))))
    return [window for _, window in sorted(chosen, key=lambda one: one[0])]


def words_of(line: str) -> list[str]:
    """The words of a line, the same for every vocabulary."""
    return _RULES.tokenize(line)


_RULES = BasicTokenizer(do_lower_case=False, strip_accents=False)


def _documents(lines: Iterable[str | None]) -> Iterator[Document]:
    """The documents within the first ``CHARACTERS``; the last of them may be cut after a line."""
    document: Document = []
    characters = 0
    for line in lines:
        if line is None:
            if document:
                yield document
            document = []
            continue
        document += words_of(line[: CHARACTERS - characters])
        characters += len(line)
        if characters >= CHARACTERS:
            break
    if document:
        yield document


def cut_pieces(words: Sequence[Sequence[int]], capacity: int) -> list[list[tuple[int, Sequence[int]]]]:
    """A window's pieces as inputs of at most ``capacity`` pieces each: lists of (number of the word, its pieces).

    One input if it fits. Otherwise it is cut between words into inputs of about equal length, and a word that is longer
    than an input is cut as well, so that every piece stands in exactly one input.

    Args:
        words: the pieces of each word.
    """
    total = sum(map(len, words))
    aim = -(-total // max(1, -(-total // capacity)))
    inputs: list[list[tuple[int, Sequence[int]]]] = [[]]
    used = 0
    for number, pieces in enumerate(words):
        for start in range(0, len(pieces), capacity):
            part = pieces[start : start + capacity]
            if used >= aim or used + len(part) > capacity:
                inputs.append([])
                used = 0
            inputs[-1].append((number, part))
            used += len(part)
    return inputs
