"""What --model_name_or_path and --config_name may name: a folder, a name on the Hub, or a published size.

``open_model`` makes config and tokenizer of the flags, and checks that they belong together. The weights are loaded by
``bert_training/networks/initial_weights.py``. What only older programs could read (files of TensorFlow, a pickle
without config.json) is converted first, by ``bert-repro convert``.
"""

from pathlib import Path
from typing import Any

from transformers import AutoConfig, BertConfig, PretrainedConfig, PreTrainedTokenizerBase
from transformers.utils import (
    CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
    cached_file,
)

from bert_training.files.hashing import is_plain_name
from bert_training.files.processes import say
from bert_training.inputs.flags.fine_tuning import GlueArguments, NerArguments, SquadArguments, SwagArguments
from bert_training.inputs.flags.pretraining import CONFIG_SIZES, ROUNDED_TO
from bert_training.inputs.reading import read_object
from bert_training.inputs.rows import nfc
from bert_training.inputs.tokenizers import check_place, chosen_tokenizer
from tokenization.bert_tokenizer import check_special_tokens
from tokenization.errors import UserError

# The names are in the order in which transformers looks for them. An index lists the files of a sharded checkpoint.
WEIGHT_FILES = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME)
ADAPTER = "adapter_config.json"
# The sizes of Google's vocabularies, which are not rounded up: English (uncased, cased), Chinese, multilingual (two).
PUBLISHED_SIZES = (30522, 28996, 21128, 119547, 105879)
ATTENTION = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3")
# Of these fields other values would compute something else, or ask for code of the Hub.
EXPECTED: dict[str, tuple[str, ...]] = {
    "model_type": ("bert",),
    "position_embedding_type": ("absolute",),
    "attn_implementation": ATTENTION,
    "_attn_implementation": ATTENTION,
    "transformers_weights": (),  # another file of weights than the one that is hashed
}
# What a network returns is for the script or the command to decide.
OUTPUTS = {"output_attentions": False, "output_hidden_states": False, "return_dict": True}


def open_model(
    args: GlueArguments | SquadArguments | NerArguments | SwagArguments, label_at_cls: bool = False
) -> tuple[BertConfig, PreTrainedTokenizerBase]:
    """The config and the tokenizer that the flags of a fine-tuning script name; they fit each other and the length.

    Args:
        label_at_cls: the label is predicted from [CLS], the first token, which a left-to-right network cannot do.

    Raises:
        ValueError: there is no such model, it is not a BERT, a row of the vocabulary stands for another piece in the
            weights, or config, tokenizer, length, ``label_at_cls`` and --keep_layers do not fit together.
    """
    if args.model_name_or_path:
        config = checkpoint_config(args.model_name_or_path)  # whether it is a BERT at all comes first
    tokenizer = chosen_tokenizer(args.tokenizer_name, args.model_name_or_path)
    if not args.model_name_or_path:
        assert args.config_name is not None  # one of the two flags is required
        config = new_config(args.config_name, tokenizer)
    if label_at_cls and config.is_decoder:
        raise UserError(
            "the model attends left to right (is_decoder in its config): [CLS], from which the label is read, comes "
            "first and sees no other token; use a model pre-trained with --objective mlm_nsp or mlm, or run_glue.py "
            "with --label_token last"
        )
    check_fit(config, tokenizer, args.max_seq_length)
    check_kept_layers(getattr(args, "kept_layers", None), config)  # not every script has the flag
    return config, tokenizer


# --- the config of a checkpoint ---------------------------------------------------------------------------------------


def checkpoint_config(name: str, flag: str = "--model_name_or_path") -> BertConfig:
    """The config of a folder with weights or of a name on the Hub. Raises ValueError if it is not a BERT.

    Args:
        flag: the flag that gave the name.
    """
    check_model_name(name, flag)
    return exported_config(name)


def check_model_name(name: str, flag: str = "--model_name_or_path") -> None:
    """Raise UserError if a name can only be that of a folder or a file, and no weights are there."""
    check_place(name, flag)
    if Path(name).is_dir() and (problem := lacks_weights(Path(name))):
        raise UserError(f"{flag} {name}: expected a folder with a model; {problem}")


