"""Plain sentences to tag, one a line: which files these are, their words, and the spans that are found in them.

    Ada slept in London.        ->   Ada | slept | in | London | .

Words end at white space; punctuation at their edges, and every Chinese character, is a word of its own, as data sets of
names have it. Punctuation within a word stays (``U.S.A``, ``don't``).
"""

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from unicodedata import normalize

from bert_training.files.atomic import whole_file
from bert_training.files.compressed_files import kind_of, numbered_lines
from bert_training.tasks.ner.metrics import TAG as SPAN_TAG
from bert_training.tasks.ner.metrics import entities
from bert_training.tasks.ner.other_layouts import looks_like_sentences, other_than_text
from bert_training.tasks.ner.schemes import like_a_span, plain_labels
from bert_training.tasks.ner.tagged_text import DOCUMENT, Sentence, Split, one_document_each
from tokenization.wordpiece import _is_chinese_char, _is_punctuation

KANA = re.compile("[\u3041-\u309f\u30a1-\u30fa]")


def is_raw_text(path: str | Path, known: Collection[str]) -> bool:
    """Whether a file named .txt has plain sentences: most lines have several words, and none of them ends in a tag.

    Args:
        known: the tags of the model or of the training data.
    """
    if kind_of(path) != ".txt":
        return False
    lines = [line for _, line in numbered_lines(path) if line.strip() and not DOCUMENT.match(line)]
    lines = [line for line in lines if not line.startswith("#")] or lines  # comments of a file in columns
    fields = [line.split() for line in lines]
    if not lines or 2 * sum("\t" in line for line in lines) > len(lines) or other_than_text(lines):
        return False
    pieces = [line[begin:end] for line in lines for begin, end in words_of(line)]
    japanese = [word for words in fields for word in words if KANA.search(word)]  # its characters are in no piece
    if looks_like_sentences(pieces) or (2 * len(japanese) > len(lines) and looks_like_sentences(japanese)):
        return False  # of a script without spaces, whose words are not found here
    several = [words for words in fields if len(words) > 1]
    if 2 * len(several) <= len(lines):
        return looks_like_sentences([line.strip() for line in lines])
    if len(lines) > 1 and all(len(words) == 2 for words in fields):
        return False  # words with their tags, whatever these are
    last = [normalize("NFC", words[-1]) for words in several]
    tagged = [word for word in last if word == "O" or like_a_span(word)]
    if len(lines) > 1 and len({*map(len, fields)}) == 1:  # columns, if the last one has tags; sentences end in "."
        tags = {tag for tag in known if not all(map(_is_punctuation, tag))}
        tagged = [word for word in last if word in tags or word == "O" or like_a_span(word)]
    return 2 * len(tagged) < len(several)


def read_raw_text(path: str | Path) -> Split:
    """The sentences of a file, with the places of their words."""
    sentences = []
    for number, line in numbered_lines(path):
        if spans := list(words_of(line)):
            words = [line[begin:end] for begin, end in spans]
            sentences.append(Sentence(words, None, 0, f"{path}:{number}", raw=(number, line, spans)))
    split = Split(str(path), sentences, {"documents": 0, "raw_text": True})
    one_document_each(split)
    return split


def words_of(text: str) -> Iterator[tuple[int, int]]:
    """Yield the first character of every word of a text, and the one after its last."""
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        end = place
        while end < len(text) and not text[end].isspace():
            end += 1
        yield from _parts(text, place, end)
        place = end


def _parts(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield what lies between two spaces: punctuation at the edges, Chinese characters, and the rest."""
    first, last = begin, end
    while first < end and _is_punctuation(text[first]):
        first += 1
    while last > first and _is_punctuation(text[last - 1]):
        last -= 1
    yield from ((place, place + 1) for place in range(begin, first))
    yield from around_chinese_characters(text, first, last)
    yield from ((place, place + 1) for place in range(last, end))


def around_chinese_characters(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the places of each Chinese character from ``begin`` to before ``end``, and of what is between them."""
    start = begin
    for place in range(begin, end):
        if _is_chinese_char(text[place]):
            if start < place:
                yield start, place
            yield place, place + 1
            start = place + 1
    if start < end:
        yield start, end


def spans_of(sentence: Sentence, tags: list[str], plain: bool) -> dict[str, Any]:
    """The text of a sentence, its line in the file, and its spans: types with their first and last characters."""
    assert sentence.raw is not None
    line, text, places = sentence.raw
    found = [(tag, word, word + 1) for word, tag in enumerate(tags) if plain or tag != "O"]
    if not plain and all(SPAN_TAG.fullmatch(tag) for tag in tags):  # else the tags of a model from elsewhere
        found = entities(tags)
    spans = [(kind, places[first][0], places[after - 1][1]) for kind, first, after in found]
    named = [{"type": kind, "start": start, "end": end, "text": text[start:end]} for kind, start, end in spans]
    return {"line": line, "text": text, "spans": named}


def write_spans(path: Path, split: Split, predicted: list[list[str]], labels: tuple[str, ...]) -> None:
    """Write one object a line for every sentence of raw text; with plain tags, every word is a span."""
    plain = plain_labels(labels)
    with whole_file(path) as draft, open(draft, "w", encoding="utf-8") as file:
        for sentence, tags in zip(split.sentences, predicted, strict=True):
            file.write(json.dumps(spans_of(sentence, tags, plain), ensure_ascii=False) + "\n")
