"""Named entities: sentences with tags, rows of tokens made of them, and from logits back to tags.

A sentence becomes one row of the model, with as much of its document around it as fits. Only the words of the sentence
itself have labels, at their first pieces (paper, section 5.3). Sentences with the same context share a row:

    tokens   [CLS] EU rejects German  call  .  Peter Black ##burn [SEP]
    labels    -100  3       0      7     0  0      5     6   -100  -100

`bert_training.tasks.ner.sources` reads the sentences and names their tags.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax
from transformers import PreTrainedTokenizerBase

from bert_training.engine.batches import IGNORED, Features
from bert_training.files.atomic import whole_file
from bert_training.tasks.cut_texts import rows_around
from bert_training.tasks.ner.metrics import entities, span_scores, word_scores
from bert_training.tasks.task_data import pieces_of_texts

PLAIN = "plain"  # the scheme of tags that are classes of words and not those of spans


@dataclass
class Sentence:
    """One sentence.

    Attributes:
        tags: one per word; None if the source has none.
        document: the number of its document in the file.
        where: the file, or the row of a data set.
        line: the line of its first word in the file; None for a data set.
        raw: of a text, the number of its line or row, the text, and the place of every word in it (``raw_text.py``).
    """

    words: list[str]
    tags: list[str] | None
    document: int
    where: str
    line: int | None = None
    raw: tuple[int, str, list[tuple[int, int]]] | None = None

    @property
    def known_tags(self) -> list[str]:
        """The tags, where the caller has made sure that there are some."""
        assert self.tags is not None
        return self.tags

    def place(self, word: int) -> str:
        """The file and line of a word, or the row of a data set, for error messages."""
        return self.where if self.line is None else f"{self.where}:{self.line + word}"


@dataclass
class Split:
    """The sentences of one source, and its ``facts`` for run.json."""

    source: str
    sentences: list[Sentence]
    facts: dict = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def words(self) -> list[str]:
        """The words of all sentences."""
        return [word for sentence in self.sentences for word in sentence.words]

    @property
    def num_words(self) -> int:
        """The number of words of all sentences."""
        return len(self.words)

    @property
    def tagged(self) -> bool:
        """Whether the sentences have tags."""
        return self.sentences[0].tags is not None

    @property
    def of_texts(self) -> bool:
        """Whether its words were cut out of texts."""
        return self.sentences[0].raw is not None

    @property
    def plain(self) -> bool:
        """Whether its tags are classes of words and not those of spans."""
        return self.facts.get("tag_scheme") == PLAIN


def one_document_each(split: Split) -> None:
    """Make every sentence a document of its own, because the source marks no documents."""
    for number, sentence in enumerate(split.sentences):
        sentence.document = number


# --- to the model ----------------------------------------------------------------------------------------


@dataclass
class Rows:
    """Rows for the model, each consisting of [CLS], a part of a document, and [SEP].

    Attributes:
        input_ids: one array of ids for every row.
        words: for every row the numbers, within the split, of the words that it predicts. Every word of the split is
            predicted in exactly one row.
        positions: for every row the positions of the first pieces of these words.
        unknown_words: the number of words that the tokenizer drops, such as control characters; they become [UNK].
        parted_sentences: the number of sentences that are longer than a row and are read in parts.
        cut_words: the number of single words that are longer than a row and are cut.
    """

    input_ids: list[np.ndarray]
    words: list[np.ndarray]
    positions: list[np.ndarray]
    unknown_words: int
    parted_sentences: int = 0
    cut_words: int = 0

    def cut_facts(self) -> dict[str, int]:
        """For run.json, what is longer than a row."""
        return {"words": self.cut_words, "sentences_in_parts": self.parted_sentences}

    def features(self, split: Split, labels: tuple[str, ...], pad_token_id: int) -> Features:
        """The model's inputs and, if the split has tags, labels, which are -100 for tags that ``labels`` lacks."""
        columns = {"input_ids": self.input_ids, "token_type_ids": [np.zeros_like(row) for row in self.input_ids]}
        if split.tagged:
            numbers = {label: number for number, label in enumerate(labels)}
            tags = np.array([numbers.get(tag, IGNORED) for sentence in split.sentences for tag in sentence.known_tags])
            columns["labels"] = [np.full_like(row, IGNORED) for row in self.input_ids]
            for row, words, positions in zip(columns["labels"], self.words, self.positions):
                row[positions] = tags[words]
        return Features(columns, pad_token_id)


def remarks(
    rows: dict[str, Rows], splits: dict[str, Split], tokenizer: PreTrainedTokenizerBase, max_seq_length: int
) -> list[str]:
    """Lines for the user about what is longer than a row, and about the tokens."""
    lines, longer = [], f"are longer than --max_seq_length {max_seq_length}"
    for name, part in rows.items():
        split = splits[name]
        said = {
            f"{name}: {part.parted_sentences:,} of {len(split):,} sentences {longer} and are read in parts; each word "
            "is tagged": part.parted_sentences,
            f"warning: {name}: {part.cut_words:,} of {split.num_words:,} words {longer} and were cut; raise "
            "it": part.cut_words,
            f"{name}: the tokenizer drops {part.unknown_words} words; {tokenizer.unk_token} replaces "
            "them": part.unknown_words,
        }
        lines += [line for line, there in said.items() if there]
    if tokenizer.tokenize("A") == tokenizer.tokenize("a") != [tokenizer.unk_token]:
        lines.append("this tokenizer lower-cases; names are found better with a cased model")
    return lines