def lacks_weights(folder: Path) -> str:
    """What a folder holds in place of a config and weights, and what to do; "" if it may hold a model."""
    if (folder / ADAPTER).is_file():  # where peft is installed, transformers would take the weights of another folder
        return (
            f"it holds an adapter ({ADAPTER}), which changes another model; merge it into the weights with peft's "
            "merge_and_unload, save the result, and give that folder"
        )
    weights = any((folder / name).is_file() for name in WEIGHT_FILES)
    if weights and (folder / CONFIG_NAME).is_file():
        return ""
    held = ", ".join(sorted(path.name for path in folder.iterdir())[:20]) or "nothing"
    missing = [CONFIG_NAME] * (not (folder / CONFIG_NAME).is_file()) + ["weights"] * (not weights)
    return (
        f"it has no {' and no '.join(missing)}; it holds {held}. Give a folder with {CONFIG_NAME} and "
        f"{SAFE_WEIGHTS_NAME} or {WEIGHTS_NAME}. An older checkpoint is converted first (bert-repro convert {folder} "
        "FOLDER); weights of TensorFlow 2 or Flax are saved anew with transformers 4 (from_pretrained with from_tf or "
        "from_flax)"
    )


def exported_config(name: str) -> BertConfig:
    """The config of a folder that needs no weights, such as an export, or of a name on the Hub.

    Raises:
        ValueError: there is none, or it is not that of a BERT that this network computes.
    """
    path = Path(name, CONFIG_NAME)
    if not path.is_file():
        path = Path(cached_file(name, CONFIG_NAME) or "")
    fields = read_object(path)
    check_fields(path, fields)
    # Configs of before 2020 do not name the type, and AutoConfig refuses them.
    opened: Any = AutoConfig if "model_type" in fields else BertConfig
    return opened.from_pretrained(name, trust_remote_code=False, **OUTPUTS)


def check_fields(path: Path, fields: dict[str, Any]) -> None:
    """Raise ValueError if the fields of the config.json at ``path`` are those of another network."""
    for name, values in EXPECTED.items():
        if (value := fields.get(name)) is not None and value not in values:
            wanted = f"{name} {' or '.join(values)}" if values else f"no {name}"
            raise UserError(f"{path}: expected a BERT with {wanted}, got {str(value)[:60]!r}")


def config_labels(config: PretrainedConfig) -> tuple[str, ...] | None:
    """The label names of a model's config, in NFC; None if they are transformers' placeholders (LABEL_0, ...)."""
    labels: dict = config.id2label or {}
    names: tuple[Any, ...] = tuple(labels.get(number) for number in range(len(labels)))
    if not all(isinstance(name, str) and name.strip() for name in names) or len(set(names)) < len(names):
        raise UserError(
            f"{config.name_or_path or 'the model'}: id2label in config.json must give each of the numbers from 0 a "
            f"name of its own, got {str(labels)[:80]!r}; correct it"
        )
    return None if all(name == f"LABEL_{number}" for number, name in enumerate(names)) else (*map(nfc, names),)


def files_of_index(index: Path) -> list[str]:
    """The files with weights that an index names, each once. Raises ValueError for one that is not beside it."""
    names = sorted(set(read_object(index)["weight_map"].values()))
    if not all(map(is_plain_name, names)):
        raise UserError(f"{index}: expected names of files beside it, got {names}; nothing outside its folder is read")
    return names


# --- the config of new weights ----------------------------------------------------------------------------------------


def bert_config(config_name: str, vocab_size: int, **fields: Any) -> BertConfig:
    """A configuration for new weights.

    Args:
        config_name: a published size (``CONFIG_SIZES``), or a folder with ``config.json``.
        vocab_size: the number of pieces of the tokenizer, whatever the folder says.
        fields: fields of the configuration to set.

    Raises:
        ValueError: ``config_name`` is neither.
    """
    if config_name in CONFIG_SIZES:
        layers, hidden_size = CONFIG_SIZES[config_name]
        return BertConfig(
            vocab_size=vocab_size,
            num_hidden_layers=layers,
            hidden_size=hidden_size,
            num_attention_heads=hidden_size // 64,
            intermediate_size=4 * hidden_size,
            **fields,
        )
    path = Path(config_name) / CONFIG_NAME
    if not path.is_file():
        raise UserError(
            f"--config_name {config_name}: expected one of {', '.join(CONFIG_SIZES)}, or a folder with config.json"
        )
    check_fields(path, read_object(path))
    return BertConfig.from_pretrained(config_name, vocab_size=vocab_size, **fields)


