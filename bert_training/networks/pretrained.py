"""What --model_name_or_path and --tokenizer_name may name: a folder, a name on the Hub, or an old checkpoint.

The config and the tokenizer are opened here, the weights in ``bert_training/networks/initial_weights.py``. An old
checkpoint (``is_old_checkpoint``) is read into memory by every process that needs it; nothing is written, so there is
nothing that could be half done or out of date, and run.json holds the SHA-256 of the original files.
"""

from collections.abc import Mapping
from pathlib import Path

from transformers import AutoConfig, BertConfig, PreTrainedTokenizerBase
from transformers.utils import CONFIG_NAME, cached_file

from bert_training.files.atomic import json_text, make_folder, whole_file
from bert_training.files.harmless_output import say
from bert_training.files.json_files import is_plain_name, read_json, read_object
from bert_training.files.records import warn_of_changes
from bert_training.inputs.flags.fine_tuning import GlueArguments, NerArguments, SquadArguments, SwagArguments
from bert_training.networks.configuration import check_claims, check_fit, new_config, set_plain_outputs
from bert_training.networks.initial_weights import check_kept_layers
from bert_training.networks.old_checkpoints import find_old_files, is_old_checkpoint, read_old_checkpoint
from bert_training.networks.old_vocabularies import old_tokenizer
from bert_training.networks.other_formats import check_holds_weights
from bert_training.networks.tokenizer_files import (
    TOKENIZER_CONFIG,
    TOKENIZER_FILES,
    check_replaced,
    check_rows,
    fields_of,
    is_vocabulary_alone,
    no_such_place,
    open_tokenizer,
    tokenizer_folder,
)
from tokenization.errors import UserError
from tokenization.fingerprint import tokenizer_sha256

# Modules of sentence-transformers that need nothing but the encoder's last states, whose width no command changes, and
# the files that each of them must have. Their weights may be in no other file, because that would be a pickle.
WEIGHTS = ("config.json", "model.safetensors")
MODULES = {"Transformer": (), "Pooling": WEIGHTS[:1], "Normalize": (), "Dropout": WEIGHTS[:1], "Dense": WEIGHTS,
           "LayerNorm": WEIGHTS}  # fmt: skip
MODULE_LIST, LIMITS, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
POSITIONS = 512  # of a vocabulary without a network; the saved tokenizer gets those of the network


def load_config(
    args: GlueArguments | SquadArguments | NerArguments | SwagArguments,
    tokenizer: PreTrainedTokenizerBase,
    label_at_cls: bool = False,
) -> BertConfig:
    """The configuration that the flags of a fine-tuning script ask for, checked against tokenizer and length.

    Args:
        label_at_cls: the label is predicted from [CLS], the first token, which a left-to-right network cannot do.

    Raises:
        ValueError: the model is not a BERT, or does not fit the tokenizer, the length, ``label_at_cls``
            or --keep_layers.
    """
    if args.config_name:
        config = new_config(args.config_name, tokenizer)
    else:
        assert args.model_name_or_path is not None  # this flag or --config_name is required
        config = checkpoint_config(args.model_name_or_path)
    if label_at_cls and config.is_decoder:
        raise UserError(
            "the model attends left to right (is_decoder in its config): [CLS], from which the label is read, comes "
            "first and sees no other token; use a model pre-trained with --objective mlm_nsp or mlm, or run_glue.py "
            "with --label_token last"
        )
    check_fit(config, tokenizer, args.max_seq_length)
    kept = getattr(args, "kept_layers", None)  # not every script has the flag
    check_kept_layers(kept, config)
    return config


def check_model_name(name: str) -> None:
    """Raise ValueError if ``--model_name_or_path`` can only be a folder or a file, and there is no model."""
    if is_old_checkpoint(name):
        find_old_files(name)
        return
    folder = Path(name)
    check_holds_weights(folder, f"--model_name_or_path {name}")
    hub_name = len(folder.parts) <= 2 and not folder.is_absolute() and folder.parts[:1] not in ((), ("..",))
    if not (folder / "config.json").is_file() and (folder.exists() or not hub_name):
        found = "it has no config.json" if folder.is_dir() else "there is no such folder"
        raise UserError(f"--model_name_or_path {name}: expected a folder with a model, or a name on the Hub; {found}")


def checkpoint_config(name: str, quiet: bool = False) -> BertConfig:
    """The configuration of a checkpoint: a folder, a name on the Hub or an old one; ValueError if it is not a BERT.

    Args:
        quiet: print nothing.
    """
    check_model_name(name)
    if is_old_checkpoint(name):
        old = read_old_checkpoint(name)
        if (head := old.tensors.get("classifier.weight")) is not None:
            old.config.num_labels = len(head)
        return old.config
    if not quiet:
        warn_of_changes(Path(name), ("config.json",))
    path = _config_file(name)
    check_claims(path, read_object(path))
    config, changed = _opened(name, path)
    if changed and not quiet:
        say(f"{path}: {', '.join(changed)} as in a new config, because this command decides what it needs")
    return config


