"""What a tokenizer loses of a text: the characters in [UNK], and those of words that lose accents or vowels.

A word of any length becomes one [UNK] if it has a character that the vocabulary lacks or more than 100 characters.
Tokens alone therefore show too little: in text without spaces, one [UNK] in a hundred tokens may be half of the text.

To strip accents, BERT's normalisation decomposes every character (NFD) and drops all non-spacing marks (Mn). In
English this concerns few words. In many scripts these marks are vowels (में becomes म) or tell letters apart (が becomes
か), Hangul falls apart into its letters, and German or Vietnamese words become other words (schön, schon). So whether a
vocabulary strips them is decided by the text that it is learnt from, if the user does not decide it.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import tokenizers
from tokenizers import normalizers
from tokenizers.pre_tokenizers import BertPreTokenizer

from .errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# From this share on, [UNK] is worth a warning.
UNKNOWN_FROM = 0.05
# From this share on, nearly all inputs look the same, and nothing can be learnt from them.
UNUSABLE_FROM = 0.95
# The share of the characters, in words that stripping accents changes, from which it matters. In English Wikipedia it
# changes a quarter of it.
NEGLIGIBLE = 0.01
# The tokenizer encodes a longer word as one [UNK]. It is the limit of every reader of a BERT folder.
MAX_WORD_LENGTH = 100
SEGMENT = "if the text has no spaces between its words, put some there (docs/tokenization.md)"
# So many characters are encoded to see how much reaches the model, and so many of one text.
SAMPLE, OF_A_TEXT = 1 << 20, 20_000


class Stripping(NamedTuple):
    """What stripping accents changes in a text.

    Attributes:
        share: the share of the characters that are in words that it changes; of characters, because a text without
            spaces has few words for its length.
        example: the most frequent one of these words, before and after; None if there is none.
    """

    share: float
    example: tuple[str, str] | None

    @property
    def matters(self) -> bool:
        """Whether more than a negligible share of the text would change."""
        return self.share >= NEGLIGIBLE

    def text(self) -> str:
        """The share, and the example with its script: "61.2% of the characters (Devanagari: में becomes म)"."""
        shown = ""
        if self.example:
            before, after = self.example
            shown = f" ({script_of(before)}: {before[:20]} becomes {after[:20] or 'nothing'})"
        return f"words with {self.share:.1%} of the characters{shown}"


def strip_words(words: Counter[str], tokenize_chinese_chars: bool = True) -> tuple[Counter[str], Stripping]:
    """(counts of the words after stripping, what it changes), for lower-cased words and their counts.

    The counts are those that ``count_words`` would have found with ``strip_accents``: the order of lower-casing and
    stripping makes no difference for any code point.

    Args:
        tokenize_chinese_chars: as the words were counted.
    """
    normalizer = normalizers.BertNormalizer(
        lowercase=True, strip_accents=True, handle_chinese_chars=tokenize_chinese_chars
    )
    split = BertPreTokenizer()
    stripped: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    for word, count in words.items():
        parts = [part for part, _ in split.pre_tokenize_str(normalizer.normalize_str(word))]
        for part in parts:
            stripped[part] += count
        kept = without_selectors(word)  # nothing of a selector behind punctuation, which is a word of its own
        if parts != ([kept] if kept else []):
            changed[word] = count
    return stripped, _stripping(changed, _characters(words), normalizer)


def _characters(words: Counter[str]) -> int:
    return sum(len(word) * count for word, count in words.items())


def _stripping(changed: Counter[str], characters: int, normalizer: normalizers.Normalizer) -> Stripping:
    example = min(changed, key=lambda word: (-changed[word], word), default=None)
    shown = None if example is None else (example, normalizer.normalize_str(example).strip())
    return Stripping(_characters(changed) / max(1, characters), shown)


def marks(text: str) -> int:
    """The number of non-spacing marks in a text after decomposition, without variation selectors."""
    if text.isascii():
        return 0
    decomposed = unicodedata.normalize("NFD", without_selectors(text))
    return sum(unicodedata.category(char) == "Mn" for char in decomposed)


def without_selectors(text: str) -> str:
    """The text without variation selectors, which choose a glyph, such as the coloured one of an emoji."""
    if text.isascii():
        return text
    return "".join(char for char in text if not ("\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"))


def script_of(word: str) -> str:
    """The script of the first letter in a word, as its Unicode name says: "Devanagari"."""
    letter = next(filter(str.isalpha, word), "")
    return unicodedata.name(letter, "UNKNOWN").split()[0].capitalize() if letter else "Unknown"


class Coverage(NamedTuple):
    """What a tokenizer loses of a sample of a text.

    Attributes:
        unknown: the share of the characters in [UNK]. White space, digits and punctuation of ASCII do not count,
            because almost every vocabulary has them.
        example: the most frequent string that becomes [UNK], one with letters if there is any.
        stripping: what is stripped.
    """

    unknown: float
    example: str
    stripping: Stripping

    def warnings(self, of: str, other_vocabulary: str, keep_accents: str) -> list[str]:
        """One sentence about [UNK] and one about stripped marks, if they concern more than a few words.

        Args:
            of: what the text is called, such as "train".
            other_vocabulary: how the user gets a vocabulary with the characters of the text.
            keep_accents: how the user gets a tokenizer that keeps accents.
        """
        found = []
        if self.unknown >= UNKNOWN_FROM:
            found.append(
                f"warning: {of}: {self.unknown:.1%} of the characters are in [UNK], such as {self.example!r}; "
                f"{other_vocabulary}; {SEGMENT}"
            )
        if self.stripping.matters:
            found.append(f"warning: {of}: accents or vowels are stripped from {self.stripping.text()}; {keep_accents}")
        return found

    def check_usable(self, of: str, other_vocabulary: str) -> None:
        """Refuse a text of which practically all is [UNK]: its inputs look the same, and nothing can be learnt from it.

        Raises:
            UserError: at least 95 % of the characters are in [UNK].
        """
        if self.unknown >= UNUSABLE_FROM:
            raise UserError(
                f"{of}: expected text that the tokenizer knows, but {self.unknown:.1%} of its characters are in [UNK], "
                f"such as {self.example!r}, so that there is nothing to learn; {other_vocabulary}; {SEGMENT}"
            )


def coverage(tokenizer: "PreTrainedTokenizerBase", texts: Iterable[str]) -> Coverage:
    """What a tokenizer makes of texts, by a sample of them of at most a million characters."""
    from .bert_tokenizer import backend_of  # it imports transformers, which takes a second

    backend = tokenizers.Tokenizer.from_str(backend_of(tokenizer).to_str())  # a copy
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True  # a "[SEP]" in a text is ordinary text
    sample, unknown, mark = _sample(texts), Counter[str](), tokenizer.unk_token_id
    words = Counter(word for text in sample for word in text.split())
    read = words if isinstance(backend.pre_tokenizer, BertPreTokenizer) else Counter(sample)  # it splits at spaces
    for (word, count), encoding in zip(read.items(), backend.encode_batch([*read], add_special_tokens=False)):
        for number, (start, end) in zip(encoding.ids, encoding.offsets if mark in encoding.ids else ()):
            if number == mark:
                while end < len(word) and unicodedata.category(word[end]).startswith("M"):
                    end += 1  # a mark that was stripped from the end of the word
                unknown[word[start:end]] += count
    example = min(unknown, key=lambda word: (not any(map(str.isalpha, word)), -unknown[word], word), default="")
    stripped, normalizer = Counter[str](), backend.normalizer
    for word, count in words.items() if normalizer else ():
        if (before := marks(word)) and marks(normalizer.normalize_str(word)) < before:
            stripped[word] = count
    share = _letters(unknown) / max(1, _letters(words))
    return Coverage(share, example[:20], _stripping(stripped, _characters(words), normalizer))


def _letters(words: Counter[str]) -> int:
    """The number of letters, and of all characters outside of ASCII, in words that are there so many times."""
    return sum(count * sum(one.isalpha() or not one.isascii() for one in word) for word, count in words.items())


def _sample(texts: Iterable[str]) -> list[str]:
    """The beginning of every n-th text, with n the least power of 2 that gives at most SAMPLE characters."""
    drawn: list[str] = []
    size, every = 0, 1
    for number, text in enumerate(texts):
        if number % every == 0:
            drawn.append(text[:OF_A_TEXT])
            size += len(drawn[-1])
            if size > SAMPLE:
                drawn, every = drawn[::2], 2 * every
                size = sum(map(len, drawn))
    return drawn
