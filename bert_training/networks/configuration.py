"""Configurations of networks by name, and checks that tokenizer, network and length fit together."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import BertConfig, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.files.harmless_output import say
from bert_training.files.json_files import read_object
from bert_training.inputs.flags.pretraining import CONFIG_SIZES, ROUNDED_TO
from bert_training.inputs.flags.shared import SharedArguments
from bert_training.inputs.rows import nfc
from tokenization.errors import UserError
from tokenization.special_tokens import check_special_tokens

# The sizes of Google's vocabularies, which are not rounded up: English (uncased, cased), Chinese, multilingual (two).
PUBLISHED_SIZES = (30522, 28996, 21128, 119547, 105879)
ATTENTION = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3")
# What a network returns is for the script or the command to decide: other values would end in errors far from here.
PLAIN_OUTPUTS = {"output_attentions": False, "output_hidden_states": False, "return_dict": True}
# The values that these fields may have, and what another one would mean; a field that is not there has any of them.
EXPECTED = {
    "position_embedding_type": (("absolute",), "this network adds absolute positions"),
    "transformers_weights": ((), "it names a file of weights, which model.safetensors is to be called"),
    "attn_implementation": (ATTENTION, "another name may be code of the Hub, which is not executed"),
    "_attn_implementation": (ATTENTION, "another name may be code of the Hub, which is not executed"),
}


def check_claims(path: Path, fields: dict[str, Any]) -> None:
    """Check the content of the config.json at ``path``. Raises ValueError if it is not for this network."""
    if (kind := fields.get("model_type", "bert")) != "bert":
        raise UserError(f"{path}: expected a BERT checkpoint, got model_type {str(kind)[:60]!r}")
    for name, (values, why) in EXPECTED.items():
        if (value := fields.get(name)) is not None and value not in values:
            wanted = f"expected {' or '.join(values)}" if values else "leave it out"
            raise UserError(f"{path}: {name} is {str(value)[:60]!r}, {wanted}: {why}")


def set_plain_outputs(config: PretrainedConfig) -> list[str]:
    """Set the fields of a config that say what a network returns to their defaults; return the names of the changed."""
    changed = [name for name, value in PLAIN_OUTPUTS.items() if getattr(config, name, value) != value]
    for name in changed:
        setattr(config, name, PLAIN_OUTPUTS[name])
    return changed


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
    path = Path(config_name) / "config.json"
    if not path.is_file():
        raise UserError(
            f"--config_name {config_name}: expected one of {', '.join(CONFIG_SIZES)}, or a folder with config.json"
        )
    check_claims(path, read_object(path))
    return BertConfig.from_pretrained(config_name, vocab_size=vocab_size, **fields)


def new_config(config_name: str, tokenizer: PreTrainedTokenizerBase) -> BertConfig:
    """The configuration for new weights and this tokenizer; what the folder said otherwise is printed.

    A folder's ``vocab_size`` is kept if it is the tokenizer's rounded up, which makes products of matrices faster.

    Raises:
        ValueError: as for ``bert_config``.
    """
    fields = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    config = bert_config(config_name, **fields)
    stated = read_object(Path(config_name) / "config.json") if config_name not in CONFIG_SIZES else {}
    if rounded_to(stated.get("vocab_size", 0), len(tokenizer)):
        config.vocab_size = fields["vocab_size"] = stated["vocab_size"]
    if changed := [name for name, value in fields.items() if stated.get(name, value) != value]:
        told = ", ".join(
            f"{name} {_number(fields[name])} (the folder's config says {_number(stated[name])})" for name in changed
        )
        say(f"--config_name {config_name}: new weights take the tokenizer's {told}")
    return config


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def rounded_to(rows: int, pieces: int) -> int | None:
    """The number of ``ROUNDED_TO`` of which ``rows`` is the next multiple from ``pieces`` on; None for others."""
    return next((number for number in ROUNDED_TO if -(-pieces // number) * number == rows), None)


def set_switches(config: PretrainedConfig) -> None:
    """Set the switches that make this project's network faster (lab/notes/performance.md); they are never saved."""
    config.update({"unpad_inputs": "auto", "fast_dropout": True})


