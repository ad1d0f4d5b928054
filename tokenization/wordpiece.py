"""WordPiece as BERT defines it, in plain Python: the readable reference for tests of the fast tokenizer.

    text --BasicTokenizer--> words --WordpieceTokenizer--> pieces --vocabulary--> ids

    "Café, naïveté!"  ->  cafe , naivete !  ->  cafe , naive ##te !  ->  7668 1010 15743 2618 999

Names and signatures are those of tokenization.py in google-research/bert. Where Google's rules depend on the version
of Python (final sigma, Unicode tables), this module does what the ``tokenizers`` library does, because published models
are used with it; docs/tokenization.md lists the differences.
"""

import io
import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from .errors import UserError
from .library_tables import CHANGED, CJK_RANGES, LOWER, YOUNGER

BLANKS = " \t\r\n\v\f"  # what is stripped from a line of a vocabulary
Key = TypeVar("Key")
Value = TypeVar("Value")


class BasicTokenizer:
    """Cleans text and splits it into words: at spaces, and around punctuation and CJK ideographs.

    Args:
        do_lower_case: lower the case and, unless ``strip_accents`` is False, drop accents.
        never_split: words that are kept unchanged between spaces, such as "[MASK]".
        tokenize_chinese_chars: make each CJK ideograph a word.
        strip_accents: None means the value of ``do_lower_case``, as in Google's code.
    """

    def __init__(
        self,
        do_lower_case: bool = True,
        never_split: Iterable[str] | None = None,
        tokenize_chinese_chars: bool = True,
        strip_accents: bool | None = None,
    ) -> None:
        self.do_lower_case = do_lower_case
        self.never_split = frozenset(never_split or ())
        self.tokenize_chinese_chars = tokenize_chinese_chars
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents

    def tokenize(self, text: str | bytes) -> list[str]:
        """The words of a text.

        Raises:
            ValueError: bytes that are not UTF-8, or a lone surrogate.
        """
        text = _clean(convert_to_unicode(text))
        if self.tokenize_chinese_chars:
            text = "".join(f" {char} " if _is_chinese_char(char) else char for char in text)
        words: list[str] = []
        for word in whitespace_tokenize(text):
            if word in self.never_split:
                words.append(word)
            else:
                words += _split_at_punctuation(self._fold(word))
        return words

    def _fold(self, word: str) -> str:
        """The word without accents and in lower case, as far as the settings ask for it."""
        if self.strip_accents:
            word = _strip_accents(word)
        if self.do_lower_case:
            # Characters are lower-cased one by one, as in Python 2 and in the library: str.lower() of a whole word
            # treats a final sigma differently.
            word = "".join(LOWER.get(char) or char.lower() for char in word)
        return word


class WordpieceTokenizer:
    """Splits words into pieces of the vocabulary greedily: each piece is the longest one that fits.

    Args:
        vocab: the pieces; those inside a word begin with "##".
        unk_token: the piece for a word that cannot be split.
        max_input_chars_per_word: a longer word also gives ``unk_token``.
    """

    def __init__(
        self,
        vocab: Mapping[str, int] | set[str],
        unk_token: str = "[UNK]",
        max_input_chars_per_word: int = 100,
    ) -> None:
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word

    def tokenize(self, text: str | bytes) -> list[str]:
        """The pieces of the words of a text, such as un ##aff ##able for "unaffable".

        Raises:
            ValueError: bytes that are not UTF-8, or a lone surrogate.
        """
        return [piece for word in whitespace_tokenize(convert_to_unicode(text)) for piece in self._pieces(word)]

    def _pieces(self, word: str) -> list[str]:
        """The pieces of one word, or only ``unk_token``."""
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_token]
        pieces: list[str] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self.vocab), None)
            if end is None:
                return [self.unk_token]
            pieces.append(prefix + word[start:end])
            start = end
        return pieces


