"""Named entities: read sentences from files in columns, make rows of tokens, and turn logits back into tags.

In the CoNLL-2003 layout each line has a word, with its tag in the last column. A blank line follows each sentence, and
-DOCSTART- precedes each document:

    -DOCSTART- -X- O O

    EU NNP I-NP I-ORG
    rejects VBZ I-VP O
    German JJ I-NP I-MISC

A sentence becomes one row of the model, with as much of its document around it as fits. Only the words of the sentence
itself have labels, at their first pieces (paper, section 5.3). Sentences with the same context share a row:

    tokens   [CLS] EU rejects German  call  .  Peter Black ##burn [SEP]
    labels    -100  3       0      7     0  0      5     6   -100  -100

`bert_training.tasks.ner.sources` finds the files and the names of their tags. The reader is written by hand, because
that of datasets (`conll`) drops the borders of documents, and reads a line that is cut short as a word without a tag.
"""

import json
import re
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
from bert_training.files.compressed_files import numbered_lines
from bert_training.files.tables import nfc
from bert_training.inputs.flags.fine_tuning import NerArguments
from bert_training.tasks.ner.metrics import entities, span_scores, word_scores
from bert_training.tasks.ner.other_layouts import (
    BY_MOST_LINES,
    COMMENT,
    SENTENCES,
    TAG,
    TAG_OF_CELL,
    first_column_problem,
    line_problem,
    words_problem,
)
from bert_training.tasks.ner.schemes import AUTO, PLAIN, are_plain, check_classes, in_usual_form, wrong_tag
from bert_training.tasks.overlapping_rows import rows_around
from bert_training.tasks.task_data import in_chunks
from tokenization.errors import UserError
from tokenization.special_tokens import text_tokenizer

DOCUMENT = re.compile(r"[ \t]*-DOCSTART-(?=[ \t]|$)")
MIDDLE, END = "IM", "EL"  # the prefixes of later words of an entity in BIOES, BILOU and BMES


@dataclass
class Sentence:
    """One sentence.

    Attributes:
        tags: one per word; None if the source has none.
        document: the number of its document in the file.
        where: the file, or the row of a data set.
        line: the line of its first word in the file; None for a data set.
        raw: of raw text, the number of its line, the line, and the place of every word in it (``raw_text.py``).
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
    def plain(self) -> bool:
        """Whether its tags are classes of words and not those of spans."""
        return self.facts.get("tag_scheme") == PLAIN


# --- reading ---------------------------------------------------------------------------------------------


def read_conll(path: str | Path, mixed_tags: bool = False, scheme: str = AUTO) -> Split:
    """Read a file in columns (plain, .gz or .xz), and turn its tags into BIO if they are those of spans.

    Columns are separated by tabs if the first line has one, otherwise by spaces. The first column is the word and the
    last its tag; a file with one column has no tags. Without -DOCSTART- lines, every sentence is its own document.
    Comments are lines that begin with # before a sentence and are no word with a tag; they are counted.

    Raises:
        ValueError: with file and line: a line has another number of columns, an empty field or a wrong tag (see
            ``to_bio``); the file seems to have another layout (see ``other_layouts``) or no word, or it is not UTF-8.
    """
    path = Path(path)
    sentences: list[Sentence] = []
    separator, columns, first, documents, within, comments = "", 0, 0, 0, False, 0
    odd, words = list[tuple[int, str]](), 0  # lines that words with plain tags may look like, too
    for number, line in numbered_lines(path):
        if DOCUMENT.match(line) or not line.strip(" \t"):
            documents += bool(DOCUMENT.match(line))
            within = False
            continue
        if not within and _is_comment(line, separator, columns):
            comments += 1
            continue
        separator = separator or ("\t" if "\t" in line else " ")
        fields = line.split("\t") if separator == "\t" else [part for part in line.split(" ") if part]
        columns, first = columns or len(fields), first or number
        tagged = bool(sentences) and sentences[0].tags is not None
        problem = _line_problem(line, fields, separator, columns, first, tagged)
        remedy = "" if problem else _layout_problem(line, fields, columns, tagged)
        if remedy in BY_MOST_LINES or (remedy == SENTENCES and scheme != AUTO):
            odd.append((number, wrong_tag(fields[-1], "in the last column", remedy)))
        elif remedy:
            problem = wrong_tag(fields[-1], "in the last column", remedy)
        if problem:
            number, problem = odd[0] if 2 * len(odd) > words else (number, problem)
            raise UserError(f"{path}:{number}: {problem}")
        words += 1
        if not within:
            sentences.append(Sentence([], [] if columns > 1 else None, documents, str(path), number))
            within = True
        sentences[-1].words.append(fields[0])
        if columns > 1:
            sentences[-1].known_tags.append(fields[-1])
    if not sentences:
        raise UserError(f"{path}:1: expected lines of a word and its tag, got an empty file")
    tags = [tag for sentence in sentences for tag in sentence.tags or ()]
    if odd and (2 * len(odd) > words or not (are_plain(tags, scheme) or in_usual_form(tags, scheme))):
        raise UserError(f"{path}:{odd[0][0]}: {odd[0][1]}")
    _check_words(path, sentences, columns)
    split = Split(str(path), sentences, {"documents": documents} | ({"comment_lines": comments} if comments else {}))
    if not documents:
        one_document_each(split)
    if split.tagged:
        to_bio(split, mixed_tags, scheme)
    return split


def _is_comment(line: str, separator: str, columns: int) -> bool:
    """Whether a line before a sentence is a comment, such as "# id 7". A word may begin with #, too: "#one B-TAG"."""
    fields = line.split("\t") if separator == "\t" else line.split()
    if not line.startswith("#") or TAG.fullmatch(fields[-1]):
        return False
    return len(fields) != columns if columns else len(fields) > 2 and fields[0] in ("#", "##")


