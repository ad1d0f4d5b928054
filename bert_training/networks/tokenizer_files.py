"""Open the tokenizer of a folder or a name on the Hub, and compare vocabularies row by row.

transformers reads tokenizer.json where there is one, and vocab.txt only otherwise. Here vocab.txt is compared with it,
because users edit it; and a tokenizer is compared with that of the weights. A network knows only numbers: with another
piece in a row it computes on, and nothing but a bad result shows it.
"""

import contextlib
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers.models import WordPiece
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import CONFIG_NAME, cached_file

from bert_training.files.harmless_output import say
from bert_training.files.hashing import HASHES
from bert_training.files.json_files import is_plain_name, read_object
from bert_training.files.records import changed_since_finished, warn_of_changes
from tokenization import load_vocab
from tokenization.bert_tokenizer import forget_calls
from tokenization.errors import UserError
from tokenization.extend_vocabulary import UNUSED, put_pieces
from tokenization.fingerprint import tokenizer_sha256
from tokenization.wordpiece import BLANKS

TOKENIZER, VOCABULARY, TOKENIZER_CONFIG = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
TOKENIZER_FILES = (TOKENIZER, TOKENIZER_CONFIG, VOCABULARY, "special_tokens_map.json", "added_tokens.json")
VOCABULARIES = (TOKENIZER, VOCABULARY, "vocab.json", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model")
# Classes of transformers, and types of models, whose vocab.txt is one of BERT. Without a name, it is one of BERT too.
BERT_CLASSES = (None, "BertTokenizer", "BertTokenizerFast")
BERT_TYPES = (None, "bert")
NAMED = 10
SETTINGS = {"lowercase": "do_lower_case", "strip_accents": "strip_accents"}


def tokenizer_folder(name: str, download: bool = False) -> Path | None:
    """The folder of a tokenizer's files: ``name`` itself, or that of a name on the Hub; None without any.

    Args:
        download: whether files that are not in the cache yet are fetched.
    """
    if Path(name).exists():
        return Path(name) if Path(name).is_dir() else None
    for file in (TOKENIZER, VOCABULARY):
        try:
            path = cached_file(name, file, local_files_only=not download)
        except (OSError, ValueError):  # there is none, or no repository can have this name
            continue
        if path is not None:
            return Path(path).parent
    return None


def is_vocabulary_alone(folder: Path) -> bool:
    """Whether the folder's tokenizer is a vocab.txt of BERT without a tokenizer.json."""
    if (folder / TOKENIZER).is_file() or not (folder / VOCABULARY).is_file():
        return False
    settings, config = fields_of(folder / TOKENIZER_CONFIG), fields_of(folder / CONFIG_NAME)
    return settings.get("tokenizer_class") in BERT_CLASSES and config.get("model_type") in BERT_TYPES


def fields_of(path: Path) -> dict[str, Any]:
    """The content of a JSON file that must be an object; {} if there is no such file."""
    return read_object(path) if path.is_file() else {}


def open_tokenizer(name: str, quiet: bool = False, **options: Any) -> PreTrainedTokenizerBase:
    """The tokenizer that transformers makes of a folder or a name on the Hub, with the user's words in unused rows.

    Args:
        quiet: print nothing.
        options: for ``from_pretrained``.

    Raises:
        ValueError: there is none, it is damaged, or vocab.txt and tokenizer.json contradict each other.
        OSError: transformers finds no such folder or name.
    """
    folder = Path(name)
    check_there_is_one(name)
    if not quiet:
        warn_of_changes(folder, TOKENIZER_FILES)
    _check_named_files(folder / TOKENIZER_CONFIG if folder.is_dir() else _downloaded_settings(name))
    tokenizer = _opened(name, options)
    if (folder / TOKENIZER).is_file():
        settings = _unstated_rules(folder, tokenizer, quiet)
        if settings:
            tokenizer = _opened(name, options | settings)
    _check_ids(name, tokenizer)
    _forget_calls(folder, tokenizer)
    check_replaced(folder, tokenizer, quiet)
    if (folder / TOKENIZER).is_file() and (folder / VOCABULARY).is_file():
        _take_words(folder / VOCABULARY, tokenizer, quiet)
    return tokenizer


def _downloaded_settings(name: str) -> Path:
    """The tokenizer_config.json of a name on the Hub; if there is none, a path at which nothing is."""
    with contextlib.suppress(OSError):
        return Path(cached_file(name, TOKENIZER_CONFIG) or "")
    return Path("")


def _check_named_files(settings: Path) -> None:
    """Check the names of files that transformers would read in place of tokenizer.json: they may lead nowhere else."""
    names = fields_of(settings).get("fast_tokenizer_files") or []
    if wrong := [name for name in names if not is_plain_name(name)]:
        raise UserError(
            f"{settings}: expected in 'fast_tokenizer_files' names of files beside it, such as tokenizer.4.0.0.json, "
            f"got {str(wrong[0])[:80]!r}; nothing outside its folder is read"
        )


def check_there_is_one(name: str) -> None:
    """Raise ValueError if the name can only be that of a folder, and there is no tokenizer."""
    folder = Path(name)
    if folder.is_dir() and any((folder / file).is_file() for file in VOCABULARIES):
        return
    if folder.is_dir():
        found = (
            f"it has neither {TOKENIZER} nor {VOCABULARY}; give --tokenizer_name FOLDER, or copy these files into it"
        )
    elif folder.is_absolute() or len(folder.parts) > 2 or folder.parts[:1] == ("..",):
        found = "there is no such folder; check the path"
    else:
        return
    raise UserError(f"{name}: expected a folder or a name on the Hub with a tokenizer; {found}")


def no_such_place(name: str, error: OSError) -> UserError:
    """The error for a name that is no folder, and that cannot be loaded from the Hub either."""
    return UserError(
        f"{name}: there is no such folder, and as a name on the Hub it cannot be loaded "
        f"({str(error).splitlines()[0]}); check the path, or the name and the network"
    )


def _opened(name: str, options: dict[str, Any]) -> PreTrainedTokenizerBase:
    try:
        # False: the code of a folder is never executed, and the user is not asked whether it may be.
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False, **options)
    except OSError as error:
        if Path(name).exists():
            raise
        raise no_such_place(name, error) from error
    except Exception as error:  # the libraries raise errors of all kinds for a missing or damaged tokenizer
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{name}: expected a folder or a name on the Hub with a tokenizer ({reason})") from error