def set_dropout(model: PreTrainedModel, rate: float) -> None:
    """Drop this share of all hidden values and attention weights; ``model.config``, which is saved, stays as it is."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate


def keep_to_segments(model: PreTrainedModel) -> PreTrainedModel:
    """Let a network that has only one segment read every token as that, whatever the tokenizer says of pairs."""
    if model.config.type_vocab_size == 1:
        for name, module in model.named_modules():
            if name.endswith("token_type_embeddings"):
                module.register_forward_pre_hook(_in_segment_0)
    return model


def _in_segment_0(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (inputs[0].clamp(max=0),)  # not zeros, which would leave token_type_ids out of an exported graph


def prepare_for_training(model: PreTrainedModel, args: SharedArguments) -> None:
    """Apply --gradient_checkpointing and --torch_compile, which change results by rounding at most."""
    keep_to_segments(model)  # new weights have not been through load_network
    if args.gradient_checkpointing:
        # transformers 5.23 deprecates the older name; 5.17 has only that one.
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable()
    if args.torch_compile:
        model.compile()


def check_fit(config: BertConfig, tokenizer: PreTrainedTokenizerBase, max_seq_length: int, quiet: bool = False) -> None:
    """Check that the network has embeddings for the tokenizer's ids and for the length, and no others.

    Args:
        quiet: do not print that the network's rows are the tokenizer's rounded up, or that it has one segment.

    Raises:
        ValueError: it has too few, or more than rounding up explains.
    """
    check_special_tokens(tokenizer)
    if (last := max(tokenizer.get_vocab().values())) >= max(config.vocab_size, len(tokenizer)):
        raise UserError(
            f"the tokenizer has {len(tokenizer)} pieces, but one of them has the id {last:,}; use the tokenizer that "
            "the model was trained with"
        )
    if len(tokenizer) > config.vocab_size:
        raise UserError(
            f"the tokenizer has {len(tokenizer)} pieces but the model only {config.vocab_size} embeddings; "
            "use the tokenizer that the model was trained with; for tokens that you have added, save the model after "
            "resize_token_embeddings(len(tokenizer)); for new pieces, give it to run_pretraining.py first, or "
            "extend the folder of the model with bert-repro vocabulary --extend"
        )
    rows, pieces = config.vocab_size, len(tokenizer)
    # Some models round their embeddings up; any other difference means another vocabulary.
    multiple = rounded_to(rows, pieces)
    if rows > pieces and (multiple is None or rows in PUBLISHED_SIZES):
        why = f"{rows} is not {pieces} rounded up to a multiple of {', '.join(map(str, ROUNDED_TO))}"
        if rows in PUBLISHED_SIZES:
            why = f"{rows} is the size of a whole vocabulary of Google's"
        raise UserError(
            f"the model has {rows} embeddings but the tokenizer only {pieces} pieces, and {why}; use the tokenizer "
            "that the model was trained with, and restore rows that were deleted from vocab.txt"
        )
    if rows > pieces and not quiet:
        say(
            f"note: the model has {rows:,} embeddings and the tokenizer {pieces:,} pieces, which is right if they were "
            f"rounded up to a multiple of {multiple}; if rows were deleted from vocab.txt, restore them"
        )
    if config.type_vocab_size == 1 and not quiet:
        say("note: the model has one segment (type_vocab_size 1), so both texts of a pair are read as segment 0")
    check_length(config, max_seq_length)


def check_length(config: BertConfig, max_seq_length: int) -> None:
    """Raise ValueError if the network has fewer position embeddings than ``max_seq_length``."""
    if max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length {max_seq_length} is over the model's maximum of {config.max_position_embeddings}; "
            f"give --max_seq_length {config.max_position_embeddings}, or less"
        )


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
