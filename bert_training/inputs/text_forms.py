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

A text in one of these forms is read as its articles. The lines with tags, the repeated titles and the headings are left
out, because BERT was trained on "only the text passages" of Wikipedia (paper, section 3.1). All other text is left as
it is, even if such a line occurs in it.
"""

import html
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
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
        UserError: the lines of a text file are JSON. While ``Reading.read`` gives the lines: they break the form.
    """
    lines = iter(lines)
    ahead: list[tuple[int, str]] = []
    characters = 0
    for line in lines:
        ahead.append(line)
        characters += len(line[1])
        if len(ahead) == _LINES_AHEAD or characters > _CHARACTERS_AHEAD:
            break
    first = [(number, stripped) for number, text in ahead if (stripped := text.strip())][:2]
    everything = itertools.chain(ahead, lines)
    return _reading(path, ahead, first, rows), everything


def _reading(path: object, ahead: list[tuple[int, str]], first: list[tuple[int, str]], rows: bool) -> Reading:
    """How a text is read whose beginning is ``ahead``, and whose first lines that are not blank are ``first``."""
    if not rows and first and _begins_with_doc(first[0][1], ahead):
        return Reading(WIKIEXTRACTOR, partial(_wikiextractor, path), lambda line: bool(_OPENED.fullmatch(line)))
    if not rows and first and all(_is_json(text) for _, text in first):
        raise UserError(
            f"{path}:{first[0][0]}: expected lines of text, got an object of JSON on each; give the file a name that "
            "ends in .jsonl"
        )
    texts = [text.strip() for _, text in ahead]
    if _is_wikitext(texts):
        return Reading(WIKITEXT, _wikitext)
    if _is_wikitext_without_blanks(texts):
        return Reading(WIKITEXT, _wikitext_without_blanks)
    if rows:
        return Reading(None, lambda lines: lines, lambda line: True)
    return Reading(None, partial(_plain, path), lambda line: not line, behind=True)


def _begins_with_doc(first: str, ahead: list[tuple[int, str]]) -> bool:
    """Whether a text begins with the tag of a document; a bare one may be a word of the text if nothing closes it."""
    return bool(_OPENED.fullmatch(first)) and (first != "<doc>" or any(text.strip() == _CLOSED for _, text in ahead))


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


def _is_wikitext(lines: list[str]) -> bool:
    """Whether a heading of level 1 and another heading stand alone between blank lines or rows."""
    padded = ["", *lines, ""]
    levels = [
        level
        for before, line, after in zip(padded, lines, padded[2:])
        if line.startswith("= ") and not before and not after and (level := _level(line))
    ]
    return 1 in levels and len(levels) > 1


def _is_wikitext_without_blanks(lines: list[str]) -> bool:
    """Whether there is no blank line or row, but a heading of level 1 and another heading, both with letters."""
    while lines and not lines[-1]:
        lines = lines[:-1]
    if not all(lines):
        return False
    levels = [level for line in lines if (level := _level(line)) and any(map(str.isalpha, line))]
    return 1 in levels and len(levels) > 1


def _wikitext_without_blanks(lines: Lines) -> Lines:
    for number, line in lines:
        level = _level(line.strip())
        if level == 1:
            yield number, ""
        elif not level and line.strip():
            yield number, line


def _wikitext(lines: Lines) -> Lines:
    before = True  # whether the line before was blank
    held: tuple[int, str, int] | None = None  # a line that is a heading if a blank one follows
    for number, line in lines:
        blank = not line.strip()
        if held is not None:
            if not blank:
                yield held[:2]
            elif held[2] == 1:
                yield held[0], ""
            held = None
        level = _level(line.strip()) if before else 0
        if level:
            held = number, line, level
        elif not blank:
            yield number, line
        before = blank
    if held is not None and held[2] == 1:
        yield held[0], ""


def _wikiextractor(path: object, lines: Lines) -> Lines:
    opened, title = 0, None  # the number of the line that opened the document; its title until the first line of text
    for number, line in lines:
        stripped = line.strip()
        match = _OPENED.fullmatch(stripped)
        if match and not opened:
            opened, title = number, _title(stripped)
        elif stripped == _CLOSED and opened:
            opened = 0
            yield number, ""
        elif match or stripped == _CLOSED or (stripped and not opened):
            expected = "the line </doc>" if opened else "a line <doc id=...>"
            raise UserError(
                f"{path}:{number}: expected {expected}, as WikiExtractor writes it at the "
                f"{'end' if opened else 'beginning'} of each document, got {stripped[:60]!r}; extract the file again, "
                "or put text from elsewhere into a file of its own"
            )
        elif stripped:
            if title is None or html.unescape(stripped) != title:
                yield number, line
            title = None
    if opened:
        raise UserError(
            f"{path}: expected the line </doc> for the document of line {opened}, got the end of the file; extract the "
            "file again"
        )


def _plain(path: object, lines: Lines) -> Lines:
    title, place = "", 0
    for number, line in lines:
        # WikiExtractor always repeats the title in the next line; an example of a tag in a text does not.
        if title and html.unescape(line.strip()) == title:
            raise UserError(
                f"{path}:{place}: expected text, got a document of WikiExtractor; put such documents into a file of "
                "their own, which is then read as its articles"
            )
        opening = line.startswith("<doc") and _OPENED.fullmatch(line.strip())
        title, place = (_title(line.strip()), number) if opening else ("", 0)
        yield number, line