def _line_problem(line: str, fields: list[str], separator: str, columns: int, first: int, tagged: bool) -> str:
    """What is wrong with a line of a file in columns, and what to do; "" if nothing is."""
    word, tag = fields[0], fields[-1]
    if separator == " " and "\t" in line:
        return f"expected columns separated by spaces as on line {first}, got a tab in {line[:60]!r}; use one separator"
    if "\r" in line:
        return f"expected one line end, \\n or \\r\\n, got \\r within {line[:60]!r}; break the line there, or delete it"
    if len(fields) != columns:
        remedy = (
            line_problem(line, max(columns, len(fields)), tagged) or "correct the line (a blank line ends a sentence)"
        )
        return f"expected {columns} columns as on line {first}, got {len(fields)}: {line[:60]!r}; {remedy}"
    if separator == "\t" and word in ('","', '""""'):  # no word is written so
        return f"expected a word, got {word} with a spreadsheet's quotation marks; save the file without them"
    if not word.strip() or not tag.strip():
        return f"expected a word and its tag, got an empty field in {line[:60]!r}"
    return ""  # whether the tag is right, all tags together decide


def _layout_problem(line: str, fields: list[str], columns: int, tagged: bool) -> str:
    """What to do about a line whose last column is no tag of a span, if it looks like a line of another layout."""
    if columns == 1 or fields[0].startswith("#") or TAG.fullmatch(fields[-1]):
        return ""
    return line_problem(line, columns, tagged)


def _check_words(path: Path, sentences: list[Sentence], columns: int) -> None:
    """Refuse a file whose first column does not seem to be words."""
    places = [(sentence, number) for sentence in sentences for number in range(len(sentence.words))]
    words = [word for sentence in sentences for word in sentence.words]
    first = sentences[0].words if sentences[0].line == 1 else []
    found = words_problem(words, first) if columns == 1 else (0, first_column_problem(words, columns))
    if found and found[1]:
        sentence, number = places[found[0]]
        raise UserError(f"{sentence.place(number)}: expected a word, got {words[found[0]][:60]!r}; {found[1]}")


def one_document_each(split: Split) -> None:
    """Make every sentence a document of its own, because the source marks no documents."""
    for number, sentence in enumerate(split.sentences):
        sentence.document = number


# --- tags ------------------------------------------------------------------------------------------------


