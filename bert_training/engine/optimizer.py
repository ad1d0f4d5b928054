"""AdamW and the schedules (paper, A.2; google-research/bert ``optimization.py``)."""

import re

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from bert_training.engine.run import has_tpu
from tokenization.errors import UserError

# Parameters without weight decay; names such as bias_ih_l0 are those of an LSTM's biases.
EXEMPT = re.compile(r"(^|\.)(LayerNorm\.weight|bias(_[ih]h_l\d+(_reverse)?)?)$")
BETAS, EPS = (0.9, 0.999), 1e-6


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """All trainable parameters in two groups: with weight decay, and without (biases and LayerNorm weights)."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    exempt = [parameter for name, parameter in named if EXEMPT.search(name)]
    decayed = [parameter for name, parameter in named if not EXEMPT.search(name)]
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": exempt, "weight_decay": 0.0},
    ]


def create_optimizer(model: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """torch's AdamW with the betas and eps of google-research/bert, and the two groups of ``parameter_groups``."""
    groups = parameter_groups(model, weight_decay)
    return torch.optim.AdamW(groups, lr=learning_rate, betas=BETAS, eps=EPS, fused=not has_tpu())


def linear_schedule(optimizer: torch.optim.Optimizer, warmup_steps: float, total_steps: int) -> LambdaLR:
    """A schedule that raises the learning rate linearly from 0 in the warm-up, then lowers it to 0 at ``total_steps``.

    Args:
        warmup_steps: a number of optimiser steps or, below 1, a share of ``total_steps``.

    Raises:
        ValueError: the warm-up is longer than the run.
    """
    warmup = steps_of_warmup(warmup_steps, total_steps)

    def factor(step: int) -> float:
        if step < warmup:
            return step / warmup
        return min(1.0, max(0.0, (total_steps - step) / max(1, total_steps - warmup)))

    return LambdaLR(optimizer, factor)


def create_schedule(name: str, optimizer: torch.optim.Optimizer, warmup_steps: float, total_steps: int) -> LambdaLR:
    """``linear_schedule``, or transformers' schedule "cosine" or "constant"; all of them begin with the warm-up.

    Raises:
        ValueError: the warm-up is longer than the run.
    """
    if name == "linear":
        return linear_schedule(optimizer, warmup_steps, total_steps)
    from transformers import get_scheduler  # imported here because it imports peft, which takes half a second

    kind = {"cosine": "cosine", "constant": "constant_with_warmup"}[name]
    return get_scheduler(kind, optimizer, steps_of_warmup(warmup_steps, total_steps), total_steps)


def steps_of_warmup(warmup_steps: float, total_steps: int) -> int:
    """The length of the warm-up in steps; arguments and errors are those of ``linear_schedule``."""
    warmup = round(warmup_steps * total_steps if warmup_steps < 1 else warmup_steps)
    if warmup > total_steps:
        raise UserError(f"--warmup_steps {warmup} is more than the {total_steps} steps of the run")
    return warmup
