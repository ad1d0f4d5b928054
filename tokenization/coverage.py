"""What a tokenizer loses of a text: the shares of [UNK], in tokens and in characters, and of stripped accents.

A word of any length becomes one [UNK] if it has a character that the vocabulary lacks or more than 100 characters.
Tokens alone therefore show too little: in text without spaces, one [UNK] in a hundred tokens may be half of the text.

To strip accents, BERT's normalisation decomposes every character (NFD) and drops all non-spacing marks (Mn). In
English this concerns few words. In many scripts these marks are vowels (में becomes म) or tell letters apart (が becomes
か), Hangul falls apart into its letters, and German or Vietnamese words become other words (schön, schon). So whether a
vocabulary strips them is decided by the text that it is learnt from, if the user does not decide it.
"""

import functools
import itertools
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import tokenizers
from tokenizers import normalizers, pre_tokenizers

from .errors import UserError
from .fingerprint import tokenizer_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# From this share of the tokens or of the characters on, [UNK] is worth a warning.
UNKNOWN_FROM = 0.05
# From this share of the letters on, nearly all inputs look the same, and nothing can be learnt from them.
UNUSABLE_FROM = 0.95
# The share of the characters, in words that stripping accents changes, from which it matters. In English Wikipedia it
# changes a quarter of it.
NEGLIGIBLE = 0.01
# The tokenizer encodes a longer word as one [UNK]. It is the limit of every reader of a BERT folder.
MAX_WORD_LENGTH = 100
SEGMENT_FIRST = "put spaces between the words of the text first (docs/tokenization.md)"
# So many characters are encoded to see how much reaches the model, and so many of one text.
SAMPLE, OF_A_TEXT = 1 << 20, 20_000
# The hash of a place is its product with this odd number (Fibonacci hashing), which spreads neighbours evenly.
_ODD, _HASHES = 0x9E3779B97F4A7C15, 1 << 64


class Sample:
    """Texts drawn from all that are added, spread evenly over their places.

    A text is drawn if a hash of its place is low: the lowest ones, as long as they have at most ``characters``, and the
    lowest one in any case. Samples of parts of a text therefore make that of the whole (``merge``), however it was
    divided.

    Args:
        characters: the largest number of characters in the sample, unless its first text alone has more.
        below: draw only hashes below this, if there are any; the part of all hashes, 2^64, that is known to be enough.
    """

    def __init__(self, characters: int = SAMPLE, below: int = _HASHES):
        self._most, self._below = characters, below
        self._drawn: list[tuple[int, str]] = []
        self._characters = self._added = 0
        self._limit = _HASHES  # no text with a higher hash is of use

    def add(self, text: str, place: int | None = None) -> None:
        """Add a text with its place, a number that no other text has, below 2^64; by default how many were added."""
        drawn = (self._added if place is None else place) * _ODD % _HASHES
        self._added += 1
        self.merge([(drawn, text[:OF_A_TEXT])])

    def merge(self, drawn: Iterable[tuple[int, str]]) -> None:
        """Add what another sample has drawn, of the same ``characters`` and ``below``."""
        for number, text in drawn:
            if number > self._limit:
                continue
            self._drawn.append((number, text))
            self._characters += len(text)
            if self._characters > 2 * self._most:
                self._prune()

    @property
    def drawn(self) -> list[tuple[int, str]]:
        """The texts with their hashes, in the order of the hashes."""
        self._prune()
        return self._drawn

    @property
    def texts(self) -> list[str]:
        """The sample."""
        return [text for _, text in self.drawn]

    def _prune(self) -> None:
        self._drawn.sort()
        sums = itertools.accumulate(len(text) for _, text in self._drawn)
        fit = (total <= self._most and number < self._below for total, (number, _) in zip(sums, self._drawn))
        kept = max(1, sum(itertools.takewhile(bool, fit)))
        if kept < len(self._drawn):
            self._limit = self._drawn[kept][0]
            del self._drawn[kept:]
            self._characters = sum(len(text) for _, text in self._drawn)


