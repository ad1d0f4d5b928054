"""The tokenizer of an old checkpoint: the case of its vocabulary, which the files often do not say."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tokenization import build_tokenizer, load_vocab
from training.files.json_files import read_json
from training.networks.claims import check_named_files

TOKENIZER = "tokenizer.json"
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
) -> OldTokenizer:
    """The tokenizer of a vocabulary or, if ``folder`` has a tokenizer.json, that one.

    Args:
        folder: the folder with the vocabulary, if no ``vocab_file`` is given.
        do_lower_case: None takes the setting that is stored beside the vocabulary. If there is none, a vocabulary with
            capital letters makes a cased tokenizer.

    Raises:
        ValueError: there is no vocabulary, or ``do_lower_case`` is to change a tokenizer.json.
    """
    if vocab_file is not None:
        path = Path(vocab_file)
    elif folder is None:
        raise ValueError("no vocab.txt beside the weights; give --vocab_file FILE to python -m training convert")
    elif (folder / TOKENIZER).is_file():
        if do_lower_case is not None:
            raise ValueError(f"--do_lower_case cannot change {folder / TOKENIZER}; give --vocab_file as well")
        check_named_files(folder / "tokenizer_config.json")
        return OldTokenizer(AutoTokenizer.from_pretrained(folder, trust_remote_code=False), [])
    else:
        path = folder / "vocab.txt"
    settings = _stored_settings(path.parent)
    if do_lower_case is not None:
        settings["do_lower_case"] = do_lower_case
    vocabulary = load_vocab(path)
    capitals = [piece for piece in vocabulary if piece != piece.lower() and not piece.startswith("[")]
    doubt = None if "do_lower_case" in settings else _doubt(path, len(capitals))
    lower_case = settings.setdefault("do_lower_case", not capitals)
    notes = [
        f"the tokenizer is {'lower-cased' if lower_case else 'cased'}; {len(capitals):,} of {len(vocabulary):,} pieces "
        "have capital letters"
    ]
    if lower_case and capitals:
        notes.append("warning: these pieces can never occur; --do_lower_case false keeps the case")
    if lower_case and len(vocabulary) > MULTILINGUAL:
        notes.append(
            "warning: lower-casing also strips accents, which changes words of many languages; google-research/bert "
            "recommends the cased multilingual model"
        )
    tokenizer = build_tokenizer(vocabulary, model_max_length=model_max_length, **settings)
    return OldTokenizer(tokenizer, notes, doubt)


def _stored_settings(folder: Path) -> dict[str, Any]:
    """The settings in the folder's tokenizer_config.json; {} without one. ValueError if it cannot be read."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    stored = read_json(path)
    if not isinstance(stored, dict):
        raise ValueError(f"{path}: expected a JSON object with the settings of a tokenizer; correct it, or delete it")
    return {name: stored[name] for name in SETTINGS if name in stored}


def _doubt(vocabulary: Path, capitals: int) -> str | None:
    """Whether the name of the vocabulary's folder contradicts its pieces, in words."""
    name = vocabulary.absolute().parent.name.lower()
    if re.search(LOWER_CASED, name, re.IGNORECASE) and capitals:
        return f"the name of {vocabulary.parent} is that of a lower-cased model, but {capitals:,} pieces have capitals"
    if re.search(CASED, name) and not capitals:
        return f"the name of {vocabulary.parent} is that of a cased model, but no piece of {vocabulary} has a capital"
    return None
