"""Extend the vocabulary of a BERT tokenizer by the words of a domain. ``bert-repro vocabulary --extend`` does so.

    before   be ##va ##ci ##zu ##ma ##b      6 pieces
    after    bevacizumab                     1 piece, in a row that was [unused0] until now

The new rows are pieces of WordPiece, like all others. Tokens that transformers' ``add_tokens`` adds are none: they
match inside other words, and before the case is lowered. Either a list names the new pieces, or they are chosen: those
whole words and word parts that save the most pieces on a text, one after the other, where each choice changes what the
next one saves. The same text gives the same pieces.
"""

import copy
import heapq
import itertools
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenizers.models import WordPiece

from .coverage import MAX_WORD_LENGTH
from .errors import UserError
from .train_wordpiece import count_words
from .wordpiece import BLANKS, _numbered_lines

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Google's vocabularies have such rows, which its documentation advises to fill with words of one's own.
UNUSED = re.compile(r"[\[<]unused[ _-]?\d+[\]>]", re.IGNORECASE)
ENOUGH = 3  # documents of a word whose numbers are kept; a word in so many is no noise of one of them
FEWEST = 2  # a chosen piece occurs at least so often, in ENOUGH documents if there are so many
# The longest piece: BERT's own have up to 18 characters, and longer names, such as those of chemistry, are two pieces.
# A longer word of ASCII offers no piece, because it is a formula, a sequence or an address.
LONGEST = 30
MOST_WORDS = 200_000  # the most frequent words that the tokenizer splits; pieces are chosen from these
SHOWN = 20


class NewPiece(NamedTuple):
    """A piece that a vocabulary was extended by.

    Attributes:
        row: its id.
        saved: how many pieces fewer the text has because of it, counted when the pieces before it were in use; None
            without a text.
        old: the pieces that it was until then; [UNK] alone if the vocabulary could not spell it.
    """

    piece: str
    row: int
    saved: int | None
    old: list[str]


class Extended(NamedTuple):
    """An extended tokenizer.

    Attributes:
        tokenizer: a copy of the tokenizer, with the new pieces.
        pieces: the new pieces, in the order of their choice.
        filled: how many of them are in rows that were unused.
        before, after: the number of pieces of the text with the old and with the new vocabulary.
        words: the number of words of the text.
        counts: how often each piece occurs in the text with the new vocabulary.
    """

    tokenizer: "PreTrainedTokenizerBase"
    pieces: list[NewPiece]
    filled: int
    before: int
    after: int
    words: int
    counts: dict[str, int]

    def facts(self) -> dict[str, Any]:
        """What a JSON file should record of it."""
        counts = {"in_unused_rows": self.filled, "appended": len(self.pieces) - self.filled}
        text = {"words": self.words, "pieces_before": self.before, "pieces_after": self.after} if self.words else {}
        return counts | text | {"saved": {new.piece: new.saved for new in self.pieces}}

    def summary(self) -> list[str]:
        """What the user should read of it, in lines."""
        appended = len(self.pieces) - self.filled
        shown = (f"{new.piece} ({self._use(new)}was {' '.join(new.old)})" for new in self.pieces[:SHOWN])
        more = f", and {len(self.pieces) - SHOWN:,} more" if len(self.pieces) > SHOWN else ""
        lines = [
            f"{len(self.pieces):,} new pieces, {self.filled:,} in unused rows and {appended:,} appended: "
            f"{', '.join(shown)}{more}"
        ]
        if self.words:
            lines.append(
                f"pieces a word: {self.before / self.words:.4f} before, {self.after / self.words:.4f} with them"
            )
        if unseen := sum(new.saved == 0 and self.counts.get(new.piece, 0) < FEWEST for new in self.pieces):
            lines.append(f"warning: {unseen:,} of the new pieces save nothing on this text, which hardly teaches them")
        return lines

    def _use(self, new: NewPiece) -> str:
        """What a piece is good for: fewer pieces, or a word that could not be spelled."""
        if new.saved is None:
            return ""
        count = self.counts.get(new.piece, 0)
        return f"occurs {count:,} times, " if count and not new.saved else f"saves {new.saved:,}, "


class Words(NamedTuple):
    """The words of a text with their counts, and the numbers of the first ENOUGH documents that have each of them."""

    counts: Counter[str]
    documents: dict[str, tuple[int, ...]]


