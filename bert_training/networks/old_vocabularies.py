"""The tokenizer of an old checkpoint: the case of its vocabulary, which the files often do not say."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from bert_training.networks.tokenizer_files import TOKENIZER, TOKENIZER_CONFIG, VOCABULARY, fields_of, open_tokenizer
from tokenization import BertTokenizer, build_tokenizer, load_vocab
from tokenization.accents import marks
from tokenization.bert_tokenizer import OPTIONAL_TOKENS
from tokenization.errors import UserError

REMEDY = "(in tokenizer_config.json, or given to bert-repro convert)"
SETTINGS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
MULTILINGUAL = 100_000  # pieces; Google's multilingual vocabularies have 105,879 and 119,547
# What the name of a folder says about the case. The second one is of the models that google-research/bert lower-cases
# although their names do not say it (tokenization.py: validate_case_matches_checkpoint).
LOWER_CASED = r"uncased|^(multilingual|chinese)_L-12"
CASED = r"(?<!un)cased"


class OldTokenizer(NamedTuple):
    """A tokenizer, and what the user should read about it.

    Attributes:
        notes: one sentence each.
        doubt: why the case of the vocabulary is not certain; None if it is.
    """

    tokenizer: PreTrainedTokenizerBase
    notes: list[str]
    doubt: str | None = None


def old_tokenizer(
    folder: Path | None,
    model_max_length: int,
    vocab_file: str | Path | None = None,
    do_lower_case: bool | None = None,
    strip_accents: bool | None = None,
    quiet: bool = False,
) -> OldTokenizer:
    """The tokenizer of a vocabulary or, if ``folder`` has a tokenizer.json, that one.

    Args:
        folder: the folder with the vocabulary, if no ``vocab_file`` is given.
        do_lower_case: None takes the setting that is stored beside the vocabulary. If there is none, a vocabulary with
            capital letters makes a cased tokenizer.
        strip_accents: None takes the setting that is stored beside the vocabulary. If there is none, it is the case:
            a lower-cased tokenizer strips accents, as Google's does.
        quiet: print nothing about the files of a tokenizer.json.

    Raises:
        ValueError: there is no vocabulary, or ``do_lower_case`` or ``strip_accents`` is to change a tokenizer.json.
    """
    if vocab_file is not None:
        path = Path(vocab_file)
    elif folder is None:
        raise UserError("no vocab.txt beside the weights; give --vocab_file FILE to bert-repro convert")
    elif (folder / TOKENIZER).is_file():
        for name, value in (("do_lower_case", do_lower_case), ("strip_accents", strip_accents)):
            if value is not None:
                raise UserError(f"--{name} cannot change {folder / TOKENIZER}; give --vocab_file as well")
        return OldTokenizer(open_tokenizer(str(folder), quiet, model_max_length=model_max_length), [])
    else:
        path = folder / "vocab.txt"
    settings = _stored_settings(path.parent)
    if do_lower_case is not None:
        settings["do_lower_case"] = do_lower_case
    if strip_accents is not None:
        settings["strip_accents"] = strip_accents
    vocabulary = load_vocab(path)
    has_own_tokens = path.name == VOCABULARY and _has_tokens_of_its_own(path.parent)
    if "[UNK]" not in vocabulary and not has_own_tokens:
        raise UserError(_no_vocabulary(path, list(vocabulary)))
    capitals = [piece for piece in vocabulary if piece != piece.lower() and not piece.startswith("[")]
    accents = 0 if "strip_accents" in settings else sum(marks(piece) > 0 for piece in vocabulary)
    doubt = None if "do_lower_case" in settings else _doubt(path, len(capitals), accents, len(vocabulary))
    stated = "do_lower_case" in settings and do_lower_case is None
    settings.setdefault("do_lower_case", not capitals)
    notes = _notes(list(vocabulary), len(capitals), settings, stated)
    settings["model_max_length"] = model_max_length
    if has_own_tokens:
        tokenizer: PreTrainedTokenizerBase = _with_stored_tokens(path, vocabulary, settings)
    else:
        tokenizer = build_tokenizer(vocabulary, **settings)
    return OldTokenizer(tokenizer, notes, doubt)


def _notes(pieces: list[str], capitals: int, settings: dict[str, Any], stated: bool) -> list[str]:
    """What the user should know of a tokenizer's case and accents.

    Args:
        capitals: how many pieces have capital letters.
        stated: the files beside the vocabulary state the case.
    """
    lower_case, strips = settings["do_lower_case"], settings.get("strip_accents")
    strips = lower_case if strips is None else strips
    case = "lower-cased" if lower_case else "cased"
    notes = [f"the tokenizer is {case}; {capitals:,} of {len(pieces):,} pieces have capital letters"]
    if lower_case and capitals:
        notes.append(f"warning: these pieces can never occur; do_lower_case false {REMEDY} keeps the case")
    if stated and not lower_case and not capitals and any(map(_has_case, pieces)):
        notes.append(
            "warning: do_lower_case is false, but no piece has a capital letter, so that words with capitals become "
            f"[UNK]; if the vocabulary is a lower-cased one, state do_lower_case true {REMEDY}"
        )
    if strips != lower_case:
        notes.append(f"the tokenizer {'strips' if strips else 'keeps'} accents")
    if strips and (accented := [piece for piece in pieces if marks(piece)]):
        notes.append(
            f"warning: {len(accented):,} pieces, such as {accented[0]!r}, have accents or vowel signs, which the "
            f"tokenizer strips, so that they can never occur; strip_accents false {REMEDY} keeps them"
        )
    if strips and len(pieces) > MULTILINGUAL:
        notes.append(
            "warning: stripping accents changes words of many languages; google-research/bert "
            "recommends the cased multilingual model"
        )
    return notes


def _stored_settings(folder: Path) -> dict[str, Any]:
    """The settings in the folder's tokenizer_config.json; {} without one. ValueError if it cannot be read."""
    stored = fields_of(folder / TOKENIZER_CONFIG)
    return {name: stored[name] for name in SETTINGS if name in stored}