def new_config(config_name: str, tokenizer: PreTrainedTokenizerBase) -> BertConfig:
    """The configuration for new weights and this tokenizer; what the folder said otherwise is printed.

    A folder's ``vocab_size`` is kept if it is the tokenizer's rounded up, which makes products of matrices faster.

    Raises:
        ValueError: as for ``bert_config``.
    """
    fields = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    config = bert_config(config_name, **fields)
    stated = read_object(Path(config_name) / CONFIG_NAME) if config_name not in CONFIG_SIZES else {}
    if rounded_to(stated.get("vocab_size", 0), len(tokenizer)):
        config.vocab_size = fields["vocab_size"] = stated["vocab_size"]
    if changed := [name for name, value in fields.items() if stated.get(name, value) != value]:
        told = ", ".join(f"{name} {fields[name]} (the folder's config says {stated[name]})" for name in changed)
        say(f"--config_name {config_name}: new weights take the tokenizer's {told}")
    return config


# --- config, tokenizer and flags together -----------------------------------------------------------------------------


def check_fit(config: BertConfig, tokenizer: PreTrainedTokenizerBase, max_seq_length: int, quiet: bool = False) -> None:
    """Check that the network has embeddings for the tokenizer's ids and for the length, and no others.

    Args:
        quiet: do not print that the network's rows are the tokenizer's rounded up, or that it has one segment.

    Raises:
        ValueError: it has too few, or more than rounding up explains.
    """
    check_special_tokens(tokenizer)
    rows, pieces = config.vocab_size, len(tokenizer)
    # Some models round their embeddings up; any other difference means another vocabulary.
    multiple = rounded_to(rows, pieces)
    problem = ""
    if rows < pieces or max(tokenizer.get_vocab().values()) >= rows:
        problem = (
            "for tokens that you have added, save the model after resize_token_embeddings(len(tokenizer)); for new "
            "pieces, give it to run_pretraining.py first, or extend the folder of the model with bert-repro vocabulary "
            "--extend"
        )
    elif rows > pieces and (multiple is None or rows in PUBLISHED_SIZES):
        problem = "restore rows that were deleted from vocab.txt"
    if problem:
        raise UserError(
            f"the model has {rows} embeddings and the tokenizer {pieces} pieces, which is not that number, nor rounded "
            f"up to a multiple of {', '.join(map(str, ROUNDED_TO))}; use the tokenizer of the model; {problem}"
        )
    if rows > pieces and not quiet:
        say(
            f"note: the model has {rows:,} embeddings and the tokenizer {pieces:,} pieces, which is right if they were "
            f"rounded up to a multiple of {multiple}; if rows were deleted from vocab.txt, restore them"
        )
    if config.type_vocab_size == 1 and not quiet:
        say("note: the model has one segment (type_vocab_size 1), so both texts of a pair are read as segment 0")
    check_length(config, max_seq_length)


def rounded_to(rows: int, pieces: int) -> int | None:
    """The number of ``ROUNDED_TO`` of which ``rows`` is the next multiple from ``pieces`` on; None for others."""
    return next((number for number in ROUNDED_TO if -(-pieces // number) * number == rows), None)


def check_length(config: BertConfig, max_seq_length: int, of: str = "the model") -> None:
    """Raise ValueError if the network has fewer position embeddings than ``max_seq_length``."""
    if max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length {max_seq_length} is over {of}'s maximum of {config.max_position_embeddings}; "
            f"give --max_seq_length {config.max_position_embeddings}, or less"
        )


def check_kept_layers(kept: tuple[int, ...] | None, config: PretrainedConfig) -> None:
    """Raise ValueError if --keep_layers names a layer that the network of ``config`` lacks."""
    layers = config.num_hidden_layers
    if kept is not None and kept[-1] >= layers:
        raise UserError(
            f"--keep_layers {','.join(map(str, kept))}: the model has {layers} layers, 0 to {layers - 1}; there is no "
            f"layer {kept[-1]}"
        )