def exported_config(folder: Path) -> BertConfig:
    """The configuration in a folder that needs no weights, such as an export; ValueError if it is not a BERT."""
    path = folder / CONFIG_NAME
    check_claims(path, read_object(path))
    return _opened(str(folder), path)[0]


def _opened(name: str, path: Path) -> tuple[BertConfig, list[str]]:
    """The config at a path, and its fields that were made plain."""
    if "model_type" in read_object(path):
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    else:  # of before 2020; AutoConfig refuses it
        config = BertConfig.from_pretrained(name)
    if not isinstance(config, BertConfig):
        raise UserError(f"{name}: expected a BERT checkpoint, got model_type {config.model_type!r}")
    return config, set_plain_outputs(config)


def _config_file(name: str) -> Path:
    """The config.json of a folder or, downloaded, of a name on the Hub. Raises ValueError if there is none."""
    path = Path(name) / CONFIG_NAME
    if path.is_file():
        return path
    try:
        found = cached_file(name, CONFIG_NAME)
    except OSError as error:
        raise no_such_place(name, error) from error
    assert found is not None  # cached_file raises OSError for a missing file
    return Path(found)


def load_tokenizer(name: str | None, quiet: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint: a folder, a name on the Hub, a vocab.txt or an old checkpoint.

    A checkpoint in the folder of its run has no tokenizer; that of the run is taken.

    Args:
        quiet: print nothing.

    Raises:
        ValueError: there is none, its files contradict each other, or the case of a vocabulary is not certain.
        OSError: transformers finds no such folder or name.
    """
    assert name is not None  # the flags of every script require one
    name = str(_run_of_checkpoint(Path(name)) or name)
    path = Path(name)
    if path.is_file() and path.suffix == ".txt":
        remedy = f'write {{"do_lower_case": true}} (or false) into {path.with_name(TOKENIZER_CONFIG)}'
        return _of_vocabulary(name, path.parent, quiet, remedy, vocab_file=path)
    if path.is_file() and path.name in TOKENIZER_FILES:
        raise UserError(f"{name}: expected a folder with a tokenizer, or a vocab.txt; give the folder {path.parent}")
    if is_old_checkpoint(name):
        remedy = (
            f"decide it with bert-repro convert {name} FOLDER --do_lower_case true (or false), and give that FOLDER"
        )
        files = find_old_files(name)
        return _of_vocabulary(name, files.vocabulary, quiet, remedy, files.config.max_position_embeddings)
    downloaded = None if path.is_dir() else open_tokenizer(name, quiet)
    folder = tokenizer_folder(name)
    if folder is None or not is_vocabulary_alone(folder):
        return downloaded or open_tokenizer(name, quiet)
    if not quiet:
        warn_of_changes(folder, TOKENIZER_FILES)
    remedy = f'write {{"do_lower_case": true}} (or false) into {folder / TOKENIZER_CONFIG}'
    tokenizer = _of_vocabulary(name, folder, quiet, remedy)
    check_replaced(folder, tokenizer, quiet)
    return tokenizer


def _of_vocabulary(
    name: str, folder: Path | None, quiet: bool, remedy: str, positions: int = POSITIONS, vocab_file: Path | None = None
) -> PreTrainedTokenizerBase:
    """The tokenizer of a vocabulary; ValueError with the remedy if its case is not certain."""
    tokenizer, notes, doubt = old_tokenizer(folder, positions, vocab_file, quiet=quiet)
    if doubt:
        raise UserError(f"{name}: {doubt}; {remedy}")
    for note in () if quiet else notes:
        say(f"{name}: {note}")
    return tokenizer


def chosen_tokenizer(tokenizer_name: str | None, weights: str | None) -> PreTrainedTokenizerBase:
    """The tokenizer that the flags name, by default that of the weights; another one is compared with theirs.

    Args:
        weights: the checkpoint of --model_name_or_path; None if all weights are new.

    Raises:
        ValueError: as for ``load_tokenizer``; or a row of the vocabulary stands for another piece in the weights.
        OSError: transformers finds no such folder or name.
    """
    if weights:
        check_model_name(weights)  # it says what the folder is, if it is no model
    name = tokenizer_name or weights
    if name and (run := _run_of_checkpoint(Path(name))):
        say(f"{name}: the tokenizer is that of its run, {run}")
    tokenizer = load_tokenizer(name)
    if not weights or not tokenizer_name or _same_place(tokenizer_name, weights):
        return tokenizer
    if is_old_checkpoint(weights):
        find_old_files(weights)
    else:
        checkpoint_config(weights, quiet=True)  # whether it is a BERT at all comes first
    own = weights_tokenizer(weights)
    if own is not None:
        check_rows(tokenizer, tokenizer_name, own, weights)
        return tokenizer
    recorded = fields_of(Path(weights, "run.json")).get("tokenizer_sha256")
    if recorded is None:
        say(
            f"warning: {weights} has no tokenizer, so nothing shows that the rows of {tokenizer_name} are those of its "
            "weights"
        )
    elif recorded != tokenizer_sha256(tokenizer):
        raise UserError(
            f"--tokenizer_name {tokenizer_name}: it is not the tokenizer with which {weights} was trained: its SHA-256 "
            f"is {tokenizer_sha256(tokenizer)[:12]}..., in run.json it is {str(recorded)[:12]}...; give that one"
        )
    return tokenizer


def _same_place(one: str, other: str) -> bool:
    return one == other or (Path(one).exists() and Path(other).exists() and Path(one).samefile(other))


def weights_tokenizer(weights: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer beside the weights of a checkpoint; None if there is none."""
    if is_old_checkpoint(weights):
        files = find_old_files(weights)
        return old_tokenizer(files.vocabulary, POSITIONS, quiet=True).tokenizer if files.vocabulary else None
    folder = _run_of_checkpoint(Path(weights)) or tokenizer_folder(weights, download=True)
    if folder is None or not _has_tokenizer(folder):
        return None
    if is_vocabulary_alone(folder):
        return old_tokenizer(folder, POSITIONS, quiet=True).tokenizer
    return open_tokenizer(str(folder), quiet=True)


def _run_of_checkpoint(folder: Path) -> Path | None:
    """The folder of the run of a checkpoint without a tokenizer, if the tokenizer is there; otherwise None."""
    run = folder.absolute().parent
    bare = (folder / "training_state.pt").is_file() and not _has_tokenizer(folder)
    return run if bare and _has_tokenizer(run) else None


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / file).is_file() for file in TOKENIZER_FILES[:3])