# --- accents ---------------------------------------------------------------------------------------------------------


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
    example = min(changed, key=lambda word: (-changed[word], word), default=None)
    shown = None if example is None else (example, normalizer.normalize_str(example).strip())
    return stripped, Stripping(_characters(changed) / max(1, _characters(words)), shown)


def _characters(words: Counter[str]) -> int:
    return sum(len(word) * count for word, count in words.items())


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


# --- counts ----------------------------------------------------------------------------------------------------------


@dataclass
class Coverage:
    """Counts over the sample of a text.

    Attributes:
        tokens: tokens without [CLS] and [SEP].
        unknown_tokens: those that are [UNK].
        characters: characters that are no white space.
        unknown_characters: those in [UNK].
        long_characters: those of them in words of more than 100 characters.
        letters: characters that are letters, because almost every vocabulary has digits and punctuation.
        unknown_letters: those in [UNK].
        stripped_characters: those in words that lose a non-spacing mark, such as an accent or a vowel sign.
        example: the most frequent one of these words, before and after.
        unknown: the most frequent string that becomes [UNK], one with letters if there is any, cut to 20 characters.
    """

    tokens: int = 0
    unknown_tokens: int = 0
    characters: int = 0
    unknown_characters: int = 0
    long_characters: int = 0
    letters: int = 0
    unknown_letters: int = 0
    stripped_characters: int = 0
    example: tuple[str, str] | None = None
    unknown: str | None = None

    @property
    def token_share(self) -> float:
        """The share of the tokens that are [UNK]."""
        return self.unknown_tokens / max(1, self.tokens)

    @property
    def character_share(self) -> float:
        """The share of the characters that are in [UNK]."""
        return self.unknown_characters / max(1, self.characters)

    @property
    def stripping(self) -> Stripping:
        """What is stripped."""
        return Stripping(self.stripped_characters / max(1, self.characters), self.example)

    @property
    def is_known(self) -> bool:
        """Whether so little is [UNK] that it needs no warning."""
        return max(self.token_share, self.character_share) < UNKNOWN_FROM

    def facts(self) -> dict[str, Any]:
        """The counts for a JSON file."""
        return asdict(self) | {"example": list(self.example) if self.example else None}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> "Coverage":
        """The counts that ``facts`` wrote."""
        return cls(**facts | {"example": tuple(facts["example"]) if facts["example"] else None})

    def summary(self) -> str:
        """The shares of [UNK] in one clause."""
        characters = f" and holds {self.character_share:.1%} of the characters" if self.characters else ""
        return f"[UNK] is {self.token_share:.1%} of the tokens{characters}"

    def warnings(self, of: str, other_vocabulary: str, keep_accents: str) -> list[str]:
        """One sentence about [UNK] and one about stripped marks, if they concern more than a few words.

        Args:
            of: what the text is called, such as "train".
            other_vocabulary: how the user gets a vocabulary with the characters of the text.
            keep_accents: how the user gets a tokenizer that keeps accents.
        """
        found = []
        if not self.is_known:
            example = f", such as {self.unknown!r}" if self.unknown else ""
            found.append(f"warning: {of}: {self.summary()}{example}; {self.remedies(other_vocabulary)}")
        if self.stripping.matters:
            found.append(f"warning: {of}: accents or vowels are stripped from {self.stripping.text()}; {keep_accents}")
        return found

    def check_usable(self, of: str, other_vocabulary: str) -> None:
        """Refuse a text of which practically all is [UNK]: its inputs look the same, and nothing can be learnt from it.

        Raises:
            UserError: at least 95 % of the letters are in [UNK].
        """
        share = self.unknown_letters / max(1, self.letters)
        if share >= UNUSABLE_FROM:
            raise UserError(
                f"{of}: expected text that the tokenizer knows, but {share:.1%} of its letters are in [UNK], such as "
                f"{self.unknown!r}, so that there is nothing to learn; {self.remedies(other_vocabulary)}"
            )

    def remedies(self, other_vocabulary: str) -> str:
        """What to do about [UNK].

        Args:
            other_vocabulary: how the user gets a vocabulary with the characters of the text.
        """
        return SEGMENT_FIRST if self.long_characters > self.unknown_characters / 2 else other_vocabulary


