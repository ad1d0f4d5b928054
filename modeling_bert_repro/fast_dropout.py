"""Dropout and attention that are faster than torch's in training on CPUs; used if ``config.fast_dropout`` is set.

torch draws one double for every value that may be dropped. On a CPU these draws take most of the time of dropout, and
dropout takes most of the time of attention in training (lab/notes/performance.md). Here one 64-bit draw decides
four values, with 16 bits each. The same seed gives other masks than torch's, so the switch is off by default. It has no
effect on other devices, on small tensors, under torch.compile and torch.func, and on left-to-right attention.

In bfloat16, attention without dropout is computed here, too: the backward pass of torch's fused kernel for CPUs does
not use the processor's bfloat16 products, and takes several times as long as separate products (``BlockAttention``).
"""

import math
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig

from .losses import runs_eagerly

STEPS = 1 << 16  # p is rounded to a multiple of 1 / STEPS; the scale uses the rounded p, so the mean is exact
BLOCK = 1 << 16  # attention weights; several tensors of this size fit into the cache of a core
KEPT = 1 << 24  # attention weights; if there are more, and no dropout, the backward pass computes them again
SMALLEST = 1 << 15  # values; for fewer, the overhead of a Python function in autograd exceeds the gain


def drops_fast(config: BertConfig, values: Tensor) -> bool:
    """Whether the switch is on and the functions of this file can be used for these values."""
    return bool(getattr(config, "fast_dropout", False)) and values.device.type == "cpu" and runs_eagerly()


