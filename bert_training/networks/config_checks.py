"""What a config.json of unknown origin claims, checked before memory is used and before a library acts on it.

A config of 500 bytes can ask for a network of terabytes or for a billion layers, and can name a kernel of the Hub,
which transformers would download and execute.
"""

import fnmatch
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from transformers import BertConfig, PretrainedConfig
from transformers.activations import ACT2FN
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME

from bert_training.files.json_files import is_plain_name, read_object
from bert_training.files.weights_header import elements_in, files_of_index
from bert_training.networks.tokenizer_rules import check_rules
from tokenization.errors import UserError

Made = TypeVar("Made")

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
ATTENTION = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "special_tokens_map.json",
    "added_tokens.json",
)
OTHER_FILES = (
    *("vocab.json", "merges.txt", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "chat_template.jinja"),
)
RULES = "tokenizer.*json"  # tokenizer.json, and those for single versions of transformers (tokenizer.4.0.0.json)
MOST_LABELS = 1_000_000
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
# What a network returns is for the script or the command to decide: other values would end in errors far from here.
PLAIN_OUTPUTS = {"output_attentions": False, "output_hidden_states": False, "return_dict": True}
# A config may describe a new head, or a vocabulary that is cut to fit, so its network may be larger than the weights.
SLACK = 50_000_000


def check_claims(path: Path, fields: dict[str, Any]) -> None:
    """Check the content of a config.json.

    Args:
        path: the file, for error messages.

    Raises:
        ValueError: it is not one of BERT, a size is no positive whole number, the network would be larger than the
            memory of this machine, its weights are quantised, or its attention is code from the Hub.
    """
    if (kind := fields.get("model_type", "bert")) != "bert":
        raise UserError(f"{path}: expected a BERT checkpoint, got model_type {str(kind)[:60]!r}")
    sizes = sizes_of(fields)
    for name, value in sizes.items():
        if type(value) is not int or value < (name != "num_hidden_layers"):  # there may be no layer
            raise UserError(f"{path}: {name} must be a positive whole number, got {str(value)[:60]!r}")
    if sizes["hidden_size"] % sizes["num_attention_heads"]:
        raise UserError(
            f"{path}: hidden_size {sizes['hidden_size']} cannot be divided among {sizes['num_attention_heads']} heads"
        )
    needed, memory = 4 * parameters_of(sizes), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise UserError(
            f"{path}: a network of these sizes has {needed / 2**30:,.0f} GiB of weights, this machine has "
            f"{memory / 2**30:,.0f} GiB of memory; correct the sizes, or take a larger machine"
        )
    check_labels(path, fields)
    check_values(path, fields, sizes["vocab_size"])
    if fields.get("quantization_config") is not None:
        raise UserError(f"{path}: the weights are quantised; give a folder with the original weights")
    if fields.get("transformers_weights") is not None:
        raise UserError(f"{path}: transformers_weights names a file of weights; rename it to {SAFE_WEIGHTS_NAME}")
    for name in ("attn_implementation", "_attn_implementation"):
        if (value := fields.get(name)) is not None and value not in ATTENTION:
            raise UserError(
                f"{path}: {name} is {str(value)[:60]!r}, expected one of {', '.join(ATTENTION)}; another name may be "
                "code of the Hub, which is not executed"
            )


def check_values(path: Path, fields: dict[str, Any], vocab_size: int) -> None:
    """Check the fields of a config.json with which torch would fail only when the network computes.

    Raises:
        ValueError: one has a value that no BERT can have.
    """

    def expect(name: str, fits: bool, what: str) -> None:
        if not fits:
            raise UserError(f"{path}: {name} must be {what}, got {str(fields[name])[:60]!r}; correct it")

    for name in DROPOUTS:
        if (value := fields.get(name)) is not None:
            expect(name, type(value) in (int, float) and 0 <= value < 1, "a number of at least 0 and below 1")
    if (value := fields.get("hidden_act")) is not None:
        expect("hidden_act", isinstance(value, str) and value in ACT2FN, f"one of {', '.join(ACT2FN)}")
    if (value := fields.get("pad_token_id")) is not None:
        expect("pad_token_id", type(value) is int and 0 <= value < vocab_size, f"an id below {vocab_size:,}, or null")
    if (value := fields.get("chunk_size_feed_forward", 0)) != 0 or type(value) is not int:
        expect("chunk_size_feed_forward", False, "0 (no chunks)")
    if fields.get("add_cross_attention"):
        expect("add_cross_attention", False, "false, as there is no second network to attend to")