class FullTokenizer:
    """Converts text to pieces, pieces to ids, and ids to pieces.

    Args:
        vocab_file: one piece per line.
        do_lower_case: lower the case and, unless ``strip_accents`` is False, drop accents.
        never_split: strings such as "[MASK]" that are one piece wherever they occur in the text, like the special
            tokens of transformers. Google's code has no such strings and splits "[MASK]" into the pieces [ mask ].
        strip_accents: None means the value of ``do_lower_case``, as in Google's code.
    """

    def __init__(
        self,
        vocab_file: str | os.PathLike[str],
        do_lower_case: bool = True,
        never_split: Iterable[str] | None = None,
        strip_accents: bool | None = None,
    ) -> None:
        self.vocab = load_vocab(vocab_file)
        self.inv_vocab = {index: piece for piece, index in self.vocab.items()}
        self.never_split = frozenset(never_split or ())
        self.basic_tokenizer = BasicTokenizer(do_lower_case, strip_accents=strip_accents)
        self.wordpiece_tokenizer = WordpieceTokenizer(self.vocab)

    def tokenize(self, text: str | bytes) -> list[str]:
        """The pieces of a text.

        Raises:
            ValueError: bytes that are not UTF-8, or a lone surrogate.
        """
        pieces: list[str] = []
        for part in self._parts(convert_to_unicode(text)):
            if part in self.never_split:
                pieces.append(part)
            else:
                for word in self.basic_tokenizer.tokenize(part):
                    pieces += self.wordpiece_tokenizer.tokenize(word)
        return pieces

    def _parts(self, text: str) -> list[str]:
        """The text, cut before and after each string of ``never_split``."""
        if not self.never_split:
            return [text]
        longest_first = sorted(self.never_split, key=len, reverse=True)
        return re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text)

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """The ids of pieces.

        Raises:
            KeyError: the vocabulary does not have a piece, as in Google's code.
        """
        return convert_tokens_to_ids(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The pieces of ids.

        Raises:
            KeyError: the vocabulary does not have an id, as in Google's code.
        """
        return convert_ids_to_tokens(self.inv_vocab, ids)


def load_vocab(vocab_file: str | os.PathLike[str]) -> dict[str, int]:
    """Read the ids of pieces from a file with one piece per line.

    Empty lines after the last piece are left out, because they change no id. Only the blanks of ASCII are stripped from
    a line, because a piece may consist of another white space, such as U+2028, which ends no line either.

    Raises:
        ValueError: the file is no text in UTF-8, or a piece is empty or repeated.
        OSError: there is no such file.
    """
    vocab: dict[str, int] = {}
    empty = 0
    for number, line in _numbered_lines(vocab_file):
        piece = line.strip(BLANKS)
        if not piece:
            empty = empty or number
            continue
        if empty or piece in vocab:
            found = "an empty line" if empty else f"{piece!r:.60}, which is already in line {vocab[piece] + 1}"
            raise UserError(f"{vocab_file}:{empty or number}: expected a piece of its own, got {found}; delete it")
        vocab[piece] = number - 1
    return vocab


def _numbered_lines(vocab_file: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each line of a vocabulary. Raises ValueError as ``load_vocab`` does."""
    for number, raw in enumerate(io.BytesIO(Path(vocab_file).read_bytes()), 1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{vocab_file}:{number}: expected UTF-8 text, got byte 0x{error.object[error.start]:02x} at column "
                f"{error.start + 1}; convert the file to UTF-8"
            ) from None
        yield number, line


def convert_by_vocab(vocab: Mapping[Key, Value], items: Iterable[Key]) -> list[Value]:
    """Look up each item.

    Raises:
        KeyError: the vocabulary does not have an item, as in Google's code.
    """
    return [vocab[item] for item in items]


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """The ids of pieces, as ``convert_by_vocab`` looks them up."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """The pieces of ids, as ``convert_by_vocab`` looks them up."""
    return convert_by_vocab(inv_vocab, ids)


def convert_to_unicode(text: str | bytes) -> str:
    """The text as str; bytes are decoded as UTF-8.

    Raises:
        ValueError: bytes that are not UTF-8, or a lone surrogate.
    """
    if isinstance(text, bytes):
        return text.decode("utf-8")
    if not isinstance(text, str):
        raise UserError(f"expected str or bytes, got {type(text).__name__}")
    for position, char in enumerate(text):
        if "\ud800" <= char <= "\udfff":
            raise UserError(f"expected characters, got the lone surrogate {char!r} at position {position}")
    return text


def whitespace_tokenize(text: str) -> list[str]:
    """Words between runs of white space."""
    return text.split()


def _clean(text: str) -> str:
    """Remove NUL, U+FFFD and control characters, and replace every white space character by a space."""
    return "".join(
        " " if _is_whitespace(char) else char for char in text if char not in "\0\ufffd" and not _is_control(char)
    )


def _strip_accents(word: str) -> str:
    """Decompose the characters (NFD) and drop their non-spacing marks; YOUNGER characters stay as they are."""
    stripped = ""
    for young, run in itertools.groupby(word, YOUNGER.__contains__):
        part = "".join(run)
        if not young:
            part = "".join(char for char in unicodedata.normalize("NFD", part) if _category(char) != "Mn")
        stripped += part
    return stripped


def _split_at_punctuation(word: str) -> list[str]:
    """The parts of a word, in which each punctuation character is a part of its own: "don't" gives don ' t."""
    parts: list[str] = []
    new_part = True
    for char in word:
        if _is_punctuation(char):
            parts.append(char)
            new_part = True
        elif new_part:
            parts.append(char)
            new_part = False
        else:
            parts[-1] += char
    return parts


def _category(char: str) -> str:
    """The Unicode category according to the library's tables (library_tables.py)."""
    return CHANGED.get(char) or ("Lo" if char in YOUNGER else unicodedata.category(char))


def _is_chinese_char(char: str) -> bool:
    return char >= "\u3400" and any(first <= ord(char) <= last for first, last in CJK_RANGES)


def _is_whitespace(char: str) -> bool:
    return char in " \t\n\r" or _category(char) == "Zs"


def _is_control(char: str) -> bool:
    # The library deletes private-use characters (Co). Google's code keeps them, and their words become [UNK].
    return char not in "\t\n\r" and _category(char) in ("Cc", "Cf", "Co")


def _is_punctuation(char: str) -> bool:
    """Whether words are split at this character: Unicode punctuation and all ASCII signs, for instance ^, $ and `."""
    return _is_ascii_sign(char) or _category(char).startswith("P")


def _is_ascii_sign(char: str) -> bool:
    return "!" <= char <= "/" or ":" <= char <= "@" or "[" <= char <= "`" or "{" <= char <= "~"
