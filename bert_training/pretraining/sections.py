"""The sections of a very large corpus, each of which is planned and shuffled by itself.

The plan of an epoch holds 25 bytes for every instance, and its order 8 more, so a plan of the whole text ends at some
size. A corpus of more than ``WHOLE_TOKENS`` tokens is therefore divided at borders of documents into sections of about
``SECTION_TOKENS``. The epoch goes through them in a random order, and the instances of each are shuffled. The B of a
NotNext pair comes from another document of the section.

A position of the stream must be found without planning every section before it. Therefore an epoch takes of each
section as many instances as a sample of its documents promises (``promised_size``), not as many as the plan has, which
differs by a per cent or so: a section that has more leaves some out in this epoch, and one that has fewer shows some
twice, with other masks. Every epoch chooses others. A corpus of up to ``WHOLE_TOKENS`` has one section and every
instance once.
"""

import bisect
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

WHOLE_TOKENS = 1 << 33  # 24 GB of tokens, sentences and documents; its plan has 2.4 GB at length 128
SECTION_TOKENS = 1 << 30
_SAMPLES, _SAMPLE_TOKENS = 4, 1 << 17  # of a section


class Offsets(Protocol):
    """What a plan needs of a corpus: ``Corpus``, or a section of one."""

    @property
    def path(self) -> Path:
        """The folder, for messages."""
        ...

    @property
    def sentences(self) -> np.ndarray:
        """(S + 1) offsets of all sentences of the corpus into its tokens."""
        ...

    @property
    def documents(self) -> np.ndarray:
        """(D + 1) offsets into ``sentences``."""
        ...

    @property
    def num_documents(self) -> int:
        """The number of documents, D."""
        ...

    @property
    def num_sentences(self) -> int:
        """The number of sentences in the documents."""
        ...

    @property
    def num_tokens(self) -> int:
        """The number of tokens in the documents."""
        ...


@dataclass(frozen=True)
class Section:
    """Consecutive documents of a corpus; the offsets are those of the corpus, which are not copied.

    Attributes:
        path: the folder of the corpus.
        sentences: the sentences of the whole corpus.
        documents: (D + 1) the documents of the section.
    """

    path: Path
    sentences: np.ndarray
    documents: np.ndarray

    @property
    def num_documents(self) -> int:
        """The number of documents, D."""
        return len(self.documents) - 1

    @property
    def num_sentences(self) -> int:
        """The number of sentences of the section."""
        return int(self.documents[-1] - self.documents[0])

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the section."""
        return int(self.sentences[self.documents[-1]] - self.sentences[self.documents[0]])


def first_document(corpus: Offsets, token: int) -> int:
    """The number of the first document that begins at ``token`` or after it; D if there is none."""
    # Not searchsorted, which would need the first token of every document in memory.
    return bisect.bisect_left(
        range(corpus.num_documents), token, key=lambda number: int(corpus.sentences[corpus.documents[number]])
    )


def sections_of(corpus: Offsets, most: int | None = None, size: int | None = None) -> list[Offsets]:
    """The corpus itself if it has at most ``most`` tokens, otherwise its sections of about ``size`` tokens.

    Every section has pairs of sentences and two documents, so that every objective can plan it; a section without is
    joined to the next one. A document is never divided.

    Args:
        corpus: the corpus.
        most: ``WHOLE_TOKENS`` if not given.
        size: ``SECTION_TOKENS`` if not given.
    """
    if corpus.num_tokens <= (WHOLE_TOKENS if most is None else most):
        return [corpus]
    size = SECTION_TOKENS if size is None else size
    borders = [0]
    for mark in range(size, corpus.num_tokens - size // 2, size):
        if _can_be_planned(corpus, borders[-1], border := first_document(corpus, mark)):
            borders.append(border)
    while len(borders) > 1 and not _can_be_planned(corpus, borders[-1], corpus.num_documents):
        borders.pop()
    borders.append(corpus.num_documents)
    return [_section(corpus, first, end) for first, end in itertools.pairwise(borders)]


def _can_be_planned(corpus: Offsets, first: int, end: int) -> bool:
    # No document is empty, so one has two sentences if there are more sentences than documents.
    return end - first >= 2 and int(corpus.documents[end] - corpus.documents[first]) > end - first


def _section(corpus: Offsets, first: int, end: int) -> Section:
    return Section(corpus.path, corpus.sentences, corpus.documents[first : end + 1])


def promised_size(section: Offsets, size_of: Callable[[Offsets], int]) -> int:
    """The number of instances that an epoch takes of a section: a function of its text and the settings alone.

    Args:
        section: the section.
        size_of: the number of instances in the plan of a section.
    """
    start, tokens = int(section.sentences[section.documents[0]]), section.num_tokens
    planned = instances = 0
    for number in range(_SAMPLES):
        first = first_document(section, start + tokens * number // _SAMPLES)
        end = max(first_document(section, start + tokens * number // _SAMPLES + _SAMPLE_TOKENS), first + 2)
        while end < section.num_documents and not _can_be_planned(section, first, end):
            end += 1
        if end <= section.num_documents and _can_be_planned(section, first, end):
            sample = _section(section, first, end)
            planned += sample.num_tokens
            instances += size_of(sample)
    return max(1, round(instances * tokens / planned)) if planned else size_of(section)