def set_plain_outputs(config: PretrainedConfig) -> list[str]:
    """Set the fields of a config that say what a network returns to their defaults; return the names of the changed."""
    changed = [name for name, value in PLAIN_OUTPUTS.items() if getattr(config, name, value) != value]
    for name in changed:
        setattr(config, name, PLAIN_OUTPUTS[name])
    return changed


def accepted(path: Path, make: Callable[[], Made]) -> Made:
    """What transformers makes of a config.json; its errors, which are of many kinds, become one line.

    Raises:
        ValueError: transformers refuses the file.
        OSError: the file cannot be read.
    """
    try:
        return make()
    except OSError:
        raise
    except Exception as error:
        raise UserError(
            f"{path}: transformers refuses it ({' '.join(str(error).split())[:300]}); correct it"
        ) from error


def check_labels(path: Path, fields: dict[str, Any]) -> None:
    """Check the number of labels in a config.json, for each of which transformers makes a name.

    Raises:
        ValueError: there are too many.
    """
    labels = fields.get("num_labels")
    if labels is not None and (type(labels) is not int or not 0 <= labels <= MOST_LABELS):
        raise UserError(f"{path}: num_labels must be at most {MOST_LABELS:,}, got {str(labels)[:60]!r}")


def check_tokenizer_files(folder: Path) -> None:
    """Check the files from which transformers makes a tokenizer; config.json is one of them.

    Raises:
        ValueError: one is too large, the config is no JSON or has too many labels, a file elsewhere is named, or the
            rules of the tokenizer could make a text too long.
    """
    if (folder / CONFIG_NAME).is_file():
        check_labels(folder / CONFIG_NAME, read_object(folder / CONFIG_NAME))
    check_named_files(folder / "tokenizer_config.json")
    for path in folder.glob(RULES):
        check_rules(path)


def check_named_files(path: Path) -> None:
    """Check the names of files in a tokenizer_config.json that transformers would read in place of tokenizer.json.

    Raises:
        ValueError: one of them is no plain name of a tokenizer.json, as it could lead anywhere.
    """
    try:
        names = read_object(path).get("fast_tokenizer_files", []) if path.is_file() else []
    except ValueError:  # transformers reads it, too, and says what is wrong
        return
    if wrong := [name for name in names if not _is_tokenizer(name)] if isinstance(names, list) else [names]:
        raise UserError(
            f"{path}: expected in 'fast_tokenizer_files' names of files beside it, such as tokenizer.4.0.0.json, got "
            f"{str(wrong[0])[:80]!r}; nothing outside its folder is read"
        )


def _is_tokenizer(name: Any) -> bool:
    return is_plain_name(name) and fnmatch.fnmatch(name, RULES)


def sizes_of(fields: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a network by their names in config.json; transformers' own where the config has none."""
    return {name: fields.get(name, getattr(BertConfig(), name)) for name in SIZES}


def parameters_of(sizes: dict[str, int]) -> int:
    """The number of parameters of the encoder with its embeddings and its pooler."""
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    rows = sizes["vocab_size"] + sizes["max_position_embeddings"] + sizes["type_vocab_size"]
    layer = 4 * (hidden * hidden + hidden) + 2 * hidden * inner + inner + hidden + 4 * hidden
    return rows * hidden + 2 * hidden + sizes["num_hidden_layers"] * layer + hidden * hidden + hidden


def check_against_weights(folder: Path, fields: dict[str, Any]) -> None:
    """Check the files of weights in a folder, and that its config does not claim far more than they hold.

    Raises:
        ValueError: an index names files outside the folder, a header is damaged, or the network of the config would
            have more than twice the parameters of the weights.
    """
    files = [SAFE_WEIGHTS_NAME]
    if not (folder / SAFE_WEIGHTS_NAME).is_file():
        indices = (SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_INDEX_NAME)
        index = next((name for name in indices if (folder / name).is_file()), None)
        if index is None or (index == WEIGHTS_INDEX_NAME and (folder / WEIGHTS_NAME).is_file()):
            return
        files = files_of_index(folder / index)
    if any(not name.endswith(".safetensors") or not (folder / name).is_file() for name in files):
        return
    held, claimed = sum(elements_in(folder / name) for name in files), parameters_of(sizes_of(fields))
    if claimed > 2 * held + SLACK:
        raise UserError(
            f"{folder}: the network of config.json has {claimed:,} parameters, but the weights hold {held:,}; take "
            "both from the same folder"
        )