def _has_case(piece: str) -> bool:
    """Whether a piece, other than a special one, has letters that could be capitals."""
    return not piece.startswith("[") and piece.lower() != piece.upper()


def _no_vocabulary(path: Path, pieces: list[str]) -> str:
    """The message about a file without a row [UNK], which has another form or is no vocabulary of BERT."""
    number, row = next(((n, row) for n, row in enumerate(pieces, 1) if "unk" in row.lower()[:8]), (1, pieces[0]))
    return (
        f"{path}:{number}: expected a vocabulary of BERT, one piece a line and nothing else, with a row [UNK], got "
        f"{row[:40]!r}; take the vocab.txt that was published with the weights. If its unknown piece has another name, "
        'state it in a tokenizer_config.json beside it, as in {"unk_token": "<unk>"}'
    )


def _has_tokens_of_its_own(folder: Path) -> bool:
    """Whether tokens are stored beside a vocab.txt that a user added to it, or that have other names than BERT's."""
    if (folder / "added_tokens.json").is_file():
        return True
    settings, spelling = fields_of(folder / "tokenizer_config.json"), OPTIONAL_TOKENS | {"unk_token": "[UNK]"}
    for fields in (fields_of(folder / "special_tokens_map.json"), settings):
        if any(fields.get(name) for name in ("additional_special_tokens", "extra_special_tokens")):
            return True
        for name, usual in spelling.items():
            token = fields.get(name)
            if (token.get("content") if isinstance(token, dict) else token) not in (None, usual):
                return True
    return any(token.get("content") not in spelling.values() for token in _decoder(settings).values())


def _decoder(settings: dict[str, Any]) -> dict[str, Any]:
    return settings.get("added_tokens_decoder") or {}


def _with_stored_tokens(path: Path, vocabulary: dict[str, int], settings: dict[str, Any]) -> PreTrainedTokenizerBase:
    """The tokenizer of a vocab.txt with the tokens that are stored beside it.

    Raises:
        ValueError: transformers reads another vocabulary from the files, or gives a token another id.
    """
    tokenizer = BertTokenizer.from_pretrained(path.parent, **settings)
    decoder = _decoder(fields_of(path.with_name("tokenizer_config.json")))
    added = {token.get("content"): int(row) for row, token in decoder.items()}
    added |= fields_of(path.with_name("added_tokens.json"))
    expected = vocabulary | added
    found = tokenizer.get_vocab()
    for piece, row in expected.items():
        if found.get(piece) != row:
            raise UserError(
                f"{path.parent}: {piece!r:.60} should have the id {row} by vocab.txt and the files of added tokens "
                f"beside it, but transformers gives it {found.get(piece)}; correct these files"
            )
    return tokenizer


def _doubt(vocabulary: Path, capitals: int, accents: int, pieces: int) -> str | None:
    """What about the pieces contradicts each other or the name of the vocabulary's folder, in words.

    Args:
        capitals: the number of pieces with capital letters. They are a quarter of Google's cased English vocabulary; a
            few may be words that a user has written into a lower-cased one.
        accents: the number of pieces with accents. Of Google's lower-cased English vocabulary, none has any.
        pieces: the number of all pieces.
    """
    name = vocabulary.absolute().parent.name.lower()
    if re.search(LOWER_CASED, name, re.IGNORECASE) and capitals:
        return f"the name of {vocabulary.parent} is that of a lower-cased model, but {capitals:,} pieces have capitals"
    if re.search(CASED, name) and not capitals:
        return f"the name of {vocabulary.parent} is that of a cased model, but no piece of {vocabulary} has a capital"
    if 0 < capitals < pieces / 100:
        return f"only {capitals:,} of the {pieces:,} pieces of {vocabulary} have capitals, so it may be lower-cased"
    if not capitals and accents > pieces / 1000:
        return (
            f"no piece of {vocabulary} has a capital, as in a lower-cased vocabulary, but {accents:,} have accents "
            "or vowel signs, which a lower-cased tokenizer strips unless strip_accents is false"
        )
    return None
