"""Split paragraphs into sentences by simple rules, for text that does not have one sentence per line.

    split_sentences('Dr. Smith paid 3.50 dollars. "Why?" he asked.')
    -> ['Dr. Smith paid 3.50 dollars.', '"Why?" he asked.']

A sentence ends at . ! ? … (with closing quotes and brackets) before white space, unless the next word starts with a
small letter or the dot belongs to an abbreviation or an initial. It also ends at a CJK full stop, even without a space
after it. A wrong split does little harm: BERT's "sentence" is any span of contiguous text (paper, section 3), and
splitting never loses text.
"""

import re

_TITLES = "mr mrs ms mme mlle dr prof st sr jr hon rev fr gen col capt lt sgt maj cmdr adm gov sen rep pres messrs"
_PLACES = "mt ft ave blvd rd co corp inc ltd bros dept univ assn est"
_MONTHS = "jan feb mar apr jun jul aug sep sept oct nov dec"
_OTHERS = "vs etc al cf ca viz approx fig figs eq sec ch vol vols ed eds pp op cit ibid e.g i.e esp incl resp"
_ABBREVIATIONS = frozenset(f"{_TITLES} {_PLACES} {_MONTHS} {_OTHERS}".split())
# These are also words ("No.") or letters, so they count as abbreviations only before a number.
_BEFORE_NUMBERS = frozenset(["no", "nos", "p", "pp", "art", "para", "c", "b", "d", "r"])

# The pattern starts with one character class, which the regex engine can scan for quickly.
_BOUNDARY = re.compile(r"[.!?…。！？][.!?…。！？\"'”’»)\]」』）]*(\s*)")
_LAST_WORD = re.compile(r"([^\W_]+(?:\.[^\W_]+)*)\.$")
_OPENING = "\"'“‘«([{—–-"


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of one paragraph or line, stripped, in order; ``[]`` if it is white space.

    If the paragraph has no capital letters (text that was lower-cased before), a small letter may start a sentence.
    """
    paragraph = paragraph.strip()
    sentences: list[str] = []
    start = 0
    lowered: bool | None = None  # whether the paragraph has no capital letters; computed when it is needed
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
    """Whether the dot before ``after_dot`` marks an abbreviation or initial ("Dr.", "J.", "U.S.")."""
    # The longest abbreviation has fewer than 24 characters; searching further back would take quadratic time.
    match = _LAST_WORD.search(text, max(start, after_dot - 24), after_dot)
    if match is None:
        return False
    word = match.group(1)
    lowered = word.lower()
    if lowered in _ABBREVIATIONS or (following.isdigit() and lowered in _BEFORE_NUMBERS):
        return True
    # A single capital is an initial, except "I", which is nearly always the pronoun. "U.S", "Ph.D" and "a.m" have a
    # dot before the last letter.
    return (len(word) == 1 and word.isupper() and word != "I") or ("." in word and word[-2] == ".")
