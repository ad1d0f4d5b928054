"""The network and its optimiser, on the device and as the processes need them.

A TPU replaces every parameter when a network is moved to it. Weights that were one parameter under two names, as the
word embeddings and the decoder of the masked LM are, then become two: the decoder would keep its first values for ever,
because Accelerate's optimiser knows only the other one, and the gradient would miss the larger part of the embeddings.
https://huggingface.co/docs/accelerate/concept_guides/training_tpu says that such weights must be tied again.
"""

from typing import Any, cast

import torch
from transformers import PreTrainedModel

from bert_training.engine.fsdp import is_sharded
from bert_training.engine.run import Run
from bert_training.inputs.flags.shared import SharedArguments


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