class WordList(NamedTuple):
    """The new pieces that a list names, and one remark on each line that is left out or read in another way."""

    pieces: list[str]
    remarks: list[str]


def extend_vocabulary(
    tokenizer: "PreTrainedTokenizerBase",
    texts: Iterable[str | None] | Words | None,
    new: int | Sequence[str],
) -> Extended:
    """Extend a tokenizer, which stays as it is itself.

    Args:
        texts: the text on which pieces are saved, with None at the end of each document, or its words
            (``count_mixed_words``); None if a list is given and nothing is to be counted.
        new: how many pieces to choose, or the pieces (``read_words``).

    Raises:
        ValueError: the tokenizer is not one of BERT, or the text offers fewer pieces.
    """
    rules = _rules(tokenizer)
    known = set(wordpieces(tokenizer))
    documents: dict[str, tuple[int, ...]] = {}
    if isinstance(texts, Words):
        words, documents = texts
    else:
        words = count_documents(texts or (), documents, *rules)
    before = _pieces_of(words, known).total()
    saved: dict[str, int | None]
    if isinstance(new, int):
        assert texts is not None
        saved = dict(choose_pieces(words, known, new, tokenizer.get_vocab(), documents))
    else:
        saved = _measure(words, known, new)
    if texts is None:
        saved = dict.fromkeys(saved)
    rows = _rows_for(tokenizer, list(saved))
    filled = sum(row < len(tokenizer) for row in rows)
    extended = copy.deepcopy(tokenizer)
    put_pieces(extended, rows)
    unknown = [str(tokenizer.unk_token)]
    pieces = [NewPiece(piece, row, saved[piece], split_piece(piece, known) or unknown) for row, piece in rows.items()]
    counts = _pieces_of(words, known | set(saved), *unknown)
    return Extended(extended, pieces, filled, before, counts.total(), words.total(), dict(counts))


def count_mixed_words(
    tokenizer: "PreTrainedTokenizerBase", sources: Iterable[Iterable[str | None]], shares: Sequence[float]
) -> Words:
    """The words of a text of which each source has its share.

    Only counts are made smaller: those of the source that is read most often, for its size, stay. So a word that occurs
    once has a count of at most 1.
    """
    documents: dict[str, tuple[int, ...]] = {}
    counts = [count_documents(texts, documents, *_rules(tokenizer)) for texts in sources]
    rates = [share / max(1, words.total()) for words, share in zip(counts, shares, strict=True)]
    mixed: dict[str, float] = {}
    for words, rate in zip(counts, rates):
        for word, count in words.items():
            mixed[word] = mixed.get(word, 0.0) + count * (rate / max(rates))
    return Words(Counter({word: whole for word, count in mixed.items() if (whole := round(count))}), documents)


def count_documents(
    texts: Iterable[str | None],
    documents: dict[str, tuple[int, ...]],
    do_lower_case: bool = True,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
) -> Counter[str]:
    """The words of ``texts``, in which None ends a document.

    Args:
        documents: gets the numbers of the first ``ENOUGH`` documents of each word. Words that it has already are of
            earlier documents.
        do_lower_case: see ``count_words``, as for the others.
    """
    words, lines = Counter[str](), iter(texts)
    for number in itertools.count(1 + max((seen[-1] for seen in documents.values()), default=0)):
        first = next(lines, ...)  # ... at the end
        if first is ...:
            return words
        others = itertools.takewhile(lambda line: line is not None, lines) if first is not None else ()
        found = count_words(filter(None, [first, *others]), do_lower_case, strip_accents, tokenize_chinese_chars)
        words.update(found)
        for word in found:
            seen = documents.get(word, ())
            documents[word] = (*seen, number) if len(seen) < ENOUGH else seen
    raise AssertionError("the numbers never end")


def check_extendable(tokenizer: "PreTrainedTokenizerBase") -> None:
    """Raise ValueError if the tokenizer is not one of BERT, whose vocabulary is the only kind that can be extended."""
    _rules(tokenizer)


# --- a list of words ----------------------------------------------------------------------------------------------


