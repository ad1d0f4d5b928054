"""What is lost when accents are stripped: in Latin text an accent, in Devanagari a vowel.

To strip accents, BERT's normalisation decomposes every character (NFD) and drops all non-spacing marks (Mn). In
English this concerns few words. In many scripts these marks are vowels (में becomes म) or tell letters apart (が becomes
か), Hangul falls apart into its letters, and German or Vietnamese words become other words (schön, schon). So whether a
vocabulary strips them is decided by the text that it is learnt from, if the user does not decide it.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tokenizers import normalizers, pre_tokenizers

# The share of the words that stripping may change before it matters. In English Wikipedia, it changes a quarter of it.
# It is the same for characters of scripts other than Latin: a text without spaces has few words for its length, so that
# words alone would not show it among others.
NEGLIGIBLE = 0.01


class Stripping(NamedTuple):
    """What stripping accents changes in a text.

    Attributes:
        share: the share of the words that it changes.
        example: the most frequent one of them, before and after; None if there is none.
        other_share: the share of the characters in scripts other than Latin that are in words that it changes; 0 if
            less than a negligible share of the text is in such scripts.
        other_example: the most frequent one of these words, before and after; None if there is none.
    """

    share: float
    example: tuple[str, str] | None
    other_share: float = 0.0
    other_example: tuple[str, str] | None = None

    @property
    def matters(self) -> bool:
        """Whether more than a negligible share of the words, or of the text in other scripts, would change."""
        return max(self.share, self.other_share) >= NEGLIGIBLE

    def text(self) -> str:
        """The share that matters, and the example with its script."""
        if self.share < NEGLIGIBLE <= self.other_share:
            of = "words with {:.1%} of the characters in scripts other than Latin"
            return stripping_text(self.other_share, *(self.other_example or ("", "")), of=of)
        return stripping_text(self.share, *(self.example or ("", "")))


def share_of_others(changed: int, others: int, characters: int) -> float:
    """The share ``Stripping.other_share``.

    Args:
        changed: characters of the words of other scripts that change.
        others: characters of all words of other scripts.
        characters: characters of the text.
    """
    return changed / others if others and others >= NEGLIGIBLE * characters else 0.0


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
    split = pre_tokenizers.BertPreTokenizer()
    stripped: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    for word, count in words.items():
        parts = [part for part, _ in split.pre_tokenize_str(normalizer.normalize_str(word))]
        for part in parts:
            stripped[part] += count
        kept = without_selectors(word)  # nothing of a selector behind punctuation, which is a word of its own
        if parts != ([kept] if kept else []):
            changed[word] = count

    def example(some: Iterable[str]) -> tuple[str, str] | None:
        word = min(some, key=lambda word: (-changed[word], word), default=None)
        return None if word is None else (word, normalizer.normalize_str(word).strip())

    others = {word for word in words if is_of_other_script(word)}
    other_share = share_of_others(
        sum(len(word) * changed[word] for word in others),
        sum(len(word) * words[word] for word in others),
        sum(len(word) * count for word, count in words.items()),
    )
    share = changed.total() / max(1, words.total())
    return stripped, Stripping(share, example(changed), other_share, example(others & changed.keys()))


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
    """The script of the first letter in a word that carries a mark, as its Unicode name says: "Devanagari"."""
    letter = ""
    for char in unicodedata.normalize("NFC", word):
        if char.isalpha():
            letter = char
        if letter and marks(char):
            break
    return unicodedata.name(letter, "UNKNOWN").split()[0].capitalize() if letter else "Unknown"


def is_of_other_script(word: str) -> bool:
    """Whether the word has letters, and they are not Latin."""
    return not word.isascii() and script_of(word) not in ("Latin", "Unknown")


def stripping_text(share: float, before: str, after: str, of: str = "{:.1%} of the words") -> str:
    """A share of the words, and an example with its script: "61.2% of the words (Devanagari: में becomes म)"."""
    shown = f" ({script_of(before)}: {before[:20]} becomes {after[:20] or 'nothing'})" if before else ""
    return of.format(share) + shown
