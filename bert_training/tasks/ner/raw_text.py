"""Texts to tag: plain sentences, one a line, or texts with spans; their words, and the spans that are found in them.

    Ada slept in London.        ->   Ada | slept | in | London | .

A text is cut into words as the training data is (``Cutting``), which is stored with the model, so that scripts, ``ask``
and the service read the same words. Training data in words decides by its words: those that have spaces between them
become the same words; what is not known of it is cut as data sets of names mostly are: words end at white space;
punctuation at their edges, and every Chinese character, is a word of its own; other punctuation within a word stays
(``U.S.A``, ``don't``). Training texts with spans, and models that store nothing, are cut as BERT's tokenizer does, and
with it transformers' pipeline (``AS_PIPELINES``).
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import normalize

from transformers import PretrainedConfig

from bert_training.files.atomic import whole_file
from bert_training.files.hashing import sha256
from bert_training.inputs.conll import DOCUMENT
from bert_training.inputs.reading import kind_of, numbered_lines
from bert_training.tasks.classification.trained_for import stored_facts
from bert_training.tasks.ner.metrics import entities
from bert_training.tasks.ner.schemes import like_a_span, plain_labels
from bert_training.tasks.ner.tagged_text import Sentence, Split, one_document_each
from tokenization.wordpiece import _is_chinese_char, _is_punctuation

SPAN_TAG = re.compile(r"O|[BIES](-.+)?")  # what seqeval knows
SENTENCE_END = re.compile(".+[。！？｡।]")  # of scripts without spaces
CHINESE = "\u4e00"  # stands for every Chinese character
SELDOM = 100  # a full stop stands alone for its place after a word, so within words it stays even if it seldom is there
MOST_WHOLE = 1000


@dataclass(frozen=True)
class Cutting:
    """How texts are cut into words.

    Attributes:
        unusual: the places of punctuation where it is cut although it usually is not, or the reverse: "@x" is an @ at
            the beginning of a word, "x-x" a hyphen within one.
        whole: words of the training data that are cut by these rules, such as "U.S.", and stay whole.
        everywhere: whether punctuation within words is usually cut, too, as BERT's tokenizer does.
    """

    unusual: Collection[str] = ()
    whole: Collection[str] = ()
    everywhere: bool = False

    def cuts(self, place: str) -> bool:
        """Whether a character at such a place is cut out of the others."""
        return len(place) > 1 and (self.everywhere or len(place) == 2 or CHINESE in place) != (place in self.unusual)


USUAL = Cutting()
AS_PIPELINES = Cutting(everywhere=True)


def cutting_of(train: Split | None, stored: Cutting) -> Cutting:
    """The rules that give the words of the training data; those that are stored with the model without such data."""
    if train is None or train.of_texts:
        return stored if train is None else AS_PIPELINES
    words, found = Counter(train.words), Counter[str]()
    for word, number in words.items():
        if _is_simple(word):
            continue
        places = {_place(word, at) for at in range(len(word))}
        if len(word) == 1 or not places.isdisjoint(("", f"x{CHINESE}x")):  # no row of marks, such as ":)"
            found.update(dict.fromkeys(places, number))
    unusual = []
    for mark in sorted({place.strip("x") for place in found} - {""}):
        for place in (f"{mark}x", f"x{mark}x", f"x{mark}"):
            apart = found[mark] > found[place] * (SELDOM if len(place) == 3 else 1)
            if found[mark] + found[place] and apart != USUAL.cuts(place):
                unusual.append(place)
    rules = Cutting(unusual)
    cut = [word for word, _ in words.most_common() if [word] == word.split() and len([*words_of(word, rules)]) > 1]
    return Cutting(unusual, cut[:MOST_WHOLE])


def stored_cutting(config: PretrainedConfig) -> Cutting:
    """The rules that are stored with a model; for a model from elsewhere those of pipelines."""
    return Cutting(**stored_facts(config).get("words", vars(AS_PIPELINES)))


def is_cut_by_pipelines(word: str) -> bool:
    """Whether BERT's tokenizer, and with it transformers' pipeline, takes a word for several."""
    return len(word) > 1 and not _is_simple(word) and any(_place(word, at) for at in range(len(word)))


def _is_simple(word: str) -> bool:
    """Whether a word has letters and digits of ASCII alone, which are never cut."""
    return word.isascii() and word.isalnum()


def _place(word: str, at: int) -> str:
    """A mark with x for what stands before and after it in the word; "" for a character that is no mark."""
    if _is_chinese_char(word[at]):
        return CHINESE if len(word) == 1 else f"x{CHINESE}x"
    return "x" * (at > 0) + word[at] + "x" * (at < len(word) - 1) if _is_punctuation(word[at]) else ""


def is_raw_text(path: str | Path, known: Collection[str]) -> bool:
    """Whether a file named .txt has plain sentences, one a line, and no columns.

    In columns, most lines are one word, or end in a tag.

    Args:
        known: the tags of the model or of the training data.
    """
    if kind_of(path) != ".txt":
        return False
    tags = {tag for tag in known if not all(map(_is_punctuation, tag))}  # a sentence may end in what is a tag as well
    lines = columns = 0
    for _, line in numbered_lines(path):
        if (fields := line.split()) and not DOCUMENT.match(line) and not line.startswith("#"):
            last = normalize("NFC", fields[-1])
            lines += 1
            columns += (
                last in tags
                or last == "O"
                or like_a_span(last)
                or (len(fields) == 1 and not SENTENCE_END.fullmatch(last))
            )
    return 2 * columns < lines


def read_raw_text(path: str | Path, cutting: Cutting = USUAL) -> Split:
    """The sentences of a file, with the places of their words."""
    sentences = []
    for number, line in numbered_lines(path):
        if spans := list(words_of(line, cutting)):
            words = [line[begin:end] for begin, end in spans]
            sentences.append(Sentence(words, None, 0, f"{path}:{number}", raw=(number, line, spans)))
    split = Split(str(path), sentences, {"documents": 0, "raw_text": True, "sha256": sha256(Path(path))})
    one_document_each(split)
    return split


def words_of(text: str, cutting: Cutting = USUAL) -> Iterator[tuple[int, int]]:
    """Yield the first character of every word of a text, and the one after its last."""
    whole = {*cutting.whole}
    parts = [chunk.span() for chunk in re.finditer(r"\S+", text)][::-1]
    while parts:
        begin, end = parts.pop()
        word = text[begin:end]
        order = (at for part in ((0, len(word) - 1), range(1, len(word) - 1)) for at in part)  # the edges first
        place = (
            None
            if _is_simple(word) or word in whole
            else next((at for at in order if cutting.cuts(_place(word, at))), None)
        )
        if place is None:
            yield begin, end
        else:  # what is left and right of it may be cut further
            cut = begin + place
            parts += [part for part in ((cut + 1, end), (cut, cut + 1), (begin, cut)) if part[0] < part[1]]


def spans_of(sentence: Sentence, tags: list[str], plain: bool) -> dict[str, Any]:
    """The text of a sentence, the number of its line or row, and its spans with their places."""
    assert sentence.raw is not None
    line, text, places = sentence.raw
    spans = [(kind, places[first][0], places[after - 1][1]) for kind, first, after in spans_of_words(tags, plain)]
    named = [{"label": kind, "start": start, "end": end, "text": text[start:end]} for kind, start, end in spans]
    return {"line": line, "text": text, "spans": named}


def spans_of_words(tags: list[str], plain: bool) -> list[tuple[str, int, int]]:
    """The spans of a sentence, as ``entities`` has them; every word, for plain tags and those of other schemes."""
    if not plain and all(map(SPAN_TAG.fullmatch, tags)):
        return entities(tags)
    return [(tag, word, word + 1) for word, tag in enumerate(tags) if plain or tag != "O"]


def write_spans(path: Path, split: Split, predicted: list[list[str]], labels: tuple[str, ...]) -> None:
    """Write one object a line for every text, which run_ner.py can read; with plain tags, every word is a span."""
    plain = plain_labels(labels)
    with whole_file(path) as draft, open(draft, "w", encoding="utf-8") as file:
        for sentence, tags in zip(split.sentences, predicted, strict=True):
            file.write(json.dumps(spans_of(sentence, tags, plain), ensure_ascii=False) + "\n")
