"""Layers that are not trained (``--freeze_layers``)."""

from typing import Any

from transformers import PreTrainedModel

from bert_training.inputs.flags.controls import ControlArguments
from tokenization.errors import UserError


def check_layers(args: ControlArguments, layers: int) -> None:
    """Raise ValueError if more layers are to be frozen than the network has."""
    if args.freeze_layers is not None and args.freeze_layers > layers:
        raise UserError(
            f"--freeze_layers {args.freeze_layers}: the network has {layers} layers; give at most that many"
        )


def freeze_lowest(model: PreTrainedModel, layers: int) -> str:
    """Exclude the embeddings and the lowest ``layers`` layers from the training.

    They have dropout in training as before, so that the flag changes nothing but which weights are updated.

    Returns:
        What is frozen, in words.
    """
    bert: Any = model.base_model
    for part in (bert.embeddings, *bert.encoder.layer[:layers]):
        part.requires_grad_(False)
    of_layers = f" and the lowest {layers} of {len(bert.encoder.layer)} layers" if layers else ""
    frozen = sum(weight.numel() for weight in model.parameters() if not weight.requires_grad)
    return f"frozen: the embeddings{of_layers}, {frozen:,} of {model.num_parameters():,} parameters"