def read_words(path: str | PathLike[str], tokenizer: "PreTrainedTokenizerBase") -> WordList:
    """The new pieces that a list names: one word a line, or a word part that begins with ##.

    A line is left out, with a remark, if it is a piece already, stands there twice, has white space or more than 100
    characters, or is split by the tokenizer, whatever its vocabulary.

    Raises:
        ValueError: the file is not UTF-8, or names no new piece.
        OSError: there is no such file.
    """
    _rules(tokenizer)
    known, seen, remarks, left_out = tokenizer.get_vocab(), dict[str, int](), list[str](), 0
    for number, line in _numbered_lines(path):
        if not (word := line.strip(BLANKS)):
            continue
        place = f"{path}:{number}"
        is_part = word.startswith("##") and len(word) > 2
        parts = _words(tokenizer, word[2:] if is_part else word)
        piece = ("##" if is_part else "") + "".join(parts)
        problem = f"it is in line {seen[piece]}" if piece in seen else _problem(word, parts, piece in known)
        if problem:
            remarks.append(f"{place}: {word!r} is left out: {problem}")
            left_out += 1
            continue
        seen[piece] = number
        if piece != word:
            remarks.append(f"{place}: {word!r} becomes the piece {piece!r}, as the tokenizer reads it")
    if not seen:
        raise UserError(f"{path}: expected words that can become pieces, one a line, found none; {_first(remarks)}")
    return WordList(list(seen), remarks)


def _problem(word: str, parts: list[str], known: bool) -> str | None:
    if len(word) > MAX_WORD_LENGTH:
        return f"the tokenizer makes [UNK] of words of more than {MAX_WORD_LENGTH} characters"
    if any(char.isspace() for char in word):
        return "it has white space, and a piece is one word"
    if not parts:
        return "the tokenizer removes all of its characters"
    if len(parts) > 1:
        return f"the tokenizer splits it into {' '.join(parts)} before it looks for pieces"
    return "it is a piece already" if known else None


def _first(remarks: list[str]) -> str:
    return f"for example, {remarks[0]}" if remarks else "the file is empty"


def remarks_in_lines(remarks: Sequence[str]) -> list[str]:
    """The first remarks, and how many more there are."""
    rest = len(remarks) - SHOWN
    return [*remarks[:SHOWN], *([f"and {rest:,} more remarks on that list"] if rest > 0 else [])]


# --- the choice ---------------------------------------------------------------------------------------------------


