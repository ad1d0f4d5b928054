"""Vocabularies compared row by row: vocab.txt with tokenizer.json, and a tokenizer with that of the weights.

A network knows only numbers. With another piece in a row it computes on, and nothing but a bad result shows it.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from bert_training.files.harmless_output import say
from tokenization.errors import UserError
from tokenization.extend_vocabulary import UNUSED
from tokenization.wordpiece import BLANKS

NAMED = 10
SETTINGS = {"lowercase": "do_lower_case", "strip_accents": "strip_accents"}


class Difference(NamedTuple):
    """The first row in which two vocabularies differ. A piece is None where its vocabulary has no such row."""

    row: int
    expected: str | None
    found: str | None


class Compared(NamedTuple):
    """What a comparison of two vocabularies found.

    Attributes:
        words: rows that are unused in the first vocabulary, and the words that the second one has there.
        added: rows after the last one of the first vocabulary.
        difference: the first row that differs in another way; None if there is none.
    """

    words: dict[int, str]
    added: dict[int, str]
    difference: Difference | None


def rows_of(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """The pieces of a tokenizer by their ids, with added tokens."""
    return {number: piece for piece, number in tokenizer.get_vocab().items()}


def compare(expected: Mapping[int, str], found: Mapping[int, str]) -> Compared:
    """Compare two vocabularies, which map ids to pieces.

    A row of ``expected`` that is unused may hold a word in ``found``, and ``found`` may have more rows.
    """
    words: dict[int, str] = {}
    added: dict[int, str] = {}
    end = max(expected, default=-1)
    for row in sorted({*expected, *found}):
        there, here = expected.get(row), found.get(row)
        if there is None and here is not None and row > end:
            added[row] = here
        elif there != here:
            if there is None or here is None or not UNUSED.fullmatch(there) or UNUSED.fullmatch(here):
                return Compared(words, added, Difference(row, there, here))
            words[row] = here
    return Compared(words, added, None)


def shown(piece: str | None) -> str:
    """A piece in an error message."""
    return "no piece" if piece is None else f"{piece!r:.60}"


def named(words: Mapping[int, str]) -> str:
    """How many rows these are, and the first of them; up to ten are named."""
    told = ", ".join(f"{row}: {shown(word)}" for row, word in itertools.islice(words.items(), NAMED))
    more = f" and {len(words) - NAMED:,} more" if len(words) > NAMED else ""
    return f"{len(words):,} {'row' if len(words) == 1 else 'rows'} ({told}{more})"


# --- vocab.txt beside tokenizer.json ---------------------------------------------------------------------------------


def words_of_the_user(path: Path, pieces: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """The words that vocab.txt has in rows that the tokenizer.json beside it calls unused.

    Args:
        path: vocab.txt, whose rows are ``pieces``. It may end before the added tokens of tokenizer.json.
        tokenizer: what transformers makes of tokenizer.json.

    Raises:
        ValueError: the two differ in another way.
    """
    rows = rows_of(tokenizer)
    # Other programs write pieces with blanks at their ends, which reading the file strips.
    rows |= {row: piece for row, piece in enumerate(pieces) if rows.get(row, "").strip(BLANKS) == piece}
    last = max(tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False).values(), default=-1)
    needed = {row: piece for row, piece in rows.items() if row < len(pieces) or row <= last}
    compared = compare(needed, dict(enumerate(pieces)))
    difference = compared.difference
    if compared.added:
        row, piece = next(iter(compared.added.items()))
        difference = difference or Difference(row, None, piece)
    repeated = next(((row, word) for row, word in compared.words.items() if word in tokenizer.get_vocab()), None)
    if repeated and not difference:
        difference = Difference(repeated[0], rows[repeated[0]], repeated[1])
    if difference:
        row, there, here = difference
        raise UserError(
            f"{path}: line {row + 1} holds {shown(here)}, but tokenizer.json beside it has {shown(there)} with the id "
            f"{row}, and that is what transformers uses; delete the one of the two files that is wrong. Only rows that "
            "tokenizer.json calls [unused...] may hold other pieces, words that are nowhere else in the vocabulary"
        )
    return compared.words


def never_produced(tokenizer: PreTrainedTokenizerBase, words: Mapping[int, str]) -> dict[int, str]:
    """Those of the words that the tokenizer makes of no text, because its rules change or split them first."""
    backend, found = tokenizer.backend_tokenizer, {}
    longest = backend.model.max_input_chars_per_word
    for row, word in words.items():
        text = word.removeprefix(backend.model.continuing_subword_prefix)
        normalised = backend.normalizer.normalize_str(text) if backend.normalizer else text
        parts = backend.pre_tokenizer.pre_tokenize_str(normalised) if backend.pre_tokenizer else [(normalised, None)]
        if [part for part, _ in parts] != [text] or len(text) > longest:
            found[row] = word
    return found


# --- a tokenizer beside the weights of another folder ----------------------------------------------------------------


def check_rows(
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    own: PreTrainedTokenizerBase,
    weights: str,
    flag: str = "--tokenizer_name",
) -> None:
    """Compare a tokenizer with that of the weights, and print what they may differ in.

    Args:
        name: where the tokenizer is from, as the user named it.
        own: the tokenizer beside the weights.
        weights: the name of their checkpoint.
        flag: the flag that named the tokenizer.

    Raises:
        ValueError: a row of the vocabulary differs that is not an unused one of ``own``, or the tokenizer ends before.
    """
    compared = compare(rows_of(own), rows_of(tokenizer))
    if compared.difference:
        row, there, here = compared.difference
        raise UserError(
            f"{flag} {name}: {shown(here)} has the id {row}, but for the weights of {weights} that id "
            f"stands for {shown(there)}; leave out {flag}, or give the tokenizer that the model was "
            "trained with"
        )
    for role in ("pad_token_id", "unk_token_id", "cls_token_id", "sep_token_id", "mask_token_id"):
        number, of_weights = getattr(tokenizer, role), getattr(own, role)
        if None not in (number, of_weights) and number != of_weights:
            raise UserError(
                f"{flag} {name}: its {role} is {number}, that of {weights} is {of_weights}; leave out "
                f"{flag}, or give the tokenizer that the model was trained with"
            )
    if compared.words:
        say(f"{name}: words in {named(compared.words)}, where the tokenizer of {weights} has unused pieces")
    if compared.added:
        say(f"{name}: tokens added to those of {weights} in {named(compared.added)}")
    if (new := rules(tokenizer)) != (known := rules(own)):
        say(
            f"warning: {name} has the vocabulary of {weights} but other rules: {in_words(new)} instead of "
            f"{in_words(known)}; the weights know texts in the latter form"
        )


def check_same_rows(tokenizer: PreTrainedTokenizerBase, own: PreTrainedTokenizerBase, teacher: str) -> None:
    """Check that every id stands for the same piece for a student and for its teacher.

    Args:
        tokenizer: the student's.
        own: the teacher's.
        teacher: its name.

    Raises:
        ValueError: a row differs; the first one is named.
    """
    student, rows = rows_of(tokenizer), rows_of(own)
    for row in sorted({*student, *rows}):
        if student.get(row) != rows.get(row):
            raise UserError(
                f"--teacher {teacher}: the id {row} stands for {shown(rows.get(row))} in its vocabulary, but for "
                f"{shown(student.get(row))} in the student's; they may differ in size, not in vocabulary. Give a "
                "teacher with the tokenizer of the student"
            )
    if (theirs := rules(own)) != (ours := rules(tokenizer)):
        say(
            f"warning: --teacher {teacher} has the vocabulary of the student but other rules: {in_words(theirs)} "
            f"instead of {in_words(ours)}; it reads what the student's tokenizer makes of the texts"
        )


def rules(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What a tokenizer does with case and accents; {} if it is not one of BERT."""
    normalizer: Any = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    if not all(hasattr(normalizer, name) for name in SETTINGS):
        return {}
    lowers, strips = normalizer.lowercase, normalizer.strip_accents
    return {"do_lower_case": lowers, "strip_accents": lowers if strips is None else strips}


def in_words(found: Mapping[str, Any]) -> str:
    """Settings as a part of a sentence."""
    return ", ".join(f"{name} {str(value).lower()}" for name, value in found.items()) or "those of another kind"
