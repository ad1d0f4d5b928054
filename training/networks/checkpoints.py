"""What --model_name_or_path and --tokenizer_name may name: a folder, a name on the Hub, or an old checkpoint.

The config and the tokenizer are opened here, the weights in ``training/networks/initial_weights.py``. An old checkpoint
(``is_old_checkpoint``) is read into memory by every process that needs it; nothing is written, so there is nothing that
could be half done or out of date, and run.json holds the SHA-256 of the original files.
"""

import contextlib
import os
from pathlib import Path

from transformers import AutoConfig, AutoTokenizer, BertConfig, PreTrainedTokenizerBase
from transformers.utils import CONFIG_NAME, cached_file

from training.files.json_files import read_object
from training.files.records import warn_of_changes
from training.flags.fine_tuning import GlueArguments, NerArguments, SquadArguments, SwagArguments
from training.networks.claims import (
    TOKENIZER_FILES,
    accepted,
    check_against_weights,
    check_claims,
    check_named_files,
    check_tokenizer_files,
)
from training.networks.configuration import bert_config, check_fit
from training.networks.old_checkpoints import find_old_files, is_old_checkpoint, read_old_checkpoint
from training.networks.old_vocabularies import old_tokenizer


def load_config(
    args: GlueArguments | SquadArguments | NerArguments | SwagArguments,
    tokenizer: PreTrainedTokenizerBase,
    label_at_cls: bool = False,
) -> BertConfig:
    """The configuration that the flags of a fine-tuning script ask for, checked against tokenizer and length.

    Args:
        label_at_cls: the label is predicted from [CLS], the first token, which a left-to-right network cannot do.

    Raises:
        ValueError: the model is not a BERT, or does not fit the tokenizer, the length or ``label_at_cls``.
    """
    if args.config_name:
        config = bert_config(args.config_name, len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    else:
        assert args.model_name_or_path is not None  # this flag or --config_name is required
        config = checkpoint_config(args.model_name_or_path)
    if label_at_cls and config.is_decoder:
        raise ValueError(
            "the model attends left to right (is_decoder in its config): [CLS], from which the label is read, comes "
            "first and sees no other token; use a model pre-trained with --objective mlm_nsp or mlm, or run_glue.py "
            "with --label_token last"
        )
    check_fit(config, tokenizer, args.max_seq_length)
    return config


def check_model_name(name: str) -> None:
    """Raise ValueError if ``--model_name_or_path`` can only be a folder or a file, and there is no model."""
    if is_old_checkpoint(name):
        find_old_files(name)
        return
    folder = Path(name)
    hub_name = len(folder.parts) <= 2 and not folder.is_absolute() and folder.parts[:1] not in ((), ("..",))
    if not (folder / "config.json").is_file() and (folder.exists() or not hub_name):
        found = "it has no config.json" if folder.is_dir() else "there is no such folder"
        raise ValueError(f"--model_name_or_path {name}: expected a folder with a model, or a name on the Hub; {found}")


def checkpoint_config(name: str) -> BertConfig:
    """The configuration of a checkpoint: a folder, a name on the Hub or an old one; ValueError if it is not a BERT."""
    check_model_name(name)
    if is_old_checkpoint(name):
        old = read_old_checkpoint(name)
        if (head := old.tensors.get("classifier.weight")) is not None:
            old.config.num_labels = len(head)
        return old.config
    warn_of_changes(Path(name), ("config.json",))
    path = _config_file(name)
    fields = read_object(path)
    check_claims(path, fields)
    if path.parent == Path(name):
        check_against_weights(path.parent, fields)
    config = accepted(path, lambda: AutoConfig.from_pretrained(name, trust_remote_code=False))
    if not isinstance(config, BertConfig):
        raise ValueError(f"{name}: expected a BERT checkpoint, got model_type {config.model_type!r}")
    return config


def _config_file(name: str) -> Path:
    """The config.json of a folder or, downloaded, of a name on the Hub. Raises OSError if there is none."""
    path = Path(name) / CONFIG_NAME
    if path.is_file():
        return path
    found = cached_file(name, CONFIG_NAME)
    assert found is not None  # cached_file raises OSError for a missing file
    return Path(found)


def load_tokenizer(name: str | None) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint: a folder, a name on the Hub or an old one.

    Raises:
        ValueError: there is none; or the case of an old checkpoint's vocabulary is not certain.
        OSError: transformers finds no such folder or name.
    """
    assert name is not None  # the flags of every script require one
    if is_old_checkpoint(name):
        files = find_old_files(name)
        tokenizer, notes, doubt = old_tokenizer(files.vocabulary, files.config.max_position_embeddings)
        if doubt:
            raise ValueError(
                f"{name}: {doubt}; decide it with python -m training convert {name} FOLDER --do_lower_case true (or "
                "false), and give that FOLDER"
            )
        if os.environ.get("RANK", "0") == "0":
            for note in notes:
                print(f"{name}: {note}", flush=True)
        return tokenizer
    warn_of_changes(Path(name), TOKENIZER_FILES)
    check_tokenizer_files(Path(name))
    if not Path(name).is_dir():
        with contextlib.suppress(OSError):  # the next call says what is wrong, or does without the file
            check_named_files(Path(cached_file(name, "tokenizer_config.json") or ""))
    try:
        # False: the code of a folder is never executed, and the user is not asked whether it may be.
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except OSError:
        raise
    except Exception as error:  # the libraries raise errors of all kinds for a missing or damaged tokenizer
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{name}: expected a folder or a name on the Hub with a tokenizer ({reason})") from error
    _check_ids(name, tokenizer)
    return tokenizer


def _check_ids(name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Compare the ids of the opened tokenizer with those in its file; the library repairs a damaged file in silence.

    Raises:
        ValueError: two pieces have one id, or a special token has another id than in tokenizer.json.
    """
    vocabulary = tokenizer.get_vocab()
    if len(set(vocabulary.values())) < len(vocabulary):
        seen: dict[int, str] = {}
        in_order = sorted(vocabulary.items())  # the library gives another order each time
        piece, number = next((piece, number) for piece, number in in_order if seen.setdefault(number, piece) != piece)
        raise ValueError(
            f"{name}: its tokenizer gives the id {number} to two pieces, {seen[number]!r:.60} and {piece!r:.60}; copy "
            "or download it again"
        )
    path = Path(name) / "tokenizer.json"
    added = read_object(path).get("added_tokens") if path.is_file() else None
    for number, token in enumerate(added or []):
        if vocabulary.get(token["content"]) != token["id"]:
            raise ValueError(
                f"{path}: $.added_tokens[{number}] says that {token['content']!r:.60} has the id {token['id']}, but it "
                f"gets {vocabulary.get(token['content'])}, because the vocabulary differs; copy or download it again"
            )