def build_rows(
    split: Split, tokenizer: PreTrainedTokenizerBase, max_seq_length: int, context: str = "document"
) -> Rows:
    """Tokenise word by word and cut documents into rows; with ``context="sentence"``, cut sentences instead.

    A sentence that is longer than a row is split into parts of up to half a row, each with the context around it.
    """
    room = max_seq_length - 2
    distinct = list(dict.fromkeys(split.words))
    pieces = dict(zip(distinct, pieces_of_texts(tokenizer, distinct)))
    unknown = sum(not pieces[word] for word in split.words)
    cls, sep = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
    rows = Rows([], [], [], unknown)
    groups = [[sentence] for sentence in split.sentences]
    if context == "document":
        groups = [list(group) for _, group in groupby(split.sentences, lambda sentence: sentence.document)]
    done = 0
    for sentences in groups:
        ids = [pieces[word] or [tokenizer.unk_token_id] for sentence in sentences for word in sentence.words]
        starts = np.cumsum([0, *map(len, ids)])  # the position of the first piece of every word, and the end
        flat = np.array([piece for word in ids for piece in word], dtype=np.int64)
        bounds = np.cumsum([0, *(len(sentence.words) for sentence in sentences)])
        rows.parted_sentences += int((np.diff(starts[bounds]) > room).sum())
        rows.cut_words += int((np.diff(starts) > room).sum())
        parts = list(_parts(bounds, starts, room))
        # A single word that is longer than a row is cut after the pieces that fit.
        spans = [(starts[begin], min(starts[end], starts[begin] + room)) for begin, end in parts]
        for first, numbers in rows_around(spans, len(flat), room).items():
            words = np.concatenate([np.arange(*parts[number]) for number in numbers])
            rows.input_ids.append(np.concatenate([cls, flat[first : first + room], sep]))
            rows.words.append(done + words)
            rows.positions.append(starts[words] - first + 1)
        done += len(ids)
    return rows


def _parts(sentences: np.ndarray, starts: np.ndarray, room: int) -> Iterator[tuple[int, int]]:
    """Yield the first word and the one after the last of every sentence, or of its parts if it is longer than a row."""
    for begin, end in pairwise(sentences):
        most = room if starts[end] - starts[begin] <= room else room // 2
        while begin < end:
            fitting = int(np.searchsorted(starts, starts[begin] + most, side="right")) - 1
            stop = min(end, max(begin + 1, fitting))
            yield int(begin), int(stop)
            begin = stop


# --- and back --------------------------------------------------------------------------------------------


def find_tags(split: Split, rows: Rows, logits: list[np.ndarray], labels: tuple[str, ...]) -> list[list[str]]:
    """The most probable tag of every word, one list per sentence; ``logits`` has one array (L, labels) per row."""
    numbers = np.full(split.num_words, -1)
    for words, positions, scores in zip(rows.words, rows.positions, logits, strict=True):
        numbers[words] = scores[positions].argmax(axis=-1)
    assert (numbers >= 0).all()
    tags = iter(numbers)
    return [[labels[next(tags)] for _ in sentence.words] for sentence in split.sentences]


def tag_probabilities(split: Split, rows: Rows, logits: list[np.ndarray]) -> np.ndarray:
    """The probabilities (words, labels) of all tags of every word (softmax), in the order of the sentences."""
    shares = np.zeros((split.num_words, logits[0].shape[-1]), np.float32)
    for words, positions, scores in zip(rows.words, rows.positions, logits, strict=True):
        shares[words] = softmax(scores[positions].astype(np.float64), axis=-1)
    return shares


def score(split: Split, predicted: list[list[str]]) -> dict[str, float]:
    """``precision``, ``recall``, ``f1``, ``accuracy``, and the first three by type: ``LOC_f1``.

    Of plain tags, ``accuracy``, ``f1_macro``, and precision, recall and F1 of every tag.
    """
    references = [sentence.known_tags for sentence in split.sentences]
    values = word_scores(predicted, references) if split.plain else span_scores(predicted, references)
    by_type = values.pop("types")
    return values | {f"{kind}_{name}": rate for kind, rates in by_type.items() for name, rate in rates.items()}


def scored_rows(split: Split, predicted: list[list[str]]) -> Iterator[dict[str, Any]]:
    """What is right and what is predicted for the sentences of a tagged split, for ``tasks/scored_rows.py``."""
    for sentence, tags in zip(split.sentences, predicted, strict=True):
        sides = {"true": sentence.known_tags, "answer": tags}
        yield {
            side: [[tag, place] for place, tag in enumerate(found)] if split.plain else entities(found)
            for side, found in sides.items()
        }


def write_predictions(path: Path, split: Split, predicted: list[list[str]]) -> None:
    """Write one word per line with its tag, if there is one, and the predicted tag, separated by tabs.

    ``conlleval -d '\\t'`` can read the file.
    """
    with whole_file(path) as draft, open(draft, "w", encoding="utf-8") as file:
        for sentence, tags in zip(split.sentences, predicted, strict=True):
            columns = [sentence.words, sentence.tags, tags] if split.tagged else [sentence.words, tags]
            file.writelines("\t".join(line) + "\n" for line in zip(*columns))
            file.write("\n")


def write_probabilities(
    path: Path, split: Split, predicted: list[list[str]], shares: np.ndarray, labels: Sequence[str]
) -> None:
    """Write a JSON object for each sentence.

    It has its ``place`` in the data, the ``tokens``, the predicted ``tags``, and for each word its ``probabilities`` of
    all tags.

    Args:
        shares: of all words, (words, labels).
    """
    rows = ([float(f"{share:.7g}") for share in row] for row in shares)  # a float32 has no more digits
    with whole_file(path) as draft, open(draft, "w", encoding="utf-8") as file:
        for sentence, tags in zip(split.sentences, predicted, strict=True):
            of_words = [dict(zip(labels, next(rows), strict=True)) for _ in tags]
            record = {"place": sentence.place(0), "tokens": sentence.words, "tags": tags, "probabilities": of_words}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