def carry_modules(name: str | None, folder: Path) -> None:
    """Write into a folder that continues from ``name`` what sentence-transformers reads there beside the encoder."""
    try:
        files = embedding_modules(name) if name else {}
    except (UserError, OSError) as error:
        say(f"warning: {error}. The new folder has no modules of sentence-transformers, which takes the tokens' mean")
        return
    write_files(folder, files)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their names in a folder, each whole or not at all."""
    for file, content in files.items():
        make_folder((folder / file).parent)
        with whole_file(folder / file) as draft:
            draft.write_bytes(content)


def embedding_modules(name: str) -> dict[str, bytes]:
    """What sentence-transformers reads of a checkpoint beside the encoder: file -> content; none without modules.json.

    The encoder is in no folder of its own, and each other module in one that is named here.

    Raises:
        ValueError: a module is of another kind than those of MODULES, lacks a file or leads out of the folder.
        OSError: the Hub has no answer.
    """
    name = str(_run_of_checkpoint(Path(name)) or name)
    if not (listed := _beside(name, MODULE_LIST)).is_file():
        return {}
    modules = read_json(listed)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise UserError(f"{listed}: expected a list of modules, got {str(modules)[:80]!r}")
    paths = {PROMPTS: _beside(name, PROMPTS)}
    for number, module in enumerate(modules):
        library, _, kind = str(module.get("type")).rpartition(".")
        path, place = module.get("path"), "" if kind == "Transformer" else f"{number}_{kind}"
        known = library.startswith("sentence_transformers.") and kind in MODULES
        if not known or not (is_plain_name(path) or path == place):
            raise UserError(f"{listed}: expected {', '.join(MODULES)}, each in a folder, got {str(module)[:120]!r}")
        for file in WEIGHTS if place else (LIMITS, TOKENIZER_CONFIG):
            paths[f"{place}/{file}".lstrip("/")] = found = _beside(name, str(Path(path, file)))
            if file in MODULES[kind] and not found.is_file():
                raise UserError(f"{listed}: expected {file} in {path}, found none")
        module["path"] = place
    settings = fields_of(paths.pop(TOKENIZER_CONFIG, Path()))
    files = {file: path.read_bytes() for file, path in paths.items() if path.is_file()}
    limits = fields_of(paths.get(LIMITS, Path()))
    if limits.get("max_seq_length") is None and (length := settings.get("model_max_length") or 1e30) < 1e30:
        limits["max_seq_length"] = length  # newer versions keep it there; a saved tokenizer has all positions
    return files | {LIMITS: json_text(limits).encode(), MODULE_LIST: json_text(modules).encode()}


def _beside(name: str, file: str) -> Path:
    """A file of a folder or, downloaded, of a name on the Hub; it may not be there."""
    if Path(name).exists() or Path(f"{name}.index").exists():  # a folder, an old file, or the prefix of TensorFlow's
        return Path(name, file)
    return Path(cached_file(name, file, _raise_exceptions_for_missing_entries=False) or "")
