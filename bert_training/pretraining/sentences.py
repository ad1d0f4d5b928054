"""Split paragraphs into sentences by simple rules, for text that does not have one sentence per line.

    split_sentences('Dr. Smith paid 3.50 dollars. "Why?" he asked.')
    -> ['Dr. Smith paid 3.50 dollars.', '"Why?" he asked.']

A sentence ends at a mark of Unicode's property Sentence_Terminal, with closing quotes and brackets:

- . ! ? … and the others of the Latin alphabet, before white space, unless the next word starts with a small letter or
  the dot belongs to an abbreviation or an initial;
- the marks of all other scripts, such as the danda of Hindi, the Arabic question mark and the CJK full stop, even
  without a space after it.

A wrong split does little harm: BERT's "sentence" is any span of contiguous text (paper, section 3), and splitting never
loses text.
"""

import re

RULES = 2  # increase it when a text can give other sentences; a build that was begun with other rules starts anew

_TITLES = "mr mrs ms mme mlle dr prof st sr jr hon rev fr gen col capt lt sgt maj cmdr adm gov sen rep pres messrs"
_PLACES = "mt ft ave blvd rd co corp inc ltd bros dept univ assn est"
_MONTHS = "jan feb mar apr jun jul aug sep sept oct nov dec"
_OTHERS = "vs etc al cf ca viz approx fig figs eq sec ch vol vols ed eds pp op cit ibid e.g i.e esp incl resp"
_ABBREVIATIONS = frozenset(f"{_TITLES} {_PLACES} {_MONTHS} {_OTHERS}".split())
# These are also words ("No.") or letters, so they count as abbreviations only before a number.
_BEFORE_NUMBERS = frozenset(["no", "nos", "p", "pp", "art", "para", "c", "b", "d", "r"])

# Sentence_Terminal in Unicode 17, without the marks of the two strings below. Unicode's rules (UAX 29, SB11) end a
# sentence at each of them whatever follows, because several of these scripts have no spaces between sentences, and
# because hasty writers leave the space out where it belongs.
# fmt: off
_SCRIPTS = "".join(
    chr(code)
    for first, last in (
        (0x589, 0x589), (0x61D, 0x61F), (0x6D4, 0x6D4), (0x700, 0x702), (0x7F9, 0x7F9), (0x837, 0x837),
        (0x839, 0x839), (0x83D, 0x83E), (0x964, 0x965), (0x104A, 0x104B), (0x1362, 0x1362), (0x1367, 0x1368),
        (0x166E, 0x166E), (0x1735, 0x1736), (0x17D4, 0x17D5), (0x1803, 0x1803), (0x1809, 0x1809), (0x1944, 0x1945),
        (0x1AA8, 0x1AAB), (0x1B4E, 0x1B4F), (0x1B5A, 0x1B5B), (0x1B5E, 0x1B5F), (0x1B7D, 0x1B7F), (0x1C3B, 0x1C3C),
        (0x1C7E, 0x1C7F), (0x2CF9, 0x2CFB), (0xA4FF, 0xA4FF), (0xA60E, 0xA60F), (0xA6F3, 0xA6F3), (0xA6F7, 0xA6F7),
        (0xA876, 0xA877), (0xA8CE, 0xA8CF), (0xA92F, 0xA92F), (0xA9C8, 0xA9C9), (0xAA5D, 0xAA5F), (0xAAF0, 0xAAF1),
        (0xABEB, 0xABEB), (0xFE12, 0xFE12), (0xFE15, 0xFE16), (0xFE52, 0xFE52), (0xFE56, 0xFE57), (0xFF0E, 0xFF0E),
        (0xFF61, 0xFF61), (0x10A56, 0x10A57), (0x10F55, 0x10F59), (0x10F86, 0x10F89), (0x11047, 0x11048),
        (0x110BE, 0x110C1), (0x11141, 0x11143), (0x111C5, 0x111C6), (0x111CD, 0x111CD), (0x111DE, 0x111DF),
        (0x11238, 0x11239), (0x1123B, 0x1123C), (0x112A9, 0x112A9), (0x113D4, 0x113D5), (0x1144B, 0x1144C),
        (0x115C2, 0x115C3), (0x115C9, 0x115D7), (0x11641, 0x11642), (0x1173C, 0x1173E), (0x11944, 0x11944),
        (0x11946, 0x11946), (0x11A42, 0x11A43), (0x11A9B, 0x11A9C), (0x11C41, 0x11C42), (0x11EF7, 0x11EF8),
        (0x11F43, 0x11F44), (0x16A6E, 0x16A6F), (0x16AF5, 0x16AF5), (0x16B37, 0x16B38), (0x16B44, 0x16B44),
        (0x16D6E, 0x16D6F), (0x16E98, 0x16E98), (0x1BC9F, 0x1BC9F), (0x1DA88, 0x1DA88),
    )
    for code in range(first, last + 1)
)
# fmt: on
# Tibetan shads, which Unicode leaves out because they also end phrases; the script has no other mark.
_SHADS = "\u0f0d\u0f0e\u0f0f\u0f10\u0f11\u0f14"
# Two wordspaces are a full stop of Amharic, as many keyboards write it.
_WORDSPACE = "\u1361"
_CJK = "。！？"
# Marks of the Latin alphabet, where one inside of a word (a name, an address, a number) ends nothing. The second row
# has forms of them in one character.
_LATIN = ".!?…\u2024\u203c\u203d\u2047-\u2049\u2e2e\u2e3c\u2e53\u2e54\u2e60\u2e61"
_ANYWHERE = frozenset(_CJK + _SCRIPTS + _SHADS + _WORDSPACE)
_MARKS = _LATIN + _CJK + _SCRIPTS + _SHADS + _WORDSPACE


def _boundary(marks: str) -> re.Pattern[str]:
    # The pattern starts with one character class, which the regex engine can scan for quickly. The halfwidth bracket
    # closes behind halfwidth full stops. Shads come in pairs with a space between them.
    closed = rf"[{marks}][{marks}\"'”’»)\]」』）]*(?:(?<=｡)｣+)?"
    return re.compile(rf"{closed}(?:(?<=[{_SHADS}])(?:\s+[{_SHADS}]+)+)?(\s*)")


# The engine is several times slower with characters beyond U+FFFF in the class, so only texts that have some pay.
_BOUNDARY = _boundary(re.sub("[\U00010000-\U0010ffff]", "", _MARKS))
_BOUNDARY_BEYOND = _boundary(_MARKS)
_BEYOND = re.compile("[\U00010000-\U0001dfff]")
_ENDS_NUMBERS_TOO = frozenset(_CJK + "｡︒︕︖")
_FULLWIDTH_DOTS = "．﹒"
# The number of a verse is between two double dandas: the first of them does not end the verse.
_DOUBLE_DANDA = re.compile(r"(?:॥|।।)\s*$")
_VERSE_NUMBER = re.compile(r"\d+\s*(?:॥|।।)")
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
    beyond = not paragraph.isascii() and _BEYOND.search(paragraph)
    for match in (_BOUNDARY_BEYOND if beyond else _BOUNDARY).finditer(paragraph):
        space, end = match.span(1)
        if end == len(paragraph):
            break
        mark = paragraph[match.start()]
        if mark in _ANYWHERE and mark not in _CJK:
            if _ends_nothing(paragraph, match.start(), space, end):
                continue
        elif space < end:
            following = paragraph[end]
            if following in _OPENING:
                following = _first_letter(paragraph, end)
            if _is_small(following):
                if lowered is None:
                    lowered = paragraph.islower()
                if not lowered:
                    continue
            dot = match.start()
            if mark == "." and _abbreviated(paragraph, start, dot + 1, following):
                continue
        elif mark not in _CJK:
            continue
        sentences.append(paragraph[start:space])
        start = end
    if start < len(paragraph):
        sentences.append(paragraph[start:])
    return sentences


def _ends_nothing(text: str, mark: int, space: int, end: int) -> bool:
    """Whether the mark at ``mark``, with the next word at ``end``, is between two words or in a number or name."""
    following = text[end]
    if text[mark] == _WORDSPACE and text[mark + 1] != _WORDSPACE:
        return True
    if _DOUBLE_DANDA.search(text, mark, end) and _VERSE_NUMBER.match(text, end):
        return True
    if space < end or text[mark] in _ENDS_NUMBERS_TOO:
        return False
    # Fullwidth dots occur in abbreviations and names of files, too, as dots do.
    return following.isdigit() or (text[mark] in _FULLWIDTH_DOTS and following.isalpha() and _is_latin(following))


def _is_latin(letter: str) -> bool:
    return letter.isascii() or "Ａ" <= letter <= "ｚ"


def _is_small(character: str) -> bool:
    # The letters of Georgian count as small ones, but no sentence of it begins with a capital.
    return character.islower() and not "\u10d0" <= character <= "\u10ff"


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