def to_bio(split: Split, mixed_tags: bool = False, scheme: str = AUTO) -> None:
    """Find the scheme of a split's tags, record it in ``facts`` and rewrite the tags as BIO, unless they are plain.

    - Plain tags have no prefix: each is the class of one word (``schemes.py``).
    - IO: there is only I-, or only types with ``--tag_scheme io``, so that two entities of one type in a row are one.
    - IOB1 (in the CoNLL-2003 files): B- is used only for an entity directly after another one of the same type.
    - BIO: every entity begins with B-.
    - BIOES, BILOU and BMES: the last word has E- or L-, a single word S- or U-; those between have I- or M-.

    Raises:
        ValueError: with file and line: a tag belongs to none of these schemes, or it violates the scheme of the other
            tags. With ``mixed_tags``, an I- that cannot continue an entity begins one, as in conlleval.
    """
    for sentence in split.sentences:
        sentence.tags = [*map(nfc, sentence.known_tags)]
    tags = [tag for sentence in split.sentences for tag in sentence.known_tags]
    if are_plain(tags, scheme):
        for sentence in split.sentences:
            if empty := [word for word, tag in enumerate(sentence.known_tags) if not tag.strip()]:
                place, word = sentence.place(empty[0]), sentence.words[empty[0]]
                raise UserError(f"{place}: expected a tag for {word[:40]!r}, got an empty one; fill it in")
        check_classes(tags, split.source)
        split.facts["tag_scheme"] = PLAIN
        return
    if usual := in_usual_form(tags, scheme):
        for sentence in split.sentences:
            sentence.tags = [usual.get(tag, tag) for tag in sentence.known_tags]
    prefixes = _prefixes(split)
    with_ends = "BMES" if "M" in prefixes else "BIOES"
    schemes = (with_ends,) if prefixes & set("ESLUM") else ("BIO", "IOB1")
    breaks = {scheme: list(_breaks(split, scheme)) for scheme in schemes}
    scheme = min(breaks, key=lambda name: len(breaks[name]))
    if breaks[scheme] and (scheme == with_ends or not mixed_tags):
        place, previous, tag = breaks[scheme][0]
        remedy = "" if scheme == with_ends else ", or give --mixed_tags to let I- begin an entity, as conlleval does"
        raise UserError(
            f"{place}: {tag} cannot follow {previous} in the scheme {scheme}, which the file violates in "
            f"{len(breaks[scheme])} places; correct the tag{remedy}"
        )
    # I- alone is IO as well as IOB1, and is read in the same way; the record of older runs says IOB1.
    found = "IO" if usual and all(tag[0] == "I" for tag in usual.values()) and scheme == "IOB1" else scheme
    split.facts["tag_scheme"] = found if prefixes - {"O"} else "no entities"
    if breaks[scheme]:
        split.facts["entities_that_break_the_scheme"] = len(breaks[scheme])
    for sentence in split.sentences:
        before = ["O", *sentence.known_tags[:-1]]
        sentence.tags = [_bio(previous, tag) for previous, tag in zip(before, sentence.known_tags)]


def _prefixes(split: Split) -> set[str]:
    """The first letters of all tags. Raises ValueError for a tag that is not one of spans, with its place."""
    prefixes = {tag[0] for sentence in split.sentences for tag in sentence.known_tags if TAG_OF_CELL.fullmatch(tag)}
    for sentence in split.sentences:
        for word, tag in enumerate(sentence.known_tags):
            if not TAG_OF_CELL.fullmatch(tag):
                where = "in the last column" if sentence.line is not None else f"for {sentence.words[word][:40]!r}"
                remedy = COMMENT if sentence.words[word].startswith("#") else ""
                told = wrong_tag(tag, where, remedy, spans=bool(prefixes - {"O"}))
                raise UserError(f"{sentence.place(word)}: {told}")
    return prefixes


def _breaks(split: Split, scheme: str) -> Iterator[tuple[str, str, str]]:
    """Yield (place, tag before, tag) wherever the tags of a sentence violate a scheme."""
    for sentence in split.sentences:
        previous = "O"
        for word, tag in enumerate([*sentence.known_tags, "O"]):
            same = previous != "O" and tag != "O" and previous[2:] == tag[2:]
            if scheme in ("BIOES", "BMES"):
                continues = tag[0] in MIDDLE + END
                wrong = (previous[0] in "B" + MIDDLE) != continues or (continues and not same)
            else:
                wrong = tag[0] == ("I" if scheme == "BIO" else "B") and not same
            if wrong:
                at_end = word == len(sentence.known_tags)
                yield sentence.place(word - at_end), previous, "the end of the sentence" if at_end else tag
            previous = tag


