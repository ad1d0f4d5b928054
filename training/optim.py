"""AdamW and the linear schedule (paper, A.2; google-research/bert ``optimization.py``)."""

import re

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers.utils import is_torch_xla_available

EXEMPT = re.compile(r"(^|\.)(LayerNorm\.weight|bias(_[ih]h_l\d+(_reverse)?)?)$")  # bias_ih_l0: an LSTM's


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Every trainable parameter in one of two groups: decayed, or exempt (biases, LayerNorm weights)."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    exempt = [p for name, p in named if EXEMPT.search(name)]
    decayed = [p for name, p in named if not EXEMPT.search(name)]
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": exempt, "weight_decay": 0.0},
    ]


def create_optimizer(model: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW with the paper's betas (0.9, 0.999) and the eps 1e-6 of the original code."""
    groups = parameter_groups(model, weight_decay)
    fused = not is_torch_xla_available()
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.999), eps=1e-6, fused=fused)


def linear_schedule(optimizer: torch.optim.Optimizer, warmup_steps: float, total_steps: int) -> LambdaLR:
    """From 0 up to the peak over the warm-up, then down to 0 at ``total_steps``.

    Args:
        warmup_steps: a count of optimiser steps, or a share of ``total_steps`` if below 1.
    """
    warmup = round(warmup_steps * total_steps) if warmup_steps < 1 else round(warmup_steps)
    if warmup > total_steps:
        raise ValueError(f"--warmup_steps {warmup} is more than the {total_steps} steps of the run")

    def factor(step: int) -> float:
        if step < warmup:
            return step / warmup
        return max(0.0, (total_steps - step) / max(1, total_steps - warmup))

    return LambdaLR(optimizer, factor)