def _forget_calls(folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Forget the truncation and padding in tokenizer.json; the sides that tokenizer_config.json states are kept."""
    forget_calls(tokenizer)
    if (folder / TOKENIZER).is_file():
        stated = fields_of(folder / TOKENIZER_CONFIG)
        for side in ("truncation_side", "padding_side"):
            setattr(tokenizer, side, stated.get(side, "right"))


def _unstated_rules(folder: Path, tokenizer: PreTrainedTokenizerBase, quiet: bool) -> dict[str, Any]:
    """Rules of tokenizer.json on case and accents that transformers' class replaces by its defaults.

    transformers takes them from tokenizer_config.json. Where that states something else, it is followed, as in every
    other program, with a warning.
    """
    normalizer = fields_of(folder / TOKENIZER).get("normalizer")
    if not isinstance(normalizer, dict) or normalizer.get("type") != "BertNormalizer":
        return {}
    lowers, strips = normalizer.get("lowercase"), normalizer.get("strip_accents")
    there, here = {"do_lower_case": lowers, "strip_accents": lowers if strips is None else strips}, rules(tokenizer)
    if not here or here == there or None in there.values():
        return {}
    stated = fields_of(folder / TOKENIZER_CONFIG)
    if not set(there) & set(stated):
        return {"do_lower_case": lowers, "strip_accents": strips}
    if not quiet:
        say(
            f"warning: {folder / TOKENIZER} says {in_words(there)}, but {TOKENIZER_CONFIG} makes it {in_words(here)}, "
            "which transformers follows; correct the one that is wrong"
        )
    return {}


def _take_words(path: Path, tokenizer: PreTrainedTokenizerBase, quiet: bool) -> None:
    """Put the words of vocab.txt into rows that tokenizer.json calls unused.

    Raises:
        ValueError: the files differ in another way, or vocab.txt cannot be read.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not isinstance(backend.model, WordPiece):
        return
    try:
        pieces = list(load_vocab(path))
    except ValueError as error:
        raise UserError(f"{error}. Or delete {VOCABULARY}: {TOKENIZER} beside it holds the vocabulary, too") from error
    words = words_of_the_user(path, pieces, tokenizer)
    if not words:
        return
    put_pieces(tokenizer, words)
    if quiet:
        return
    say(f"{path}: words in {named(words)}, which {TOKENIZER} calls unused; they are used, and saved in both files")
    if lost := never_produced(tokenizer, words):
        say(
            f"warning: {path}: no text ever becomes the words in {named(lost)}, because the tokenizer changes or "
            "splits them first (case, accents, punctuation, spaces); spell them as the tokenizer does, or register "
            "them with tokenizer.add_tokens"
        )


def check_replaced(folder: Path, tokenizer: PreTrainedTokenizerBase, quiet: bool = False) -> None:
    """Compare the tokenizer of a run's folder with the one that the run recorded.

    Raises:
        ValueError: neither of the two files that hold the vocabulary is the one that the finished run left.
    """
    recorded = fields_of(folder / "run.json").get("tokenizer_sha256")
    if recorded is None or recorded in (tokenizer_sha256(tokenizer), _sha256_of_file(folder / TOKENIZER)):
        return
    intact = [file for file in (TOKENIZER, VOCABULARY) if not changed_since_finished(folder, file)]
    if not intact:
        raise UserError(
            f"{folder}: neither {TOKENIZER} nor {VOCABULARY} is the file that the run left, by {HASHES}, so nothing "
            "shows that their rows are those of the weights; copy both from the run again or, if you have changed "
            f"them on purpose, delete {folder / HASHES}"
        )
    if not quiet and not (folder / HASHES).is_file():  # with hashes, warn_of_changes has said it
        say(
            f"warning: {folder}: the tokenizer is not the one with which the weights were trained: its SHA-256 is not "
            "the tokenizer_sha256 in run.json. If you have not changed it, copy the folder again"
        )


def _sha256_of_file(path: Path) -> str | None:
    """What ``tokenizer_sha256`` gives for the tokenizer in a tokenizer.json, without opening it."""
    if not path.is_file():
        return None
    content = read_object(path) | {"truncation": None, "padding": None}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _check_ids(name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Compare the ids of the opened tokenizer with those in its file; the library repairs a damaged file in silence.

    Raises:
        ValueError: two pieces have one id, an id has no piece, or a special token has another id than in the file.
    """
    vocabulary = tokenizer.get_vocab()
    if len(set(vocabulary.values())) < len(vocabulary):
        seen: dict[int, str] = {}
        in_order = sorted(vocabulary.items())  # the library gives another order each time
        piece, number = next((piece, number) for piece, number in in_order if seen.setdefault(number, piece) != piece)
        raise UserError(
            f"{name}: its tokenizer gives the id {number} to two pieces, {seen[number]!r:.60} and {piece!r:.60}; copy "
            "or download it again"
        )
    path = Path(name) / TOKENIZER
    added = read_object(path).get("added_tokens") if path.is_file() else None
    for number, token in enumerate(added or []):
        if vocabulary.get(token["content"]) != token["id"]:
            raise UserError(
                f"{path}: $.added_tokens[{number}] says that {token['content']!r:.60} has the id {token['id']}, but it "
                f"gets {vocabulary.get(token['content'])}, because the vocabulary differs; copy or download it again"
            )
    ids = set(vocabulary.values())
    if gap := next((number for number in range(len(ids)) if number not in ids), None):
        raise UserError(
            f"{name}: no piece of its tokenizer has the id {gap}, although there are {len(ids):,} and the last has "
            f"the id {max(ids):,}; perhaps a piece was deleted, or stood twice in the vocabulary. Take the tokenizer "
            "that the model was trained with"
        )


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