def _bio(previous: str, tag: str) -> str:
    if tag == "O":
        return tag
    continues = tag[0] in MIDDLE + END and previous[0] in "B" + MIDDLE and previous[2:] == tag[2:]
    return ("I" if continues else "B") + tag[1:]


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


def tokenized(
    splits: dict[str, Split], labels: tuple[str, ...], tokenizer: PreTrainedTokenizerBase, args: NerArguments
) -> tuple[dict[str, Rows], dict[str, Features]]:
    """The rows of every split, and the model's inputs made from them."""
    rows = {name: build_rows(part, tokenizer, args.max_seq_length, args.context) for name, part in splits.items()}
    features = {name: rows[name].features(part, labels, tokenizer.pad_token_id) for name, part in splits.items()}
    return rows, features


def cut_remarks(rows: dict[str, Rows], splits: dict[str, Split], max_seq_length: int) -> list[str]:
    """Lines for the user about what is longer than a row."""
    lines = []
    for split, part in rows.items():
        if part.parted_sentences:
            sentences = len(splits[split])
            share = 100 * part.parted_sentences / sentences
            lines.append(
                f"{split}: {part.parted_sentences:,} of {sentences:,} sentences ({share:.1f} %) are longer than "
                f"--max_seq_length {max_seq_length} and are read in parts; each word is tagged"
            )
        if part.cut_words:
            lines.append(
                f"warning: {split}: {part.cut_words:,} of {splits[split].num_words:,} words are longer than "
                f"--max_seq_length {max_seq_length} and were cut; raise it"
            )
    return lines


def remarks(rows: dict[str, Rows], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Lines about the tokens for the user."""
    lines = [
        f"{split}: the tokenizer drops {part.unknown_words} words; {tokenizer.unk_token} replaces them"
        for split, part in rows.items()
        if part.unknown_words
    ]
    if tokenizer.tokenize("A") == tokenizer.tokenize("a") != [tokenizer.unk_token]:
        lines.append("this tokenizer lower-cases; names are found better with a cased model")
    return lines


def build_rows(
    split: Split, tokenizer: PreTrainedTokenizerBase, max_seq_length: int, context: str = "document"
) -> Rows:
    """Tokenise word by word and cut documents into rows; with ``context="sentence"``, cut sentences instead.

    A sentence that is longer than a row is split into parts of up to half a row, each with the context around it.

    Raises:
        ValueError: ``max_seq_length`` is below 4.
    """
    room = max_seq_length - 2
    if room < 2:
        raise UserError(f"--max_seq_length {max_seq_length} leaves no room for words; give 4 or more")
    pieces = _pieces(split, tokenizer)
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


def _pieces(split: Split, tokenizer: PreTrainedTokenizerBase, chunk: int = 10_000) -> dict[str, list[int]]:
    """The pieces of every distinct word. A "[SEP]" in the text is five ordinary characters."""
    tokenizer = text_tokenizer(tokenizer)
    words = list(dict.fromkeys(split.words))
    pieces: dict[str, list[int]] = {}
    for places in in_chunks(len(words), chunk):
        part = words[places]
        coded = tokenizer(part, add_special_tokens=False, split_special_tokens=True, verbose=False)
        pieces.update(zip(part, coded["input_ids"]))
    return pieces


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

    It has the ``tokens``, the predicted ``tags``, and for each word its ``probabilities`` of all tags.

    Args:
        shares: of all words, (words, labels).
    """
    rows = ([float(f"{share:.7g}") for share in row] for row in shares)  # a float32 has no more digits
    with whole_file(path) as draft, open(draft, "w", encoding="utf-8") as file:
        for sentence, tags in zip(split.sentences, predicted, strict=True):
            of_words = [dict(zip(labels, next(rows), strict=True)) for _ in tags]
            record = {"tokens": sentence.words, "tags": tags, "probabilities": of_words}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
