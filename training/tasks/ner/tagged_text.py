"""Named entities: files in columns -> sentences in documents -> rows of tokens; and the way back.

The CoNLL-2003 layout: a word a line with its tag last, a blank line after a sentence, -DOCSTART- before a document:

    -DOCSTART- -X- O O

    EU NNP I-NP I-ORG
    rejects VBZ I-VP O
    German JJ I-NP I-MISC

A sentence becomes one row of the model, with as much of its document around it as fits; only its own words are
labelled, at their first pieces (paper, section 5.3). Sentences with the same surroundings share the row:

    tokens   [CLS] EU rejects German  call  .  Peter Black ##burn [SEP]
    labels    -100  3       0      7     0  0      5     6   -100  -100

`training.tasks.ner.sources` finds the files and the names of the tags.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np

from tokenization.packed_files import numbered_lines
from training.engine.batches import IGNORED, Features
from training.tasks.ner.metrics import span_scores
from training.tasks.overlapping_rows import rows_around

DOCUMENT = re.compile(r"[ \t]*-DOCSTART-(?=[ \t]|$)")
TAG = re.compile(r"O|[BIESLU]-\S+")


@dataclass
class Sentence:
    """``tags`` is None where there are none to learn from; ``document`` is its number in the file."""

    words: list[str]
    tags: list[str] | None
    document: int
    where: str
    line: int | None = None

    def place(self, word: int) -> str:
        """File and line of a word, or the row of a data set."""
        return self.where if self.line is None else f"{self.where}:{self.line + word}"


@dataclass
class Split:
    """Sentences of one source, with what run.json should know of it."""

    source: str
    sentences: list[Sentence]
    facts: dict = field(default_factory=dict)

    @property
    def num_words(self) -> int:
        return sum(len(sentence.words) for sentence in self.sentences)

    @property
    def tagged(self) -> bool:
        return self.sentences[0].tags is not None


# --- reading ---------------------------------------------------------------------------------------------


def read_conll(path: str | Path, mixed_tags: bool = False) -> Split:
    """A file in columns, separated by tabs if its first line has one, else by spaces; the tags become BIO.

    The first column is the word and the last its tag; a file of one column is untagged. Without -DOCSTART- lines
    every sentence is a document of its own. Also .gz and .xz.

    Raises:
        ValueError: by file and line: a line with another number of columns, an empty field, no tag or none that
            follows from its neighbours (see ``to_bio``), no word at all, or not UTF-8.
    """
    path = Path(path)
    sentences: list[Sentence] = []
    separator, columns, first, documents, within = "", 0, 0, 0, False
    for number, line in numbered_lines(path):
        if DOCUMENT.match(line) or not line.strip(" \t"):
            documents += bool(DOCUMENT.match(line))
            within = False
            continue
        separator = separator or ("\t" if "\t" in line else " ")
        fields = line.split("\t") if separator == "\t" else [part for part in line.split(" ") if part]
        columns, first = columns or len(fields), first or number
        if len(fields) != columns:
            raise ValueError(
                f"{path}:{number}: expected {columns} columns as on line {first}, got {len(fields)}: {line[:60]!r}; "
                "correct the line (a blank line ends a sentence)"
            )
        word, tag = fields[0], fields[-1]
        if not word.strip() or not tag.strip():
            raise ValueError(f"{path}:{number}: expected a word and its tag, got an empty field in {line[:60]!r}")
        if not within:
            sentences.append(Sentence([], [] if columns > 1 else None, documents, str(path), number))
            within = True
        sentences[-1].words.append(word)
        if columns > 1:
            sentences[-1].tags.append(tag)
    if not sentences:
        raise ValueError(f"{path}:1: expected lines of a word and its tag, got an empty file")
    split = Split(str(path), sentences, {"documents": documents})
    if not documents:
        one_document_each(split)
    if split.tagged:
        to_bio(split, mixed_tags)
    return split


def one_document_each(split: Split) -> None:
    for number, sentence in enumerate(split.sentences):
        sentence.document = number


# --- tags ------------------------------------------------------------------------------------------------


def to_bio(split: Split, mixed_tags: bool = False) -> None:
    """Find the scheme of a split's tags and rewrite them as BIO; ``facts`` says what was found.

    IOB1 (of the CoNLL-2003 files): B- only begins an entity right after another of its type. BIO: every entity
    begins with B-. BIOES, BILOU: the last word has E- or L-, a single one S- or U-.

    Raises:
        ValueError: by file and line: a tag of none of these; or one that breaks the scheme of the others, unless
            ``mixed_tags``: then I- begins an entity where it cannot continue one, as conlleval has it.
    """
    prefixes = set()
    for sentence in split.sentences:
        for word, tag in enumerate(sentence.tags):
            if not TAG.fullmatch(tag):
                raise ValueError(
                    f"{sentence.place(word)}: expected a tag O, B-TYPE or I-TYPE in the last column, got {tag!r}"
                )
            prefixes.add(tag[0])
    schemes = ("BIOES",) if prefixes & set("ESLU") else ("BIO", "IOB1")
    breaks = {scheme: list(_breaks(split, scheme)) for scheme in schemes}
    scheme = min(breaks, key=lambda name: len(breaks[name]))
    if breaks[scheme] and (scheme == "BIOES" or not mixed_tags):
        place, previous, tag = breaks[scheme][0]
        remedy = "" if scheme == "BIOES" else ", or give --mixed_tags to let I- begin an entity, as conlleval does"
        raise ValueError(
            f"{place}: {tag} cannot follow {previous} in the scheme {scheme}, which the file keeps to but for "
            f"{len(breaks[scheme])} such places; correct the tag{remedy}"
        )
    split.facts["tag_scheme"] = scheme if prefixes - {"O"} else "no entities"
    if breaks[scheme]:
        split.facts["entities_that_break_the_scheme"] = len(breaks[scheme])
    for sentence in split.sentences:
        before = ["O", *sentence.tags[:-1]]
        sentence.tags = [_bio(previous, tag) for previous, tag in zip(before, sentence.tags)]


def _breaks(split: Split, scheme: str) -> Iterator[tuple[str, str, str]]:
    """(place, tag before, tag) wherever the tags of a sentence break a scheme."""
    for sentence in split.sentences:
        previous = "O"
        for word, tag in enumerate([*sentence.tags, "O"]):
            same = previous != "O" and tag != "O" and previous[2:] == tag[2:]
            if scheme == "BIOES":
                goes_on = tag[0] in "IEL"
                wrong = (previous[0] in "BI") != goes_on or (goes_on and not same)
            else:
                wrong = tag[0] == ("I" if scheme == "BIO" else "B") and not same
            if wrong:
                at_end = word == len(sentence.tags)
                yield sentence.place(word - at_end), previous, "the end of the sentence" if at_end else tag
            previous = tag


def _bio(previous: str, tag: str) -> str:
    if tag == "O":
        return tag
    goes_on = tag[0] in "IEL" and previous[0] in "BI" and previous[2:] == tag[2:]
    return ("I" if goes_on else "B") + tag[1:]


# --- to the model ----------------------------------------------------------------------------------------


@dataclass
class Rows:
    """[CLS] part of a document [SEP], R of them.

    Attributes:
        input_ids: R arrays.
        words: for every row the numbers, within the split, of the words that it predicts; each word once.
        positions: where their first pieces stand in the row.
        unknown_words: how many words the tokenizer drops (control characters, say) and are [UNK] instead.
    """

    input_ids: list[np.ndarray]
    words: list[np.ndarray]
    positions: list[np.ndarray]
    unknown_words: int

    def features(self, split: Split, labels: tuple[str, ...], pad_token_id: int) -> Features:
        """What the model is fed; if the split has tags, with ``labels``, -100 for tags that are not in ``labels``."""
        columns = {"input_ids": self.input_ids, "token_type_ids": [np.zeros_like(row) for row in self.input_ids]}
        if split.tagged:
            number = {label: n for n, label in enumerate(labels)}
            tags = np.array([number.get(tag, IGNORED) for sentence in split.sentences for tag in sentence.tags])
            columns["labels"] = [np.full_like(row, IGNORED) for row in self.input_ids]
            for row, words, positions in zip(columns["labels"], self.words, self.positions):
                row[positions] = tags[words]
        return Features(columns, pad_token_id)


def tokenized(data, tokenizer, args) -> tuple[dict[str, Rows], dict[str, Features]]:
    """split -> its rows, and what the model is fed of them."""
    rows = {name: build_rows(part, tokenizer, args.max_seq_length, args.context) for name, part in data.splits.items()}
    features = {
        name: rows[name].features(part, data.labels, tokenizer.pad_token_id) for name, part in data.splits.items()
    }
    return rows, features


def remarks(rows: dict[str, Rows], tokenizer) -> str:
    """What the user should know of the tokens, a line each with a line break before it."""
    text = ""
    for split, part in rows.items():
        if part.unknown_words:
            text += f"\n{split}: the tokenizer drops {part.unknown_words} words, which are {tokenizer.unk_token} to it"
    if tokenizer.tokenize("A") == tokenizer.tokenize("a"):
        text += "\nthis tokenizer lower-cases; names are found better with a cased model"
    return text


def build_rows(split: Split, tokenizer, max_seq_length: int, context: str = "document") -> Rows:
    """Tokenise word by word, and cut documents (or with ``context="sentence"`` sentences) into rows.

    A sentence longer than a row is read in parts of up to half a row, each with its surroundings.
    """
    room = max_seq_length - 2
    if room < 2:
        raise ValueError(f"--max_seq_length {max_seq_length} leaves no room for words; give 4 or more")
    pieces = _pieces(split, tokenizer)
    unknown = sum(not pieces[word] for sentence in split.sentences for word in sentence.words)
    ends = ([tokenizer.cls_token_id], [tokenizer.sep_token_id])
    rows = Rows([], [], [], unknown)
    groups = groupby(split.sentences, lambda s: s.document) if context == "document" else enumerate(split.sentences)
    done = 0
    for _, group in groups:
        sentences = list(group) if context == "document" else [group]
        ids = [pieces[word] or [tokenizer.unk_token_id] for sentence in sentences for word in sentence.words]
        starts = np.cumsum([0, *map(len, ids)])  # of every word, and the end
        flat = np.array([piece for word in ids for piece in word], dtype=np.int64)
        parts = list(_parts(np.cumsum([0, *(len(s.words) for s in sentences)]), starts, room))
        # Of a single word of more than a row, the first pieces are looked at.
        spans = [(starts[a], min(starts[b], starts[a] + room)) for a, b in parts]
        for first, numbers in rows_around(spans, len(flat), room).items():
            words = np.concatenate([np.arange(*parts[number]) for number in numbers])
            rows.input_ids.append(np.concatenate([ends[0], flat[first : first + room], ends[1]]))
            rows.words.append(done + words)
            rows.positions.append(starts[words] - first + 1)
        done += len(ids)
    return rows


def _pieces(split: Split, tokenizer, chunk: int = 10_000) -> dict[str, list[int]]:
    """The pieces of every different word. A "[SEP]" in the text stays five characters."""
    words = list(dict.fromkeys(word for sentence in split.sentences for word in sentence.words))
    found = {}
    for begin in range(0, len(words), chunk):
        part = words[begin : begin + chunk]
        coded = tokenizer(part, add_special_tokens=False, split_special_tokens=True, verbose=False)
        found.update(zip(part, coded["input_ids"]))
    return found


def _parts(sentences: np.ndarray, starts: np.ndarray, room: int) -> Iterator[tuple[int, int]]:
    """(first, beyond last) word of every sentence, or of its parts where it is longer than a row."""
    for begin, end in pairwise(sentences):
        most = room if starts[end] - starts[begin] <= room else room // 2
        while begin < end:
            fitting = int(np.searchsorted(starts, starts[begin] + most, side="right")) - 1
            stop = min(end, max(begin + 1, fitting))
            yield int(begin), int(stop)
            begin = stop


# --- and back --------------------------------------------------------------------------------------------


def find_tags(split: Split, rows: Rows, logits: list[np.ndarray], labels: tuple[str, ...]) -> list[list[str]]:
    """The most probable tag of every word, sentence by sentence; ``logits`` holds (L, labels) for each row."""
    numbers = np.full(split.num_words, -1)
    for words, positions, scores in zip(rows.words, rows.positions, logits, strict=True):
        numbers[words] = scores[positions].argmax(axis=-1)
    assert (numbers >= 0).all()
    tags = iter(numbers)
    return [[labels[next(tags)] for _ in sentence.words] for sentence in split.sentences]


def score(split: Split, predicted: list[list[str]]) -> dict[str, float]:
    """``precision``, ``recall``, ``f1``, ``accuracy``, and the first three by type: ``LOC_f1``."""
    values = span_scores(predicted, [sentence.tags for sentence in split.sentences])
    by_type = values.pop("types")
    return values | {f"{kind}_{name}": rate for kind, rates in by_type.items() for name, rate in rates.items()}


def write_predictions(path: Path, split: Split, predicted: list[list[str]]) -> None:
    """A word a line with its tag, if any, and the predicted one behind tabs: ``conlleval -d '\\t'`` reads it."""
    with open(path, "w", encoding="utf-8") as file:
        for sentence, tags in zip(split.sentences, predicted, strict=True):
            columns = [sentence.words, sentence.tags, tags] if split.tagged else [sentence.words, tags]
            file.writelines("\t".join(line) + "\n" for line in zip(*columns))
            file.write("\n")
