"""Dropout that spends less on random numbers, for CPUs; used where `config.fast_dropout` is set.

torch draws one double for every value that may be dropped. On a CPU that is most of dropout's time, and dropout most
of attention's in training (docs/performance.md). Here one 64-bit draw decides four values, 16 bits each. The masks
are other ones than torch's from the same seed, so the switch is off unless asked for. It has no effect on other
devices, on small tensors, under torch.compile and on left-to-right attention.
"""

import math
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from transformers import BertConfig

STEPS = 1 << 16  # probabilities are multiples of 1 / STEPS; the scale is that of the multiple, so the mean is exact
BLOCK = 1 << 16  # values of attention's weights: several tensors of that size fit a core's cache
SMALLEST = 1 << 15  # values; for fewer, what a Python function costs autograd is more than what is saved


def drops_fast(config: BertConfig, values: Tensor) -> bool:
    switched_on = getattr(config, "fast_dropout", False)
    return switched_on and values.device.type == "cpu" and not torch.compiler.is_compiling()


def draw(shape: torch.Size, dropped: int) -> Tensor:
    """bool, False in `dropped` of STEPS cases."""
    draws = torch.empty((shape.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    # dropped of the STEPS values of an int16 lie below the threshold
    return (draws.view(torch.int16)[: shape.numel()] >= dropped - STEPS // 2).view(shape)


class FastDropout(torch.autograd.Function):
    """Autograd would keep more than the mask, and pass over the values more often."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, dropped: int) -> Tensor:
        kept = draw(values.shape, dropped)
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


class DropoutAttention(torch.autograd.Function):
    """softmax(scores) dropped, times value; of the (B, N, L, L) tensors it keeps the softmax and a mask in bytes.

    A few sequences at a time, so that what is written once is read again from a core's cache.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, dropped: int
    ) -> Tensor:
        """mask: bool, (B, 1, L, L) or broadcastable."""
        size = (*query.shape[:3], key.shape[2])
        ctx.rows = max(1, BLOCK // math.prod(size[1:]))
        masks = repeat(None) if mask is None else mask.expand(size).split(ctx.rows)
        contexts, weights, kept = [], [], []
        for q, k, v, attended in zip(*(states.split(ctx.rows) for states in (query, key, value)), masks):
            scores = torch.matmul(q * scaling, k.transpose(2, 3))
            if attended is not None:
                scores = scores.masked_fill_(~attended, torch.finfo(scores.dtype).min)
            weights.append(F.softmax(scores, dim=-1))
            kept.append(draw(scores.shape, dropped))
            contexts.append(torch.matmul(kept[-1].to(weights[-1].dtype).mul_(weights[-1]).to(v.dtype), v))
        ctx.save_for_backward(query, key, value, *weights, *kept)
        ctx.scaling, ctx.scale = scaling, STEPS / (STEPS - dropped)
        return joined(contexts).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states = ctx.saved_tensors
        blocks = (len(states) - 3) // 2
        columns = (gradient, *states[:3])
        found: tuple[list[Tensor], ...] = ([], [], [])
        for g, q, k, v, weights, kept in zip(
            *(column.split(ctx.rows) for column in columns), states[3 : 3 + blocks], states[3 + blocks :]
        ):
            g, share = g * ctx.scale, kept.to(weights.dtype)
            slope = torch.matmul(g, v.transpose(2, 3)).to(weights.dtype).mul_(share)
            slope = torch._softmax_backward_data(slope, weights, -1, weights.dtype).to(q.dtype)
            dropped = share.mul_(weights).to(v.dtype)
            found[0].append(torch.matmul(slope, k).mul_(ctx.scaling))
            found[1].append(torch.matmul(slope.transpose(2, 3), q * ctx.scaling))
            found[2].append(torch.matmul(dropped.transpose(2, 3), g))
        return *map(joined, found), None, None, None


def joined(parts: list[Tensor]) -> Tensor:
    """(B, N, L, D) of its blocks, in memory (B, L, N, D) as linear layers have it; a single one is left as it is."""
    return parts[0] if len(parts) == 1 else torch.cat([part.transpose(1, 2) for part in parts]).transpose(1, 2)


def fast_dropout_attention(
    module: nn.Module,
    query: Tensor,  # (B, N, L, D)
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # bool (sdpa's) or additive (eager's)
    dropout: float,
    scaling: float,
    keep_weights: bool = True,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention written out, as sdpa on a CPU does with dropout; (B, L, N, D) and, for eager, weights (B, N, L, L)."""
    size, dropped = query.shape[:3].numel() * key.shape[2], round(dropout * STEPS)
    if not keep_weights and size >= SMALLEST and 0 < dropped < STEPS:
        context = DropoutAttention.apply(query, key, value, attention_mask, scaling, dropped)
        return context.transpose(1, 2).contiguous(), None
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    weights = fast_dropout(F.softmax(scores, dim=-1), dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights
