"""Dropout and attention that are faster than torch's in training on CPUs; used if ``config.fast_dropout`` is set.

torch draws one double for every value that may be dropped. On a CPU these draws take most of the time of dropout, and
dropout takes most of the time of attention in training (lab/notes/performance.md). Here one 64-bit draw decides
four values, with 16 bits each. The same seed gives other masks than torch's, so the switch is off by default. It has no
effect on other devices, on small tensors outside of ``attend_runs``, under torch.compile and torch.func, and on
left-to-right attention.

In training in bfloat16, attention without dropout is computed here, too: the backward pass of torch's fused kernel for
CPUs does not use the processor's bfloat16 products, and takes several times as long as separate products.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig

from .losses import runs_eagerly

Runs = Sequence[tuple[int, int]]  # consecutive sequences of equal length: (number of sequences, length)

STEPS = 1 << 16  # p is rounded to a multiple of 1 / STEPS; the scale uses the rounded p, so the mean is exact
BLOCK = 1 << 16  # attention weights; several tensors of this size fit into the cache of a core
KEPT = 1 << 24  # attention weights; if there are more, and no dropout, the backward pass computes them again
SMALLEST = 1 << 15  # values; for fewer, the overhead of a Python function in autograd exceeds the gain


def drops_fast(config: BertConfig, values: Tensor) -> bool:
    """Whether the switch is on and the functions of this file can be used for these values."""
    return bool(getattr(config, "fast_dropout", False)) and values.device.type == "cpu" and runs_eagerly()


def pays_in_products(module: Any, query: Tensor, attention_mask: Tensor | None, options: dict[str, Any]) -> bool:
    """Whether attention (of the back-ends eager and sdpa, in training) is faster in the products of this file."""
    name = module.config._attn_implementation
    drops = module.training and module.dropout.p > 0
    simple = attention_mask is None or attention_mask.dtype == torch.bool
    slow = module.training and name == "sdpa" and query.dtype == torch.bfloat16 and simple
    usual = name in ("eager", "sdpa") and not (module.is_causal or options.get("is_causal"))
    return (drops or slow) and usual and drops_fast(module.config, query)


def draw(shape: torch.Size, dropped: int) -> Tensor:
    """A bool tensor whose elements are False with probability ``dropped`` / STEPS, from 1 to STEPS."""
    draws = torch.empty((shape.numel() + 3) // 4, dtype=torch.int64, device="cpu").random_(-(1 << 63), None)
    # Of the STEPS values of an int16, `dropped` are not above this threshold.
    return (draws.view(torch.int16)[: shape.numel()] > dropped - STEPS // 2 - 1).view(shape)


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

    The sequences lie end to end, and each attends to itself. A few of one length are processed at a time, as a block,
    so that intermediate results are still in the cache when they are read again. With dropout, two tensors of the shape
    of the attention weights are kept for the backward pass, the softmax and a bool mask; without it, the softmax alone,
    and nothing of that shape if it has more than ``KEPT`` values.
    """

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")  # the backward pass has autocast if and only if this one has it
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        runs: Runs,
        mask: Tensor | None,
        scaling: float,
        dropped: int,
    ) -> Tensor:
        """The context (T, N, D) of query, key and value (T, N, D).

        Args:
            runs: consecutive sequences of equal length: (number of sequences, length).
            mask: bool, (B, 1, L, L) or broadcastable to it, True where a position is attended to, for B sequences of
                one length L; None for everywhere.
            dropped: a weight is dropped with probability ``dropped`` / STEPS; 0: there is no dropout.
        """
        heads = query.shape[1]
        # Without masks of dropout, there are fewer intermediate results.
        ctx.blocks = list(small_runs(runs, (BLOCK if dropped else 4 * BLOCK) // heads))
        ctx.scaling, ctx.scale = scaling, STEPS / (STEPS - dropped) if dropped < STEPS else 0.0
        ctx.masks = split_mask(mask, ctx.blocks)
        sizes = [sequences * heads * length**2 for sequences, length in ctx.blocks]
        learns = any(ctx.needs_input_grad)
        keeps_weights = learns and (dropped > 0 or sum(sizes) <= KEPT)
        masks_of_dropout = draw_together(sizes, dropped) if dropped else [None] * len(sizes)
        context = value.new_empty(value.shape)
        weights: list[Tensor | None] = []
        kept: list[Tensor | None] = []
        columns = (part_by_part(states, ctx.blocks) for states in (query * scaling, key, value, context))
        for queries, keys, values, contexts, attended, drawn in zip(*columns, ctx.masks, masks_of_dropout, strict=True):
            softmax = attention_weights(torch.matmul(queries, keys.transpose(2, 3)), attended)
            drawn = None if drawn is None else drawn.view(softmax.shape)
            contexts.copy_(torch.matmul(thinned(softmax, drawn).to(values.dtype), values))
            weights.append(softmax if keeps_weights else None)
            kept.append(drawn if learns else None)
        ctx.save_for_backward(query, key, value, *weights, *kept)
        return context.mul_(ctx.scale) if dropped else context

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of query, key and value (T, N, D) from that of the context (T, N, D)."""
        states, count = ctx.saved_tensors, len(ctx.blocks)
        query, key, value = states[:3]
        weights, kept = states[3 : 3 + count], states[3 + count :]
        if torch.is_grad_enabled():  # create_graph=True: recomputed with torch's operations and the same masks
            context = differentiable_context(ctx, query, key, value, kept)
            learning = [state for state in states[:3] if state.requires_grad]
            found = iter(torch.autograd.grad(context, learning, gradient, create_graph=True))
            return *(next(found) if state.requires_grad else None for state in states[:3]), *repeat(None, 4)
        scaled = query * ctx.scaling
        gradient = gradient.contiguous() if ctx.scale == 1 else gradient * ctx.scale
        slopes_of = [gradient.new_empty(states.shape, dtype=states.dtype) for states in (query, key, value)]
        columns = (part_by_part(states, ctx.blocks) for states in (gradient, scaled, key, value, *slopes_of))
        for gradients, queries, keys, values, of_queries, of_keys, of_values, softmax, drawn, attended in zip(
            *columns, weights, kept, ctx.masks, strict=True
        ):
            if softmax is None:
                softmax = attention_weights(torch.matmul(queries, keys.transpose(2, 3)), attended)
            slopes = thinned(torch.matmul(gradients, values.transpose(2, 3)).to(softmax.dtype), drawn)
            slopes = torch._softmax_backward_data(slopes, softmax, -1, softmax.dtype).to(queries.dtype)
            of_queries.copy_(torch.matmul(slopes, keys))
            of_keys.copy_(torch.matmul(slopes.transpose(2, 3), queries))
            of_values.copy_(torch.matmul(thinned(softmax, drawn).to(values.dtype).transpose(2, 3), gradients))
        slopes_of[0].mul_(ctx.scaling)
        return *slopes_of, *repeat(None, 4)


def small_runs(runs: Runs, most: int) -> Iterator[tuple[int, int]]:
    """The runs in parts of at most ``most`` weights of a head, or of one sequence: (number of sequences, length)."""
    for sequences, length in runs:
        rows = max(1, most // length**2)
        for start in range(0, sequences, rows):
            yield min(rows, sequences - start), length


def part_by_part(states: Tensor, blocks: list[tuple[int, int]]) -> list[Tensor]:
    """The states (T, N, D) of each block, (sequences, N, L, D), which is a view if T x N x D are contiguous."""
    parts = states.split([sequences * length for sequences, length in blocks])
    return [part.reshape(*block, *states.shape[1:]).transpose(1, 2) for part, block in zip(parts, blocks, strict=True)]


def split_mask(mask: Tensor | None, blocks: list[tuple[int, int]]) -> Sequence[Tensor | None]:
    """The rows of each block in a mask, (B, 1, L, L) or broadcastable to it; None for each if there is no mask."""
    counts = [sequences for sequences, _ in blocks]
    return [None] * len(counts) if mask is None else mask.expand(sum(counts), -1, -1, -1).split(counts)


def draw_together(sizes: list[int], dropped: int) -> Iterator[Tensor]:
    """``draw`` for tensors of these sizes; one draw serves small ones that follow each other, up to BLOCK values."""
    start = 0
    for stop in range(1, len(sizes) + 1):
        if stop == len(sizes) or sum(sizes[start : stop + 1]) > BLOCK:
            group, start = sizes[start:stop], stop
            yield from draw(torch.Size([sum(group)]), dropped).split(group)


def differentiable_context(
    ctx: Any, query: Tensor, key: Tensor, value: Tensor, kept: Sequence[Tensor | None]
) -> Tensor:
    """The context of ``BlockAttention`` by operations that torch can differentiate twice, with the same masks."""
    columns = (part_by_part(states, ctx.blocks) for states in (query * ctx.scaling, key, value))
    contexts = []
    for queries, keys, values, attended, drawn in zip(*columns, ctx.masks, kept, strict=True):
        weights = attention_weights(torch.matmul(queries, keys.transpose(2, 3)), attended)
        if drawn is not None:
            weights = weights * drawn.to(weights.dtype) * ctx.scale
        contexts.append(torch.matmul(weights.to(values.dtype), values).transpose(1, 2).flatten(0, 1))
    return torch.cat(contexts)


def thinned(values: Tensor, kept: Tensor | None) -> Tensor:
    """The values, with zeros where ``kept`` (bool; None for everywhere) is False; nothing is scaled up."""
    return values if kept is None else kept.to(values.dtype) * values


def attention_weights(scores: Tensor, attended: Tensor | None) -> Tensor:
    """Softmax of scores (B, N, L, L) over the positions where ``attended`` (bool; None for all) is True.

    The scores are overwritten. Queries that attend to no position get weights of 0, as in sdpa.
    """
    if attended is None:
        return F.softmax(scores, dim=-1)
    weights = F.softmax(scores.masked_fill_(~attended, torch.finfo(scores.dtype).min), dim=-1)
    blind = ~attended.any(-1, keepdim=True)
    return weights.masked_fill(blind, 0.0) if blind.any() else weights


def attend_runs(
    runs: Runs,
    query: Tensor,  # (T, N, D)
    key: Tensor,
    value: Tensor,
    dropout: float,
    scaling: float,
) -> Tensor:
    """(T, N, D): attention within each sequence, of which ``runs`` has the lengths, with fast dropout."""
    return BlockAttention.apply(query, key, value, runs, None, scaling, round(dropout * STEPS))


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
        The context (B, L, N, D) and the weights (B, N, L, L); the weights are None unless they are kept.
    """
    sequences, heads, length = query.shape[:3]
    additive = None if attention_mask is None or attention_mask.dtype == torch.bool else attention_mask
    if not keep_weights and additive is None and sequences * heads * length**2 >= SMALLEST:
        flat = (states.transpose(1, 2).flatten(0, 1) for states in (query, key, value))
        runs, dropped = ((sequences, length),), round(dropout * STEPS)
        context = BlockAttention.apply(*flat, runs, attention_mask, scaling, dropped)
        return context.view(sequences, length, heads, -1), None
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    if additive is None:
        weights = attention_weights(scores, attention_mask)
    else:
        blind = (additive == -math.inf).all(-1, keepdim=True)  # softmax would give NaN where sdpa gives 0
        weights = F.softmax(scores + additive, dim=-1).masked_fill(blind, 0.0)
    weights = fast_dropout(weights, dropout)
    context = torch.matmul(weights.to(value.dtype), value).transpose(1, 2).contiguous()
    return context, weights if keep_weights else None
