"""Weights and optimiser state of a model that is spread over the processes (FSDP2, torch's ``fully_shard``).

Checkpoints and the finished folder hold whole tensors under their ordinary names, so a model that was trained in
parts is saved as any other. A model that is not spread needs none of this and is left alone.
"""

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from training.engine.run import Run

WHOLE_ON_CPU = StateDictOptions(full_state_dict=True, cpu_offload=True)


def is_sharded(model: nn.Module) -> bool:
    """Whether each process holds only a part of the parameters."""
    return any(hasattr(parameter, "full_tensor") for parameter in model.parameters())


def full_weights(run: Run, model: nn.Module) -> dict[str, torch.Tensor] | None:
    """The whole weights, on the main process; None if the model holds them itself. All processes call it."""
    if not is_sharded(model):
        return None
    tied = run.accelerator.unwrap_model(model).all_tied_weights_keys or {}
    weights = get_model_state_dict(model, options=WHOLE_ON_CPU)
    return {name: tensor for name, tensor in weights.items() if name not in tied}


def full_optimizer_state(model: nn.Module, optimizer) -> dict:
    """The optimiser's state with whole tensors, on the main process. All processes call it."""
    if not is_sharded(model):
        return optimizer.state_dict()
    return get_optimizer_state_dict(model, _bare(optimizer), options=WHOLE_ON_CPU)


def load_full_state(model: nn.Module, optimizer, weights: dict[str, torch.Tensor], moments: dict) -> None:
    """Hand each process its part of the whole weights and of the optimiser's state."""
    load_full_weights(model, weights)
    set_optimizer_state_dict(model, _bare(optimizer), moments, options=StateDictOptions(full_state_dict=True))


def load_full_weights(model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Hand each process its part of the whole weights."""
    # Not strict: of tied weights only one name is saved
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, strict=False))


def _bare(optimizer) -> torch.optim.Optimizer:
    return getattr(optimizer, "optimizer", optimizer)  # Accelerate's wrapper holds torch's under this name
