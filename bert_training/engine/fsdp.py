"""Weights and optimiser state of a model that is sharded over the processes (FSDP2, torch's ``fully_shard``).

Checkpoints and the finished folder contain full tensors under their usual names, whether the model was sharded or not.
For a model that is not sharded, these functions change nothing, except on a TPU, whose tensors have no memory that
safetensors could write: they are copied to the CPU.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from accelerate.utils import send_to_device
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    ValueType,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from transformers import PreTrainedModel

from bert_training.engine.run import Run
from bert_training.inputs.flags.shared import SharedArguments

WHOLE_ON_CPU = StateDictOptions(full_state_dict=True, cpu_offload=True)


def is_sharded(model: nn.Module) -> bool:
    """Whether each process holds only a part of every parameter."""
    return any(hasattr(parameter, "full_tensor") for parameter in model.parameters())


def on_tpu(model: nn.Module) -> bool:
    """Whether the weights are on a device of torch_xla."""
    return any(parameter.device.type == "xla" for parameter in model.parameters())


def full_weights(run: Run[SharedArguments], model: nn.Module) -> dict[str, ValueType] | None:
    """The full weights, on the main process; None if the model can be saved as it is. All processes call it."""
    if on_tpu(model):
        bare = run.accelerator.unwrap_model(model)
        tied = bare.all_tied_weights_keys or {}
        return {name: tensor.cpu() for name, tensor in bare.state_dict().items() if name not in tied}
    if not is_sharded(model):
        return None
    tied = run.accelerator.unwrap_model(model).all_tied_weights_keys or {}
    weights = get_model_state_dict(model, options=WHOLE_ON_CPU)
    return {name: tensor for name, tensor in weights.items() if name not in tied}


def full_optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    """The optimiser's state with full tensors, on the main process. All processes call it."""
    if on_tpu(model):
        return send_to_device(optimizer.state_dict(), "cpu")
    if not is_sharded(model):
        return optimizer.state_dict()
    return get_optimizer_state_dict(model, _bare(optimizer), options=WHOLE_ON_CPU)


def load_full_state(
    model: nn.Module, optimizer: torch.optim.Optimizer, weights: Mapping[str, torch.Tensor], moments: dict
) -> None:
    """Give each process its part of the full weights and of the optimiser's state."""
    load_full_weights(model, weights)
    set_optimizer_state_dict(model, _bare(optimizer), moments, options=StateDictOptions(full_state_dict=True))


def load_full_weights(model: nn.Module, weights: Mapping[str, torch.Tensor]) -> None:
    """Give each process its part of the full weights."""
    # Not strict, because tied weights are saved under one name only.
    set_model_state_dict(model, dict(weights), options=StateDictOptions(full_state_dict=True, strict=False))


def _bare(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    return getattr(optimizer, "optimizer", optimizer)  # the attribute of Accelerate's wrapper for torch's optimiser


def prepare(
    run: Run[SharedArguments], model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Any, torch.optim.Optimizer]:
    """``Accelerator.prepare``, after which the tied weights are tied and the optimiser has the network's parameters.

    The optimiser is made before, because FSDP and TPUs exchange its parameters in ``prepare``.
    """
    model, optimizer = run.accelerator.prepare(model, optimizer)
    if not is_sharded(model):
        bare = cast(PreTrainedModel, run.accelerator.unwrap_model(model))
        if broken_ties(bare):
            assert bare is model, "a wrapped network cannot be tied again, because its wrapper knows its parameters"
            bare.tie_weights()
        assert not broken_ties(bare)
        check_optimizer(bare, optimizer)
    return model, optimizer


def broken_ties(model: torch.nn.Module) -> list[str]:
    """The names of parameters that should be another one of the network, but are parameters of their own."""
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    return [name for name, source in tied.items() if model.get_parameter(name) is not model.get_parameter(source)]


def check_optimizer(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Assert that an optimiser has exactly the parameters that a network trains, each of them once."""
    trained = {id(weight): name for name, weight in model.named_parameters() if weight.requires_grad}
    held = [id(weight) for group in optimizer.param_groups for weight in group["params"]]
    missing = [trained[number] for number in trained.keys() - {*held}]
    assert not missing, f"the optimiser does not have {', '.join(missing[:3])}"
    assert len(held) == len(trained), f"the optimiser has {len(held)} parameters, the network trains {len(trained)}"
