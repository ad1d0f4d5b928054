"""How a network computes: what its config does not say and no saved folder keeps."""

from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from bert_training.inputs.flags.shared import SharedArguments


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
