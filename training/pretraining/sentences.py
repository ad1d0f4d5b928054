"""Paragraph -> sentences by plain rules, for text that does not come one sentence a line.

    split_sentences('Dr. Smith paid 3.50 dollars. "Why?" he asked.')
    -> ['Dr. Smith paid 3.50 dollars.', '"Why?" he asked.']

A sentence ends at . ! ? … (with closing quotes and brackets) before white space, when the next word does not
start with a small letter and the dot does not belong to an abbreviation or an initial; and after the CJK full
stops, which no space follows. A mistake costs little: BERT's "sentence" is any span of contiguous text (paper,
section 3), and no text is ever lost by splitting.
"""

import re

_TITLES = "mr mrs ms mme mlle dr prof st sr jr hon rev fr gen col capt lt sgt maj cmdr adm gov sen rep pres messrs"
_PLACES = "mt ft ave blvd rd co corp inc ltd bros dept univ assn est"
_MONTHS = "jan feb mar apr jun jul aug sep sept oct nov dec"
_OTHERS = "vs etc al cf ca viz approx fig figs eq sec ch vol vols ed eds pp op cit ibid e.g i.e esp incl resp"
_ABBREVIATIONS = frozenset(f"{_TITLES} {_PLACES} {_MONTHS} {_OTHERS}".split())
# These are words as well ("No."), so they count as abbreviations only before a number.
_BEFORE_NUMBERS = frozenset(["no", "nos", "p", "pp", "art", "para", "c", "b", "d", "r"])

# One character class first: the regex engine then scans for it instead of trying alternatives everywhere.
_BOUNDARY = re.compile(r"[.!?…。！？][.!?…。！？\"'”’»)\]」』）]*(\s*)")
_LAST_WORD = re.compile(r"([^\W_]+(?:\.[^\W_]+)*)\.$")
_OPENING = "\"'“‘«([{—–-"


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of one paragraph or line, stripped, in order; `[]` for white space.

    A line without capital letters (text already lower-cased) is split at every full stop.
    """
    paragraph = paragraph.strip()
    sentences: list[str] = []
    start = 0
    lowered: bool | None = None
    for match in _BOUNDARY.finditer(paragraph):
        space, end = match.span(1)
        if end == len(paragraph):
            break
        if space < end:
            following = paragraph[end]
            if following in _OPENING:
                following = _first_letter(paragraph, end)
            if following.islower():
                if lowered is None:
                    lowered = paragraph.islower()
                if not lowered:
                    continue
            dot = match.start()
            if paragraph[dot] == "." and _abbreviated(paragraph, start, dot + 1, following):
                continue
        elif paragraph[match.start()] not in "。！？":
            continue
        sentences.append(paragraph[start:space])
        start = end
    if start < len(paragraph):
        sentences.append(paragraph[start:])
    return sentences


def _first_letter(text: str, position: int) -> str:
    while position < len(text) - 1 and text[position] in _OPENING:
        position += 1
    return text[position]


def _abbreviated(text: str, start: int, after_dot: int, following: str) -> bool:
    """Whether the dot before `after_dot` marks an abbreviation or initial ("Dr.", "J.", "U.S.")."""
    # 24 characters hold the longest abbreviation; looking further would make long lines quadratic.
    match = _LAST_WORD.search(text, max(start, after_dot - 24), after_dot)
    if match is None:
        return False
    word = match.group(1)
    lowered = word.lower()
    if lowered in _ABBREVIATIONS or (following.isdigit() and lowered in _BEFORE_NUMBERS):
        return True
    # An initial; "I" is nearly always the pronoun. Dotted letters: "U.S.", "Ph.D", "a.m.".
    return (len(word) == 1 and word.isupper() and word != "I") or ("." in word and word[-2] == ".")
