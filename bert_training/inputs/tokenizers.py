"""What --tokenizer_name may name, and whether its rows are those of the weights.

A network knows pieces only by their numbers: with another piece in a row it computes on, and nothing but a bad result
shows it. Therefore a tokenizer is compared row by row with the one beside the weights, and vocab.txt, which people
edit, with the tokenizer.json beside it, which is all that transformers reads.
"""

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers.models import WordPiece
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import CONFIG_NAME, cached_file

from bert_training.files.processes import say
from bert_training.inputs.reading import fields_of
from tokenization import BertTokenizer, build_tokenizer, load_vocab
from tokenization.bert_tokenizer import OPTIONAL_TOKENS, forget_calls
from tokenization.coverage import marks
from tokenization.errors import UserError
from tokenization.extend_vocabulary import UNUSED, put_pieces
from tokenization.wordpiece import BLANKS

TOKENIZER, VOCABULARY, TOKENIZER_CONFIG = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
TOKENIZER_FILES = (TOKENIZER, TOKENIZER_CONFIG, VOCABULARY)
VOCABULARIES = (TOKENIZER, VOCABULARY, "vocab.json", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model")
OTHER_FILES = ("special_tokens_map.json", "added_tokens.json", CONFIG_NAME)  # they matter beside a vocab.txt alone
# Classes of transformers, and types of models, whose vocab.txt is one of BERT. Without a name, it is one of BERT too.
BERT_CLASSES = (None, "BertTokenizer", "BertTokenizerFast")
BERT_TYPES = (None, "bert")
POSITIONS = 512  # of a vocabulary without a network; the saved tokenizer gets those of the network
NAMED = 10  # rows in a message
SETTINGS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")


# --- the tokenizer of a run ------------------------------------------------------------------------------------------


def chosen_tokenizer(tokenizer_name: str | None, weights: str | None) -> PreTrainedTokenizerBase:
    """The tokenizer that the flags name, by default that of the weights; another one is compared with theirs.

    Args:
        weights: the checkpoint of --model_name_or_path; None if all weights are new.

    Raises:
        ValueError: as for ``load_tokenizer``; or a row of the vocabulary stands for another piece in the weights.
    """
    name = tokenizer_name or weights
    assert name is not None  # the flags of every script require one
    if run := run_of_checkpoint(Path(name)):
        say(f"{name}: the tokenizer is that of its run, {run}")
    tokenizer = load_tokenizer(name)
    if not weights or not tokenizer_name or _same_place(tokenizer_name, weights):
        return tokenizer
    if (own := weights_tokenizer(weights)) is not None:
        check_rows(tokenizer, f"--tokenizer_name {tokenizer_name}", own, weights)
    else:
        say(
            f"warning: {weights} has no tokenizer; nothing shows that the rows of {tokenizer_name} are those of its "
            "weights"
        )
    return tokenizer


def weights_tokenizer(weights: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer beside the weights of a folder or a name on the Hub; None if there is none."""
    run = run_of_checkpoint(Path(weights))
    folder = run or _folder_of(weights)
    if folder is None or not _has_tokenizer(folder):
        return None
    if _is_vocabulary_alone(folder):  # whose rows are compared, whatever its case is
        return vocabulary_tokenizer(folder / VOCABULARY, quiet=True, certain=False)
    return load_tokenizer(str(run or weights), quiet=True)


def load_tokenizer(name: str, quiet: bool = False, **options: Any) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder, a name on the Hub, or a vocab.txt, with the user's words in unused rows.

    A checkpoint in the folder of its run has no tokenizer; that of the run is taken.

    Args:
        quiet: print nothing.
        options: for ``from_pretrained``.

    Raises:
        ValueError: there is none, its files contradict each other, or the case of a vocabulary is not certain.
    """
    name = str(run_of_checkpoint(Path(name)) or name)
    path = Path(name)
    if path.is_file() and path.suffix == ".txt":
        return vocabulary_tokenizer(path, name, quiet=quiet)
    check_place(name)
    folder = _folder_of(name)
    if folder is not None and _is_vocabulary_alone(folder):
        tokenizer = vocabulary_tokenizer(folder / VOCABULARY, name, quiet=quiet)
    else:
        tokenizer = _of_transformers(name, folder, quiet, options)
    added = fields_of(folder / TOKENIZER).get("added_tokens") if folder else None
    _check_ids(name, tokenizer, {token["content"]: token["id"] for token in added or []})
    if folder is not None and (folder / TOKENIZER).is_file() and (folder / VOCABULARY).is_file():
        _take_words(folder / VOCABULARY, tokenizer, quiet)
    return tokenizer


def check_place(name: str, flag: str = "") -> None:
    """Raise UserError for a name that is no folder, and cannot be one on the Hub either, such as a file.

    Args:
        flag: the flag that gave the name.
    """
    path = Path(name)
    is_file = path.is_file() or bool(path.name and path.with_name(f"{path.name}.index").is_file())
    # Without a network, asking the Hub for a mistyped folder takes minutes; runs/x beside a folder runs is mistyped.
    beside = len(path.parts) == 2 and path.parent.is_dir()
    local = path.is_absolute() or name.startswith(".") or len(path.parts) > 2 or path.parts == ()
    if not path.is_dir() and (is_file or local or beside):
        raise UserError(
            f"{flag} {name}: expected a folder, or a name on the Hub; there is no such folder. An older checkpoint is "
            f"converted first (bert-repro convert {name} FOLDER)".strip()
        )


def _folder_of(name: str) -> Path | None:
    """The folder with the files of a tokenizer: ``name`` itself, or that of a download; None without any."""
    if Path(name).exists():
        return Path(name)
    found = None
    for file in (*TOKENIZER_FILES, *OTHER_FILES):
        with contextlib.suppress(OSError, ValueError):  # there is none, or no repository can have this name
            found = Path(cached_file(name, file) or "").parent
    return found


def _has_tokenizer(folder: Path | None) -> bool:
    return folder is not None and any((folder / file).is_file() for file in TOKENIZER_FILES)


def run_of_checkpoint(folder: Path) -> Path | None:
    """The folder of the run of a checkpoint without a tokenizer, if the tokenizer is there; otherwise None."""
    run = folder.absolute().parent
    bare = (folder / "training_state.pt").is_file() and not _has_tokenizer(folder)
    return run if bare and _has_tokenizer(run) else None


def _same_place(one: str, other: str) -> bool:
    return one == other or (Path(one).exists() and Path(other).exists() and Path(one).samefile(other))


# --- tokenizer.json --------------------------------------------------------------------------------------------------


def _of_transformers(name: str, folder: Path | None, quiet: bool, options: dict[str, Any]) -> PreTrainedTokenizerBase:
    """The tokenizer that transformers makes, with the case of its tokenizer.json and without its truncation."""
    stated = fields_of(folder / TOKENIZER_CONFIG) if folder else {}
    if Path(name).is_dir() and not any(Path(name, file).is_file() for file in VOCABULARIES):
        raise UserError(f"{name}: expected a folder with a {TOKENIZER} or a {VOCABULARY}; give another")
    tokenizer = _opened(name, options)
    normalizer = fields_of(folder / TOKENIZER).get("normalizer") if folder else None
    if isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        # transformers' class replaces these rules of tokenizer.json by its defaults where no other file states them.
        lowers, strips = normalizer.get("lowercase"), normalizer.get("strip_accents")
        there, here = {"do_lower_case": lowers, "strip_accents": lowers if strips is None else strips}, rules(tokenizer)
        if here != there and not set(there) & set(stated):
            tokenizer = _opened(name, options | {"do_lower_case": lowers, "strip_accents": strips})
        elif here != there and not quiet:
            say(
                f"warning: {name}: {TOKENIZER} says {rules_text(there)}, but {TOKENIZER_CONFIG} makes it "
                f"{rules_text(here)}, which transformers follows; correct the one that is wrong"
            )
    forget_calls(tokenizer)
    for side in ("truncation_side", "padding_side"):  # those of tokenizer.json are of somebody's last call
        setattr(tokenizer, side, stated.get(side, "right"))
    return tokenizer


def _opened(name: str, options: dict[str, Any]) -> PreTrainedTokenizerBase:
    try:
        # False: the code of a folder is never executed, and the user is not asked whether it may be.
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False, **options)
    except Exception as error:  # the libraries raise errors of all kinds for a missing or damaged tokenizer
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{name}: no tokenizer can be opened there ({reason})") from error


def _check_ids(name: str, tokenizer: PreTrainedTokenizerBase, stated: Mapping[str, int]) -> None:
    """Raise UserError unless every id has one piece, and the stated ones theirs: the library repairs it in silence."""
    vocabulary = tokenizer.get_vocab()
    wrong = [piece for piece, row in stated.items() if vocabulary.get(piece) != row]
    if wrong or sorted(vocabulary.values()) != list(range(len(vocabulary))):
        found = f"{wrong[0]!r:.60} gets another id than its file says" if wrong else "its ids are not 0, 1, 2 and so on"
        raise UserError(
            f"{name}: the vocabulary of its tokenizer is damaged: {found}; perhaps a piece was deleted; take "
            "the tokenizer that the model was trained with"
        )


# --- vocab.txt alone -------------------------------------------------------------------------------------------------


def _is_vocabulary_alone(folder: Path) -> bool:
    """Whether the folder's tokenizer is a vocab.txt of BERT without a tokenizer.json."""
    if (folder / TOKENIZER).is_file() or not (folder / VOCABULARY).is_file():
        return False
    settings, config = fields_of(folder / TOKENIZER_CONFIG), fields_of(folder / CONFIG_NAME)
    return settings.get("tokenizer_class") in BERT_CLASSES and config.get("model_type") in BERT_TYPES


def vocabulary_tokenizer(
    path: Path,
    name: str = "",
    do_lower_case: bool | None = None,
    strip_accents: bool | None = None,
    quiet: bool = False,
    certain: bool = True,
) -> PreTrainedTokenizerBase:
    """The tokenizer of a vocab.txt.

    Without a stored setting, pieces with capital letters make it a cased one, where transformers alone would lower-case
    every vocabulary. A lower-cased one strips accents, as Google's does, unless ``strip_accents`` is False.

    Args:
        path: the file. The settings and tokens that are stored beside it count.
        name: what the user called it.
        do_lower_case, strip_accents: None takes the setting that is stored beside the vocabulary.
        quiet: print nothing.
        certain: refuse a vocabulary whose case is not certain.

    Raises:
        ValueError: it is no vocabulary, or its pieces contradict each other about the case.
    """
    stored, vocabulary = fields_of(path.with_name(TOKENIZER_CONFIG)), load_vocab(path)
    given = {"do_lower_case": do_lower_case, "strip_accents": strip_accents}
    settings = {name: stored[name] for name in SETTINGS if name in stored}
    settings |= {name: value for name, value in given.items() if value is not None}
    capitals = sum(piece != piece.lower() and not piece.startswith("[") for piece in vocabulary)
    accented = [piece for piece in vocabulary if marks(piece)]
    if "do_lower_case" not in settings:
        # Of Google's cased English vocabulary a quarter has capitals, and of the lower-cased one no piece has accents.
        few = 0 < capitals < len(vocabulary) / 100
        lost = not capitals and "strip_accents" not in settings and len(accented) > len(vocabulary) / 1000
        if certain and (few or lost):
            found = f"{capitals:,} have capitals and {len(accented):,} accents or vowel signs"
            raise UserError(
                f"{name or path}: of {len(vocabulary):,} pieces, {found}, so its case is not certain; write "
                f'{{"do_lower_case": true}} (or false) into {path.with_name(TOKENIZER_CONFIG)}, or give '
                "--do_lower_case to bert-repro convert"
            )
        settings["do_lower_case"] = not capitals
    lowers, strips = settings["do_lower_case"], settings.get("strip_accents")
    if not quiet:
        case = "lower-cased" if lowers else "cased"
        say(f"{name or path}: the tokenizer is {case}; {capitals:,} of {len(vocabulary):,} pieces have capital letters")
        if accented and (lowers if strips is None else strips):
            say(
                f"warning: {len(accented):,} pieces, such as {accented[0]!r}, have accents or vowel signs, which the "
                "tokenizer strips, so that they can never occur; strip_accents false (in tokenizer_config.json, or "
                "given to bert-repro convert) keeps them"
            )
    return _with_stored_tokens(path, vocabulary, settings | {"model_max_length": POSITIONS})


def _with_stored_tokens(path: Path, vocabulary: dict[str, int], settings: dict[str, Any]) -> PreTrainedTokenizerBase:
    """The tokenizer of a vocab.txt with the tokens that are stored beside it.

    Raises:
        ValueError: transformers reads another vocabulary from the files, or gives a token another id.
    """
    stored = fields_of(path.with_name(TOKENIZER_CONFIG)) | fields_of(path.with_name("special_tokens_map.json"))
    decoder = stored.get("added_tokens_decoder") or {}
    added = {token.get("content"): int(row) for row, token in decoder.items()}
    added |= fields_of(path.with_name("added_tokens.json"))
    others = {"additional_special_tokens", "extra_special_tokens", "unk_token", *OPTIONAL_TOKENS} & set(stored)
    if path.name != VOCABULARY or not (added or others):
        return build_tokenizer(vocabulary, **settings)
    tokenizer = BertTokenizer.from_pretrained(path.parent, **settings)
    _check_ids(str(path.parent), tokenizer, vocabulary | added)
    return tokenizer


# --- rows ------------------------------------------------------------------------------------------------------------


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


def check_rows(
    tokenizer: PreTrainedTokenizerBase, name: str, own: PreTrainedTokenizerBase, weights: str, same: bool = False
) -> None:
    """Compare a tokenizer with that of the weights, and print what they may differ in.

    Args:
        name: the tokenizer in messages, such as "--tokenizer_name words".
        own: the tokenizer beside the weights.
        weights: the name of their checkpoint.
        same: every row must be the same, as for a student and its teacher.

    Raises:
        ValueError: a row of the vocabulary differs that is not an unused one of ``own``, or the tokenizer ends before;
            or another row has a role, such as that of [CLS].
    """
    expected, found = rows_of(own), rows_of(tokenizer)
    compared = compare(expected, found)
    difference = compared.difference
    if same and expected != found and not difference:
        row = min(row for row in {*expected, *found} if expected.get(row) != found.get(row))
        difference = Difference(row, expected.get(row), found.get(row))
    problem = ""
    if difference:
        row, there, here = difference
        problem = f"{shown(here)} has the id {row}, but for the weights of {weights} that id stands for {shown(there)}"
    for role in ("pad_token_id", "unk_token_id", "cls_token_id", "sep_token_id", "mask_token_id"):
        number, of_weights = getattr(tokenizer, role), getattr(own, role)
        if None not in (number, of_weights) and number != of_weights:
            problem = problem or f"its {role} is {number}, that of {weights} is {of_weights}"
    if problem:
        raise UserError(f"{name}: {problem}; take the tokenizer that these weights were trained with")
    if compared.words:
        say(f"{name}: words in {named(compared.words)}, where the tokenizer of {weights} has unused pieces")
    if compared.added:
        say(f"{name}: tokens added to those of {weights} in {named(compared.added)}")
    if (new := rules(tokenizer)) != (known := rules(own)):
        say(
            f"warning: {name} has the vocabulary of {weights} but other rules: {rules_text(new)} instead of "
            f"{rules_text(known)}; the weights know texts in the latter form"
        )


def _take_words(path: Path, tokenizer: PreTrainedTokenizerBase, quiet: bool) -> None:
    """Put the words of vocab.txt into rows that tokenizer.json calls unused.

    Raises:
        ValueError: the files differ in another way, or vocab.txt cannot be read.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not isinstance(backend.model, WordPiece):
        return
    rows = rows_of(tokenizer)
    if path.read_bytes() == "".join(f"{rows[row]}\n" for row in sorted(rows)).encode():  # nobody has edited it
        return
    words = words_of_the_user(path, list(load_vocab(path)), tokenizer)
    if words:
        put_pieces(tokenizer, words)
    if words and not quiet:
        say(f"{path}: words in {named(words)}, which {TOKENIZER} calls unused; they are used, and saved in both files")


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
    words, added, difference = compare(needed, dict(enumerate(pieces)))
    wrong = {row: piece for row, piece in words.items() if piece in tokenizer.get_vocab()} | added
    if wrong and not difference:
        row = min(wrong)
        difference = Difference(row, rows.get(row), wrong[row])
    if difference:
        row, there, here = difference
        raise UserError(
            f"{path}: line {row + 1} holds {shown(here)}, but {TOKENIZER} beside it has {shown(there)} with the id "
            f"{row}, and that is what transformers uses; delete the one of the two files that is wrong. Only rows that "
            f"{TOKENIZER} calls [unused...] may hold other pieces, words that are nowhere else in the vocabulary"
        )
    return words


def rules(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What a tokenizer does with case and accents; {} if it is not one of BERT."""
    normalizer: Any = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    if not hasattr(normalizer, "lowercase") or not hasattr(normalizer, "strip_accents"):
        return {}
    lowers, strips = normalizer.lowercase, normalizer.strip_accents
    return {"do_lower_case": lowers, "strip_accents": lowers if strips is None else strips}


def rules_text(found: Mapping[str, Any]) -> str:
    """Settings as a part of a sentence."""
    return ", ".join(f"{name} {str(value).lower()}" for name, value in found.items()) or "those of another kind"
