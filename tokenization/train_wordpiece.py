"""Learn a WordPiece vocabulary from texts. ``bert-repro vocabulary`` does so from files.

The ``tokenizers`` library learns the pieces by byte-pair merges; those inside a word begin with "##" (Google never
published its own trainer). The same text always gives the same vocabulary. The library alone does not guarantee this:
it numbers the "##x" pieces in the order of a hash map that is seeded anew in each process, and breaks ties by these
numbers. Therefore words are counted here, and every single character gets its number before the library sees a word.
"""

import bisect
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from .coverage import MAX_WORD_LENGTH, strip_words
from .errors import UserError

LAYOUTS = {
    # Rows 0 to 103 of Google's uncased vocabulary. Its other unused rows, 104 to 998, are given to pieces.
    "google": ["[PAD]", *(f"[unused{number}]" for number in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "compact": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
}
# In a smaller vocabulary, the 99 unused rows would be about a tenth of it or more.
GOOGLE_LAYOUT_FROM = 1000
# The characters that are kept unless rows stay free.
ALPHABET = 1000
# The number of distinct space-separated strings that are kept before their words are counted; it bounds the memory.
RAW_LIMIT = 500_000

CountsWords = Callable[[bool, bool | None, bool], Counter[str]]

logger = logging.getLogger(__name__)


def train_wordpiece(
    texts: Iterable[str],
    vocab_size: int,
    *,
    output_dir: str | os.PathLike[str] | None = None,
    do_lower_case: bool = True,
    strip_accents: bool | None = None,
    layout: str | None = None,
    min_frequency: int = 2,
    limit_alphabet: int | None = None,
    progress: bool = True,
    tokenize_chinese_chars: bool = True,
    count: CountsWords | None = None,
) -> list[str]:
    """Learn a vocabulary and return its pieces in the order of their ids.

    Args:
        texts: a list, a generator, the column of a data set. ``bert_tools.vocabulary: learn_vocabulary``
            reads them from files.
        vocab_size: number of rows of the vocabulary, including special and unused ones. It becomes smaller, with a
            warning, if no more pairs of pieces occur ``min_frequency`` times.
        output_dir: also save a tokenizer there (vocab.txt, tokenizer.json, tokenizer_config.json).
        do_lower_case: lower the case.
        strip_accents: drop accents and all other non-spacing marks. None: keep them if the case is kept; otherwise,
            drop them unless that changes more than a negligible share of the words of the text, as it does in scripts
            whose vowels are such marks. What the text decided is logged, and is written into the saved tokenizer.
        layout: "google" ([PAD] 0, [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103, [unused] rows between [PAD] and [UNK]),
            "compact" ([PAD] 0 to [MASK] 4), or None, which means google for 1,000 rows or more.
        min_frequency: how often a pair of pieces must occur to become one piece.
        limit_alphabet: number of characters to keep, the most frequent ones (on a tie, those with lower code points).
            A word with another character becomes [UNK]. Default: 1,000, and more of them where rows would stay free,
            as in a vocabulary of Chinese.
        progress: show a progress bar of the merges if standard error is a terminal.
        tokenize_chinese_chars: make each CJK ideograph a word. False is for texts with spaces between their words.
        count: counts the words in place of ``count_words``, from its last three arguments; ``texts`` are not read then.

    Raises:
        ValueError: there are no words, or ``vocab_size`` rows cannot hold the alphabet.
    """
    if layout is None:
        layout = "google" if vocab_size >= GOOGLE_LAYOUT_FROM else "compact"
    count = count or partial(count_words, texts)
    words, strip_accents = _words_and_accents(count, do_lower_case, strip_accents, tokenize_chinese_chars)
    characters = _by_frequency(words)
    learn = partial(_learn, words, characters, vocab_size, LAYOUTS[layout], min_frequency, progress)
    pieces = learn(limit_alphabet or ALPHABET)
    if limit_alphabet is None and len(pieces) < vocab_size and len(characters) > ALPHABET:
        pieces = learn(_larger_alphabet(words, characters, vocab_size - len(pieces)))
    if len(pieces) < vocab_size:
        logger.warning("the text gave %d rows, fewer than the %d asked for", len(pieces), vocab_size)
    if output_dir is not None:
        from .bert_tokenizer import build_tokenizer

        tokenizer = build_tokenizer(
            pieces,
            do_lower_case=do_lower_case,
            tokenize_chinese_chars=tokenize_chinese_chars,
            strip_accents=strip_accents,
        )
        tokenizer.save_pretrained(output_dir)
    return pieces


def _words_and_accents(
    count: CountsWords, do_lower_case: bool, strip_accents: bool | None, tokenize_chinese_chars: bool
) -> tuple[Counter[str], bool | None]:
    """(the words of the texts, whether accents are stripped: None means the value of ``do_lower_case``)."""
    undecided = do_lower_case and strip_accents is None  # the words decide, so they are counted with their accents
    words = count(do_lower_case, False if undecided else strip_accents, tokenize_chinese_chars)
    if not undecided:
        return words, strip_accents
    stripped, stripping = strip_words(words, tokenize_chinese_chars)
    if not stripping.matters:
        return stripped, None
    logger.warning(
        "accents and vowel signs are kept, because stripping them would change %s; bert-repro vocabulary "
        "--strip_accents true strips them all the same",
        stripping.text(),
    )
    return words, False


def count_words(
    texts: Iterable[str],
    do_lower_case: bool = True,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
) -> Counter[str]:
    """Count the words that BertTokenizer passes to WordPiece: cleaned, and split at spaces and punctuation.

    Cleaning never depends on what is beyond a space, so each distinct string between spaces is cleaned once. Memory
    grows with the number of distinct words, not with the length of the texts.

    Args:
        strip_accents: None means the value of ``do_lower_case``.

    Raises:
        UnicodeEncodeError: a text has a lone surrogate.
    """
    normalizer = normalizers.BertNormalizer(
        lowercase=do_lower_case, strip_accents=strip_accents, handle_chinese_chars=tokenize_chinese_chars
    )
    split = pre_tokenizers.BertPreTokenizer()
    words: Counter[str] = Counter()
    raw: Counter[str] = Counter()

    def fold() -> None:
        for string, count in raw.items():
            for word, _ in split.pre_tokenize_str(normalizer.normalize_str(string)):
                words[word] += count
        raw.clear()

    for text in texts:
        text.encode()  # a lone surrogate is an error here, and no [UNK] later
        # str.split() without a separator would also split at control characters, which the normaliser deletes.
        raw.update(text.replace("\n", " ").replace("\t", " ").replace("\r", " ").split(" "))
        if len(raw) > RAW_LIMIT:
            fold()
    fold()
    return words


def _by_frequency(words: Counter[str]) -> list[str]:
    """The characters of the words, the most frequent first."""
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    if not characters:
        raise UserError("expected text with words, got none")
    return sorted(characters, key=lambda character: (-characters[character], character))


def _usable(words: Counter[str], alphabet: set[str]) -> tuple[list[str], list[str]]:
    """(the words that consist of the alphabet, the pieces of one character that continue them)."""
    usable = sorted(word for word in words if len(word) <= MAX_WORD_LENGTH and alphabet.issuperset(word))
    return usable, sorted({"##" + character for word in usable for character in word[1:]})


def _larger_alphabet(words: Counter[str], characters: list[str], free: int) -> int:
    """The largest alphabet that needs at most ``free`` rows more than one of ``ALPHABET`` characters."""

    def rows(size: int) -> int:
        return size + len(_usable(words, set(characters[:size]))[1])

    budget = rows(ALPHABET) + free
    return bisect.bisect_right(range(len(characters) + 1), budget, lo=ALPHABET + 1, key=rows) - 1


def _learn(
    words: Counter[str],
    characters: list[str],
    vocab_size: int,
    rows: list[str],
    min_frequency: int,
    progress: bool,
    limit_alphabet: int,
) -> list[str]:
    """The pieces learnt from words and their counts, after the fixed ``rows`` of the layout."""
    alphabet = set(characters[:limit_alphabet])
    usable, continuations = _usable(words, alphabet)
    fixed = [*rows, *sorted(alphabet), *continuations]
    if len(fixed) > vocab_size:
        raise UserError(
            f"--vocab_size: {len(rows)} special rows, {len(alphabet)} characters and {len(continuations)} '##' "
            f"characters need {len(fixed)}, got {vocab_size}; raise it, or learn the "
            f"vocabulary with bert-repro vocabulary and --limit_alphabet below {len(alphabet)}"
        )
    model = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=fixed,
        show_progress=progress and sys.stderr.isatty(),
    )
    model.train_from_iterator(_repeat(usable, words), trainer)
    vocab = model.get_vocab()
    return sorted(vocab, key=vocab.__getitem__)


def _repeat(usable: list[str], words: Counter[str], chunk: int = 10_000) -> Iterator[str]:
    """Yield each word as often as it occurred, in texts of about ``chunk`` words: the library accepts no counts."""
    pending: list[str] = []
    for word in usable:
        full, rest = divmod(words[word], chunk)
        for _ in range(full):
            yield " ".join([word] * chunk)
        pending += [word] * rest
        if len(pending) >= chunk:
            yield " ".join(pending)
            pending = []
    yield " ".join(pending)
