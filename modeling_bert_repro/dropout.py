"""Dropout that spends less on random numbers, for CPUs; used where `config.fast_dropout` is set.

torch draws one double for every value that may be dropped. On a CPU that is most of dropout's time, and dropout most
of attention's in training (docs/performance.md). Here one 64-bit draw decides four values, 16 bits each. The masks
are other ones than torch's from the same seed, so the switch is off unless asked for. It has no effect on other
devices, on small tensors, under torch.compile and on left-to-right attention.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig

STEPS = 1 << 16  # probabilities are multiples of 1 / STEPS; the scale is that of the multiple, so the mean is exact
SMALLEST = 1 << 15  # values; for fewer, what a Python function costs autograd is more than what is saved


def drops_fast(config: BertConfig, values: Tensor) -> bool:
    switched_on = getattr(config, "fast_dropout", False)
    return switched_on and values.device.type == "cpu" and not torch.compiler.is_compiling()


class FastDropout(torch.autograd.Function):
    """Autograd would keep more than the mask, and pass over the values more often."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, dropped: int) -> Tensor:
        count = values.numel()
        draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
        # dropped of the STEPS values of an int16 lie below the threshold
        kept = (draws.view(torch.int16)[:count] >= dropped - STEPS // 2).view(values.shape)
        ctx.save_for_backward(kept)
        ctx.scale = STEPS / (STEPS - dropped)
        return kept.to(values.dtype).mul_(values).mul_(ctx.scale)  # where() takes twice as long

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return kept.to(gradient.dtype).mul_(gradient).mul_(ctx.scale), None


def fast_dropout(values: Tensor, p: float) -> Tensor:
    """`values` with each element dropped with probability p, rounded to 1 / 65,536, and the others scaled up."""
    dropped = round(p * STEPS)
    if values.numel() < SMALLEST or not 0 < dropped < STEPS:
        return F.dropout(values, p)
    return FastDropout.apply(values, dropped)


class BertDropout(nn.Dropout):
    """nn.Dropout that looks at `config.fast_dropout`."""

    def __init__(self, p: float, config: BertConfig):
        super().__init__(p)
        self.config = config

    def forward(self, values: Tensor) -> Tensor:
        if self.training and drops_fast(self.config, values):
            return fast_dropout(values, self.p)
        return super().forward(values)


def fast_dropout_attention(
    module: nn.Module,
    query: Tensor,  # (B, N, L, D)
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # bool (sdpa's) or additive (eager's)
    dropout: float,
    scaling: float,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Attention written out, as sdpa on a CPU does with dropout; (B, L, N, D) and the weights (B, N, L, L)."""
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    weights = fast_dropout(F.softmax(scores, dim=-1), dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights
