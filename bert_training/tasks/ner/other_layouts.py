"""Files that are no columns of words and tags: what they seem to be, and what to do.

A file of words alone has one column, and so has almost anything else without spaces: JSON, tables with commas, markup,
sentences of scripts without spaces. Nothing in the layout itself tells them apart, so each would silently become words.
What most lines of a file look like decides; a single word may look like anything.
"""

import json
import re
from collections.abc import Callable

from bert_training.files.json_files import parse_json

TAG = re.compile(r"[OBIESLUM]|[BIESLUM]-\S+")
TAG_OF_CELL = re.compile(r"O|[BIESLUM]-\S(.*\S)?")  # in JSON and columns with tabs, a type may have spaces

# Text on both sides, and not only digits: 1,000 is a word.
TABLE = re.compile(r".*[^\d,;|][,;|]+[^,;|].*|.*[^,;|][,;|]+[^\d,;|].*")
TAG_AT_END = re.compile(r'.+[\s,;|:/\\_=#~]"?(O|[BIESLUM]-\w[^,;|]*)"?')
COMMA_BEFORE_TAG = re.compile(r'.*[,;|]"?(O|[BIESLUM]-\w[^,;|]*)"?')
COMMA_AFTER = re.compile(r".+[,;:|]")
QUOTED = re.compile(r'"[^"]+"')
CLOSING = re.compile(r"</([A-Za-z][\w.:-]*)>")
# Ends of sentences and other marks that writing without spaces has inside a line, and its letters.
INNER_MARK = re.compile(r"\w[。！？｡，、；।॥۔؟፧።။]")
# Scripts without spaces, and the letters of their longest usual words.
WITHOUT_SPACES = (
    (re.compile("[\u3040-\u30ff\u3400-\u9fff]"), 10),
    (re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]"), 14),
)
LONGEST_LOOK = 1000  # characters of a line that decide; the patterns would take long for lines of megabytes

JSON = (
    'this is JSON; give a file named .jsonl with an object a line, such as {"tokens": ["Ada", "slept"], '
    '"ner_tags": ["B-PER", "O"]}'
)
COMMAS = "this is a table with another separator; separate the columns by tabs or spaces, without quotation marks"
MARKUP = "this is markup; write one word a line, and a blank line after each sentence"
SENTENCES = (
    "a sentence must have one word a line, and a blank line after it, or be a line of JSON in a file named .jsonl, "
    'such as {"tokens": ["Ada", "slept"]}; sentences without tags, in a file named .txt, are for --test_file'
)
TAGS = "these are tags without their words; write each word and its tag on one line"
NUMBERS = "the first column has only numbers; the word must be the first column, so delete the others before it"
HEADER = "delete the header line; the columns have no names"
HEADER_OR_WORD = "if this is a header line, delete it; if it is a word, begin the file with a blank line"
WORD_NAMES = ("word", "words", "token", "tokens")
TAG_NAMES = ("tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "bio", "iob", "iob2", "entity", "class",
             "pos", "upos", "xpos", "pos_tag", "pos_tags")  # fmt: skip
BY_MOST_LINES = (NUMBERS, COMMAS, MARKUP)
COMMENT = "delete the line if it is a comment, or correct it"


def words_problem(words: list[str], first: list[str]) -> tuple[int, str] | None:
    """Why the lines of a file with one column are no words: the number of the first such line from 0, and a remedy.

    Args:
        first: the words of the sentence that begins on the first line, where a header would be.
    """
    for find in (_json, _markup):
        if (found := find(words)) is not None:
            return found
    words = [word[:LONGEST_LOOK] for word in words]
    kinds: tuple[tuple[Callable[[str], object], str], ...] = (
        (TAG.fullmatch, TAGS if any(word[:2] in ("B-", "I-", "S-") for word in words) else ""),
        (lambda word: TABLE.fullmatch(word) or TAG_AT_END.fullmatch(word) or QUOTED.fullmatch(word), COMMAS),
        (_is_sentence, SENTENCES),
    )
    for matches, remedy in kinds:
        places = [number for number, word in enumerate(words) if matches(word)]
        if remedy and 2 * len(places) > len(words):
            return places[0], remedy
    return (0, HEADER_OR_WORD) if first and _is_header(first) else None


def looks_like_sentences(lines: list[str]) -> bool:
    """Whether most lines without spaces are sentences, of a script that has none."""
    return 2 * sum(_is_sentence(line[:LONGEST_LOOK]) for line in lines) > len(lines)


def other_than_text(lines: list[str]) -> bool:
    """Whether the lines of a file with spaces are JSON, markup, or begin with numbers, and no sentences."""
    return bool(_json(lines) or _markup(lines)) or all(line.split()[0].isdecimal() for line in lines)


def line_problem(line: str, columns: int, any_tag: bool) -> str:
    """What to do about a line that does not fit; "" if it does not look like anything known.

    Words with plain tags may look like something of ``BY_MOST_LINES``, too: most lines of the file must.

    Args:
        columns: how many columns the line has.
        any_tag: whether an earlier line ends in a tag.
    """
    text = line.strip()
    if text[:1] in ("{", "[") and _is_json(text):
        return JSON
    if text.startswith("#"):
        return COMMENT
    if not any_tag and text.split()[-1].lower() in TAG_NAMES:
        return HEADER
    if re.match(r"\d+\t", text):
        return NUMBERS
    if COMMA_BEFORE_TAG.fullmatch(text) or len(re.findall("[,;|](?! )", text)) > 1:
        return COMMAS
    if re.match("<[A-Za-z?!/]", text):
        return MARKUP
    return SENTENCES if columns > 2 and not any_tag and "\t" not in text else ""


def first_column_problem(words: list[str], columns: int) -> str:
    """Why the first of several columns holds no words: a remedy, or "".

    It numbers words or sentences, as in CoNLL-U and exported tables, or the table has other separators and spaces.
    """
    if len(words) > 1 and columns > 2 and all(word.isdecimal() for word in words):
        return NUMBERS
    if len(words) > 1 and any(all(map(shape.fullmatch, words)) for shape in (QUOTED, COMMA_AFTER)):
        return COMMAS
    return ""


def _is_header(words: list[str]) -> bool:
    """Whether the first word of a file of words alone seems to name the column.

    A sentence may begin with "Word", but hardly with "word".
    """
    word, after = words[0], words[1] if len(words) > 1 else ""
    return word.lower() in WORD_NAMES and (not word.istitle() or not after or after[0].isupper())


def _json(words: list[str]) -> tuple[int, str] | None:
    """The first line that is an object or a list, or line 0 if all lines together are one."""
    for number, word in enumerate(words):
        if word[:1] in ("{", "[") and _is_json(word):
            return number, JSON
    if words[0][0] in "{[" and words[-1][-1] in "}]" and _is_json("\n".join(words)):
        return 0, JSON
    return None


def _is_json(text: str) -> bool:
    """Whether the text is JSON and no word in brackets: [1] may be a reference."""
    try:
        content = parse_json(text)
    except json.JSONDecodeError:
        return False
    parts = content if isinstance(content, list) else [content]
    return any(isinstance(part, str | dict | list) and bool(part) for part in parts)


def _markup(words: list[str]) -> tuple[int, str] | None:
    """The first closing tag that follows its opening tag. <unk> alone is a word."""
    opened: set[str] = set()
    for number, word in enumerate(words):
        if (closing := CLOSING.search(word)) and (closing[1] in opened or f"<{closing[1]}" in word[: closing.start()]):
            return number, MARKUP
        opened.update(re.findall(r"<([A-Za-z][\w.:-]*)", word))
    return None


def _is_sentence(word: str) -> bool:
    marked = bool(INNER_MARK.search(word)) and len(word) > 4
    long = any(len(letters.findall(word)) > longest for letters, longest in WITHOUT_SPACES)
    return marked or long or len(word.split()) > 3