def draw(shape: torch.Size, dropped: int) -> Tensor:
    """A bool tensor whose elements are False with probability ``dropped`` / STEPS."""
    draws = torch.empty((shape.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    # Of the STEPS values of an int16, `dropped` are below this threshold.
    return (draws.view(torch.int16)[: shape.numel()] >= dropped - STEPS // 2).view(shape)


class FastDropout(torch.autograd.Function):
    """Dropout with a hand-written backward pass that keeps only the mask, as bool."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, dropped: int) -> Tensor:
        """The values, of any shape: each is set to 0 with probability ``dropped`` / STEPS, and otherwise scaled up."""
        kept = draw(values.shape, dropped)
        ctx.save_for_backward(kept)
        ctx.scale = STEPS / (STEPS - dropped)
        return kept.to(values.dtype).mul_(values).mul_(ctx.scale)  # torch.where takes twice as long

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """The gradient of the values."""
        (kept,) = ctx.saved_tensors
        return kept.to(gradient.dtype).mul_(gradient).mul_(ctx.scale), None


def fast_dropout(values: Tensor, p: float) -> Tensor:
    """``values`` with each element dropped with probability p, rounded to 1 / 65,536, and the others scaled up."""
    dropped = round(p * STEPS)
    if values.numel() < SMALLEST or not 0 < dropped < STEPS:
        return F.dropout(values, p)
    return FastDropout.apply(values, dropped)


class BertDropout(nn.Dropout):
    """nn.Dropout that uses ``fast_dropout`` in training if ``config.fast_dropout`` is set."""

    def __init__(self, p: float, config: BertConfig):
        super().__init__(p)
        self.config = config

    def forward(self, values: Tensor) -> Tensor:
        """``values`` of any shape; in training, elements are dropped and the others scaled up."""
        if self.training and drops_fast(self.config, values):
            return fast_dropout(values, self.p)
        return super().forward(values)


class BlockAttention(torch.autograd.Function):
    """Attention in separate operations: dropout(softmax(scores)) times value, also without dropout.

    With dropout, two tensors (B, N, L, L) are kept for the backward pass, the softmax and a bool mask; without it, the
    softmax alone, and nothing of that shape if it has more than ``KEPT`` values. A few sequences are processed at a
    time, so that intermediate results are still in the cache when they are read again.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, dropped: int
    ) -> Tensor:
        """The context (B, N, L, D) of query, key and value (B, N, L, D).

        Args:
            mask: bool, (B, 1, L, L) or broadcastable to it, True where a position is attended to; None for everywhere.
            dropped: a weight is dropped with probability ``dropped`` / STEPS; 0: there is no dropout.
        """
        size = (*query.shape[:3], key.shape[2])
        block = BLOCK if dropped else 4 * BLOCK  # without masks, there are fewer intermediate results
        ctx.rows = max(1, block // math.prod(size[1:]))
        ctx.scaling, ctx.scale = scaling, STEPS / (STEPS - dropped)
        masks = repeat(None) if mask is None else mask.expand(size[0], -1, -1, -1).split(ctx.rows)
        contexts, weights, kept = [], [], []
        ctx.keeps_weights = dropped > 0 or math.prod(size) <= KEPT
        for queries, keys, values, attended in zip(*(part.split(ctx.rows) for part in (query, key, value)), masks):
            softmax = attention_weights(torch.matmul(queries * scaling, keys.transpose(2, 3)), attended)
            weights.append(softmax if ctx.keeps_weights else None)
            kept.append(draw(softmax.shape, dropped) if dropped else None)
            contexts.append(torch.matmul(thinned(softmax, kept[-1]).to(values.dtype), values))
        ctx.mask = mask
        ctx.save_for_backward(query, key, value, *weights, *kept)
        return joined(contexts).mul_(ctx.scale) if dropped else joined(contexts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of query, key and value (B, N, L, D) from that of the context (B, N, L, D)."""
        states = ctx.saved_tensors
        blocks = (len(states) - 3) // 2
        if torch.is_grad_enabled():  # create_graph=True: recomputed with torch's operations and the same masks
            query, key, value = states[:3]
            weights = attention_weights(torch.matmul(query * ctx.scaling, key.transpose(2, 3)), ctx.mask)
            if ctx.scale != 1:
                weights = weights * torch.cat(states[3 + blocks :]).to(weights.dtype) * ctx.scale
            context = torch.matmul(weights.to(value.dtype), value)
            learning = [state for state in states[:3] if state.requires_grad]
            found = iter(torch.autograd.grad(context, learning, gradient, create_graph=True))
            return *(next(found) if state.requires_grad else None for state in states[:3]), None, None, None
        masks = repeat(None) if ctx.mask is None else ctx.mask.expand(len(gradient), -1, -1, -1).split(ctx.rows)
        columns = (gradient, *states[:3])
        query_gradients: list[Tensor] = []
        key_gradients: list[Tensor] = []
        value_gradients: list[Tensor] = []
        for gradients, queries, keys, values, weights, kept, attended in zip(
            *(column.split(ctx.rows) for column in columns), states[3 : 3 + blocks], states[3 + blocks :], masks
        ):
            if weights is None:
                weights = attention_weights(torch.matmul(queries * ctx.scaling, keys.transpose(2, 3)), attended)
            gradients = gradients if kept is None else gradients * ctx.scale
            slopes = thinned(torch.matmul(gradients, values.transpose(2, 3)).to(weights.dtype), kept)
            slopes = torch._softmax_backward_data(slopes, weights, -1, weights.dtype).to(queries.dtype)
            dropped = thinned(weights, kept).to(values.dtype)
            query_gradients.append(torch.matmul(slopes, keys).mul_(ctx.scaling))
            key_gradients.append(torch.matmul(slopes.transpose(2, 3), queries * ctx.scaling))
            value_gradients.append(torch.matmul(dropped.transpose(2, 3), gradients))
        return joined(query_gradients), joined(key_gradients), joined(value_gradients), None, None, None


def thinned(values: Tensor, kept: Tensor | None) -> Tensor:
    """The values, with zeros where ``kept`` (bool; None for everywhere) is False; nothing is scaled up."""
    return values if kept is None else kept.to(values.dtype).mul_(values)


def attention_weights(scores: Tensor, attended: Tensor | None) -> Tensor:
    """Softmax of scores (B, N, L, L) over the positions where ``attended`` (bool; None for all) is True.

    The scores are overwritten. Queries that attend to no position get weights of 0, as in sdpa.
    """
    if attended is None:
        return F.softmax(scores, dim=-1)
    weights = F.softmax(scores.masked_fill_(~attended, torch.finfo(scores.dtype).min), dim=-1)
    blind = ~attended.any(-1, keepdim=True)
    return weights.masked_fill(blind, 0.0) if blind.any() else weights


def joined(parts: list[Tensor]) -> Tensor:
    """(B, N, L, D) from its blocks of sequences, with the memory layout of (B, L, N, D), which the linear layers use.

    A single block is returned unchanged.
    """
    return parts[0] if len(parts) == 1 else torch.cat([part.transpose(1, 2) for part in parts]).transpose(1, 2)


def fast_dropout_attention(
    module: nn.Module,
    query: Tensor,  # (B, N, L, D)
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # bool (from sdpa) or additive (from eager or from the caller)
    dropout: float,
    scaling: float,
    keep_weights: bool = True,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention in separate operations with fast dropout; scores and softmax are computed as by sdpa on a CPU.

    Returns:
        The context (B, L, N, D) and the weights (B, N, L, L); the weights are None if ``BlockAttention`` was used.
    """
    size, dropped = query.shape[:3].numel() * key.shape[2], round(dropout * STEPS)
    additive = None if attention_mask is None or attention_mask.dtype == torch.bool else attention_mask
    if not keep_weights and additive is None and size >= SMALLEST and dropped < STEPS:
        context = BlockAttention.apply(query, key, value, attention_mask, scaling, dropped)
        return context.transpose(1, 2).contiguous(), None
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    if additive is None:
        weights = attention_weights(scores, attention_mask)
    elif additive.is_floating_point():
        blind = (additive == -math.inf).all(-1, keepdim=True)  # softmax would give NaN where sdpa gives 0
        weights = F.softmax(scores + additive, dim=-1).masked_fill(blind, 0.0)
    else:
        raise ValueError(f"expected attention_mask of the type bool or of floating point, got {additive.dtype}")
    weights = fast_dropout(weights, dropout)
    return torch.matmul(weights.to(value.dtype), value).transpose(1, 2).contiguous(), weights
