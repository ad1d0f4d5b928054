"""Two forms of Wikipedia's text, in which a blank line or a row is not the end of a document.

WikiExtractor writes XML-like lines around each article and repeats its title:

    <doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Anarchism">
    Anarchism

    Anarchism is a political philosophy.
    </doc>

Others write such lines without a title, with single quotes or as a bare <doc>.

The data sets called wikitext have a line or a row for each paragraph, and headings on lines of their own:

    <blank>
     = Valkyria Chronicles III =
    <blank>
     Senjō no Valkyria 3 is a role @-@ playing video game .
    <blank>
     = = Gameplay = =

Often their blank rows are filtered out, and then there are none.

A text in one of these forms is read as its articles. What follows each other in a file is a document, also if no line
closes it. The lines with tags, the repeated titles and the headings are left
out, because BERT was trained on "only the text passages" of Wikipedia (paper, section 3.1). All other text is left as
it is, even if such a line occurs in it.
"""

import html
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tokenization.errors import UserError

WIKIEXTRACTOR = "WikiExtractor's output: a document for each <doc>, without the lines of tags and the repeated titles"
WIKITEXT = "wikitext: a document for each heading of level 1, without the headings"
# As much is read ahead to recognise a form. The articles of wikitext have some fifty lines.
_LINES_AHEAD = 2000
_CHARACTERS_AHEAD = 1 << 20

# Bounded, because looking for a title in it takes more than linear time.
_OPENED = re.compile(r"<doc(?:\s+\w+\s*=(?!.*</doc>).{0,2000})?\s*>")
_CLOSED = "</doc>"
_TITLE = re.compile(r"""\stitle=(["'])(?P<title>.*?)\1(?:\s\w+=(?:"[^"]*"|'[^']*'))*+\s*>$""")
_HEADING = re.compile(r"((?:= )+)(?![= ]).*[^= ]((?: =)+)")

Lines = Iterator[tuple[int, str]]


class Reading(NamedTuple):
    """How a text of a form is read, from its beginning or from the beginning of a document inside of it.

    Attributes:
        form: ``WIKIEXTRACTOR``, ``WIKITEXT`` or None for all other text.
        read: from (number, line or row) to those that are text.
        begins: whether a document begins at a stripped line; None: one line alone does not say it.
        behind: the document begins behind that line, and otherwise with it.
    """

    form: str | None
    read: Callable[[Lines], Lines]
    begins: Callable[[str], bool] | None = None
    behind: bool = False


def reading_of_lines(path: object, lines: Iterable[tuple[int, str]], rows: bool = False) -> tuple[Reading, Lines]:
    """How a text is read, and all of its lines again.

    Args:
        path: the name of the file or data set, for messages.
        lines: (number, line), or (number, text of a row).
        rows: whether ``lines`` are the rows of a table or a data set.

    Raises:
        UserError: the lines of a text file are JSON.
    """
    lines = iter(lines)
    ahead: list[tuple[int, str]] = []
    characters = 0
    for line in lines:
        ahead.append(line)
        characters += len(line[1])
        if len(ahead) == _LINES_AHEAD or characters > _CHARACTERS_AHEAD:
            break
    everything = itertools.chain(ahead, lines)
    texts = [text.strip() for _, text in ahead]
    first = [text for text in texts if text][:2]
    if not rows and first and _begins_with_doc(first[0], texts):
        return Reading(WIKIEXTRACTOR, _wikiextractor, lambda line: bool(_OPENED.fullmatch(line))), everything
    if not rows and first and all(map(_is_json, first)):
        raise UserError(
            f"{path}: expected lines of text, got an object of JSON on each; give the file a name that ends in .jsonl"
        )
    levels = [_level(text) for text in texts if any(map(str.isalpha, text))]
    if 1 in levels and sum(level > 0 for level in levels) > 1:
        return Reading(WIKITEXT, _wikitext), everything
    if rows:
        return Reading(None, lambda lines: lines, lambda line: True), everything
    return Reading(None, lambda lines: lines, lambda line: not line, behind=True), everything


def _begins_with_doc(first: str, ahead: list[str]) -> bool:
    """Whether a text begins with the tag of a document; a bare one may be a word of the text if nothing closes it."""
    return bool(_OPENED.fullmatch(first)) and (first != "<doc>" or _CLOSED in ahead)


def _title(opening: str) -> str:
    """The title in the line that opens a document; "" if it has none."""
    match = _TITLE.search(opening)
    return html.unescape(match["title"]) if match else ""


def _is_json(text: str) -> bool:
    try:
        value = json.loads(text) if text.startswith("{") else None
    except json.JSONDecodeError:
        return False
    return isinstance(value, dict) and any(isinstance(field, str) for field in value.values())


def _level(line: str) -> int:
    """The level of a heading of wikitext, from 1; 0 for other lines."""
    match = _HEADING.fullmatch(line)
    return len(match[1]) // 2 if match and len(match[1]) == len(match[2]) else 0


def _wikitext(lines: Lines) -> Lines:
    """The text; a number stands alone between "=" also elsewhere, so it is a heading only behind a blank line."""
    blank_before = True
    for number, line in lines:
        text = line.strip()
        level = _level(text) if blank_before or any(map(str.isalpha, text)) else 0
        if level == 1:
            yield number, ""
        elif text and not level:
            yield number, line
        blank_before = not text


def _wikiextractor(lines: Lines) -> Lines:
    title: str | None = None  # until the first line of text of a document
    for number, line in lines:
        text = line.strip()
        if _OPENED.fullmatch(text):
            title = _title(text)
            yield number, ""
        elif text == _CLOSED:
            yield number, ""
        elif text:
            if title is None or html.unescape(text) != title:
                yield number, line
            title = None