def choose_pieces(
    words: Mapping[str, int],
    known: Collection[str],
    number: int,
    taken: Collection[str] = (),
    documents: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> list[tuple[str, int]]:
    """The pieces that save the most, and how many pieces each of them saves.

    A candidate is any part of a word that is two or more of its present pieces. Of candidates that save equally many,
    whole words come before word parts, and then the order of the alphabet decides.

    Args:
        words: words, as the tokenizer passes them to WordPiece, with their counts.
        known: the pieces of the vocabulary.
        number: how many pieces to choose.
        taken: texts that have a row already and are no candidates, such as tokens that were added.
        documents: see ``Words``; without them, a piece may be of one document.

    Raises:
        ValueError: the text offers fewer.
    """
    text = _Segmented(words, set(known))
    fewest = ENOUGH if len({one for seen in documents.values() for one in seen}) >= ENOUGH else 0
    chosen: list[tuple[str, int]] = []
    heap = [_entry(piece, score) for piece, score in text.scores.items()]
    heapq.heapify(heap)
    while heap and len(chosen) < number:
        score, _, piece = heapq.heappop(heap)
        if text.scores.get(piece) != -score:
            continue  # it has changed since, and is in the heap again
        affected = text.affected(piece)
        saved = sum(text.counts[word] * (len(text.pieces[word]) - len(now)) for word, now in affected)
        occurrences = sum(text.counts[word] * now.count(piece) for word, now in affected)
        seen = {one for word, _ in affected for one in documents.get(text.words[word], ())}
        if saved < FEWEST or occurrences < FEWEST or len(seen) < fewest or piece in taken:
            del text.scores[piece]
        elif saved < -score:  # somewhere it ends inside of another piece
            text.scores[piece] = saved
            heapq.heappush(heap, _entry(piece, saved))
        else:
            chosen.append((piece, saved))
            for changed in text.take(piece, affected):
                if score := text.scores.get(changed, 0):
                    heapq.heappush(heap, _entry(changed, score))
    if len(chosen) < number:
        remedy = f"ask for at most {len(chosen):,}" if chosen else "leave the vocabulary as it is"
        raise UserError(
            f"expected text that offers {number:,} new pieces, but only {len(chosen):,} words and word parts of up to "
            f"{LONGEST} characters that the tokenizer splits occur {FEWEST} times or more"
            f"{f', in {fewest} documents' * bool(fewest)}; {remedy}, or give more text"
        )
    return chosen


def _entry(piece: str, score: int) -> tuple[int, bool, str]:
    return -score, piece.startswith("##"), piece


class _Segmented:
    """The words that a vocabulary splits, with their pieces, and what each candidate would save.

    Attributes:
        counts: how often each word occurs.
        pieces: the pieces of each word.
        scores: candidate -> the number of pieces that it saves, if it ends where a present piece ends.
    """

    def __init__(self, words: Mapping[str, int], known: set[str]):
        self.known = known
        found = []
        for word, count in words.items():
            pieces = split_piece(word, known)
            if len(pieces) > 1:
                found.append((-count, word, pieces))
        found = sorted(found)[:MOST_WORDS]
        self.words = [word for _, word, _ in found]
        self.counts = [-count for count, _, _ in found]
        self.pieces = [pieces for _, _, pieces in found]
        # All words in one string: to search it takes a thousandth of the time of a loop over the words.
        self._text = "\n" + "".join(f"{word}\n" for word in self.words)
        self._starts = [0]
        for word in self.words:
            self._starts.append(self._starts[-1] + len(word) + 1)
        self.scores: dict[str, int] = {}
        for number in range(len(self.words)):
            self._count(number, 1)

    def affected(self, piece: str) -> list[tuple[int, list[str]]]:
        """The words in which the piece would occur, by their numbers, with the pieces that they would have then."""
        extended, found = _With(self.known, piece), []
        for number in self._numbers(piece):
            now = split_piece(self.words[number], extended)
            if piece in now:
                found.append((number, now))
        return found

    def take(self, piece: str, affected: list[tuple[int, list[str]]]) -> set[str]:
        """Add a piece to the vocabulary; return the candidates whose scores have changed."""
        self.known.add(piece)
        changed: set[str] = set()
        for number, now in affected:
            changed |= self._count(number, -1)
            self.pieces[number] = now
            changed |= self._count(number, 1)
        self.scores.pop(piece, None)
        return changed

    def _numbers(self, piece: str) -> Iterator[int]:
        is_part = piece.startswith("##")
        sought = piece[2:] if is_part else f"\n{piece}"
        place, last = self._text.find(sought), -1
        while place >= 0:
            number = bisect_right(self._starts, place) - 1
            inside = place - self._starts[number] > 1
            if number != last and inside == is_part:
                yield number
                last = number
            place = self._text.find(sought, place + 1)

    def _count(self, number: int, sign: int) -> set[str]:
        pieces, count = self.pieces[number], self.counts[number] * sign
        changed: set[str] = set()
        if len(self.words[number]) > LONGEST and self.words[number].isascii():
            return changed
        for first in range(len(pieces) - 1):
            candidate = pieces[first]
            for last in range(first + 1, len(pieces)):
                candidate += pieces[last].removeprefix("##")
                if len(candidate.removeprefix("##")) > LONGEST:
                    break
                score = self.scores.get(candidate, 0) + count * (last - first)
                if score > 0:
                    self.scores[candidate] = score
                else:
                    self.scores.pop(candidate, None)
                changed.add(candidate)
        return changed


class _With:
    """A set with one element more, without a copy."""

    def __init__(self, known: set[str], piece: str):
        self._known, self._piece = known, piece

    def __contains__(self, piece: object) -> bool:
        return piece == self._piece or piece in self._known


def split_piece(piece: str, known: Any) -> list[str]:
    """A word, or a word part that begins with ##, in pieces by the longest match; [] if it cannot be covered."""
    prefix = "##" if piece.startswith("##") and len(piece) > 2 else ""
    text = piece.removeprefix(prefix)
    pieces: list[str] = []
    start = 0
    if len(text) > MAX_WORD_LENGTH:
        return []
    while start < len(text):
        end = len(text)
        while end > start and prefix + text[start:end] not in known:
            end -= 1
        if end == start:
            return []
        pieces.append(prefix + text[start:end])
        start, prefix = end, "##"
    return pieces


def _pieces_of(words: Mapping[str, int], known: Collection[str], unknown: str = "[UNK]") -> Counter[str]:
    """The pieces of a text, counted; a word that cannot be covered is ``unknown``."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for piece in split_piece(word, known) or [unknown]:
            counts[piece] += count
    return counts


def _measure(words: Mapping[str, int], known: set[str], listed: Sequence[str]) -> dict[str, int | None]:
    """What the pieces of a list save, each after those before it."""
    text = _Segmented(words, set(known))
    saved: dict[str, int | None] = {}
    for piece in listed:
        affected = text.affected(piece)
        saved[piece] = sum(text.counts[word] * (len(text.pieces[word]) - len(now)) for word, now in affected)
        text.take(piece, affected)
    return saved


# --- the tokenizer ------------------------------------------------------------------------------------------------


def wordpieces(tokenizer: "PreTrainedTokenizerBase") -> dict[str, int]:
    """The pieces of a tokenizer that texts can become: its vocabulary without added and unused ones."""
    added = {token.content for token in tokenizer.added_tokens_decoder.values()}
    vocabulary = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
    return {piece: row for piece, row in vocabulary.items() if piece not in added and not UNUSED.fullmatch(piece)}


def put_pieces(tokenizer: "PreTrainedTokenizerBase", pieces: Mapping[int, str]) -> None:
    """Put pieces into rows of a tokenizer's vocabulary, which may also be the first rows after its last."""
    backend = tokenizer.backend_tokenizer
    old = backend.model
    # Added tokens behind the vocabulary become rows of it, so that they keep their ids whatever follows them.
    appended = max(pieces, default=-1) > max(backend.get_vocab(with_added_tokens=False).values(), default=-1)
    rows = {row: piece for piece, row in backend.get_vocab(with_added_tokens=appended).items()} | dict(pieces)
    vocabulary = {piece: row for row, piece in sorted(rows.items())}
    backend.model = WordPiece(
        vocabulary,
        unk_token=old.unk_token,
        max_input_chars_per_word=old.max_input_chars_per_word,
        continuing_subword_prefix=old.continuing_subword_prefix,
    )
    if hasattr(tokenizer, "_vocab"):
        tokenizer._vocab = vocabulary


def _free_rows(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """The unused rows, in the order of their ids."""
    added = {token.content for token in tokenizer.added_tokens_decoder.values()}
    vocabulary = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
    return sorted(row for piece, row in vocabulary.items() if UNUSED.fullmatch(piece) and piece not in added)


def _rows_for(tokenizer: "PreTrainedTokenizerBase", pieces: list[str]) -> dict[int, str]:
    """New pieces by their rows: first the unused ones, then those after the last."""
    rows = _free_rows(tokenizer)[: len(pieces)]
    end = max(tokenizer.get_vocab().values(), default=-1) + 1
    return dict(zip([*rows, *range(end, end + len(pieces) - len(rows))], pieces, strict=True))


def _rules(tokenizer: "PreTrainedTokenizerBase") -> tuple[bool, bool | None, bool]:
    """(lower_case, strip_accents, tokenize_chinese_chars) of a tokenizer of BERT. Raises ValueError for others."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    normalizer: Any = getattr(backend, "normalizer", None)
    of_bert = all(hasattr(normalizer, name) for name in ("lowercase", "strip_accents", "handle_chinese_chars"))
    if backend is None or not of_bert or type(backend.model) is not WordPiece:
        kind = type(tokenizer).__name__ if backend is None else type(backend.model).__name__
        raise UserError(
            f"expected a WordPiece tokenizer of BERT, whose vocabulary can be extended, got another kind ({kind}); "
            "register words with tokenizer.add_tokens and model.resize_token_embeddings instead"
        )
    return normalizer.lowercase, normalizer.strip_accents, normalizer.handle_chinese_chars


def _words(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[str]:
    """The words that the tokenizer passes to WordPiece."""
    backend = tokenizer.backend_tokenizer
    parts = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))
    return [part for part, _ in parts]