def coverage(tokenizer: "PreTrainedTokenizerBase", texts: Iterable[str]) -> Coverage:
    """What a tokenizer makes of texts, by a sample of them of about a million characters."""
    sample = Sample()
    for text in texts:
        sample.add(text)
    return coverage_of(tokenizer, sample)


def coverage_of(tokenizer: "PreTrainedTokenizerBase", sample: Sample) -> Coverage:
    """What a tokenizer makes of a sample."""
    return replace(_encoded(tokenizer_json(tokenizer), tokenizer.unk_token_id, tuple(sample.texts)))


@functools.lru_cache(maxsize=8)  # fine-tuning asks for its splits, five at most, again in every run of a series
def _encoded(content: str, unknown_id: int | None, drawn: tuple[str, ...]) -> Coverage:
    """``coverage_of`` the texts of a sample, with the content of a tokenizer.json."""
    backend = tokenizers.Tokenizer.from_str(content)  # a copy, without truncation and padding
    backend.encode_special_tokens = True  # a "[SEP]" in a text is ordinary text
    counts, unknown = Coverage(), Counter[str]()
    for start in range(0, len(drawn), 1000):
        texts = drawn[start : start + 1000]
        for text, encoding in zip(texts, backend.encode_batch(texts, add_special_tokens=False), strict=True):
            _count(counts, unknown, text, encoding, unknown_id)
    if unknown:
        # A letter shows the language, which a mark of punctuation does not.
        counts.unknown = min(unknown, key=lambda text: (not any(map(str.isalpha, text)), -unknown[text], text))
    if backend.normalizer is not None:
        _count_stripped(counts, backend.normalizer, Counter(word for text in drawn for word in text.split()))
    return counts


def _count(
    counts: Coverage, unknown: Counter[str], text: str, encoding: tokenizers.Encoding, unknown_id: int | None
) -> None:
    """Add the tokens and the characters of one text."""
    ids = encoding.ids
    counts.tokens += len(ids)
    counts.characters += sum(map(len, text.split()))
    counts.letters += sum(map(str.isalpha, text))
    if unknown_id not in ids:
        return
    for number, (start, end) in zip(ids, encoding.offsets, strict=True):
        if number == unknown_id:
            while end < len(text) and unicodedata.category(text[end]).startswith("M"):
                end += 1  # a mark that was stripped from the end of the word
            word = text[start:end]
            size = sum(map(len, word.split()))
            counts.unknown_tokens += 1
            counts.unknown_characters += size
            counts.unknown_letters += sum(map(str.isalpha, word))
            counts.long_characters += size if size > MAX_WORD_LENGTH else 0
            unknown[word[:20]] += 1


def _count_stripped(counts: Coverage, normalizer: Any, words: Counter[str]) -> None:
    """Add the words that lose a mark in a normaliser."""
    most = 0
    for word, count in sorted(words.items()):
        if before := marks(word):
            after = normalizer.normalize_str(word).strip()
            if marks(after) < before:
                counts.stripped_characters += len(word) * count
                if count > most:
                    counts.example, most = (word[:20], after[:20]), count


def lost_characters(words: Counter[str], pieces: Iterable[str]) -> list[str]:
    """One sentence for each reason for which 5 % or more of the characters of a learnt text become [UNK].

    Args:
        words: the words as the tokenizer passes them to WordPiece, with their counts.
        pieces: the vocabulary that was learnt from them.
    """
    known = set(pieces)
    characters = long = others = 0
    for word, count in words.items():
        size = len(word) * count
        characters += size
        if len(word) > MAX_WORD_LENGTH:
            long += size
        elif not known.issuperset(word):
            others += size
    found = []
    if long >= UNKNOWN_FROM * characters:
        found.append(
            f"{long / characters:.1%} of the characters are in words of more than {MAX_WORD_LENGTH} characters, which "
            f"become [UNK]; {SEGMENT_FIRST}"
        )
    if others >= UNKNOWN_FROM * characters:
        found.append(
            f"{others / characters:.1%} of the characters are in words with a character that the vocabulary lacks, "
            "which become [UNK]; raise --vocab_size, or --limit_alphabet of bert-repro vocabulary"
        )
    return found
