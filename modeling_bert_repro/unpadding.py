"""Conversion between a padded batch and its real tokens laid end to end, and attention among these tokens.

Linear layers, LayerNorm, GELU and dropout then run on (1, T, H) instead of (B, L, H); attention never crosses from
one sequence into the next. With unpadding off, none of this code is executed.

Shapes: B batch, L length, H hidden size, N heads, D head size, T computed tokens.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from .pretrained import AttentionFunction

ROUNDED = 32  # what the number of rows of a product is rounded up to, where a new one costs time


class Tokens(NamedTuple):
    """The T computed positions of a (B, L) batch, sequence after sequence.

    A named tuple, because accelerate then moves its tensors to a layer's device like any other argument.
    """

    cells: Tensor  # (T + spare,) int64 indices into the flattened B * L positions
    place: Tensor  # (T,) int64 indices into the flattened attention blocks (sequences, longest)
    limits: Tensor  # (sequences + 1,) int32: sequence i consists of the tokens limits[i] to limits[i + 1] - 1
    mask: Tensor  # (sequences, longest) bool: the positions of the attention blocks that are attended to
    attends_to_all: bool  # False if some computed tokens are padding, which no token attends to
    runs: tuple[tuple[int, int], ...]  # consecutive sequences of equal length: (number of sequences, length)
    shape: tuple[int, int]  # B, L
    sequences: int
    longest: int

    @property
    def positions(self) -> Tensor:
        """(1, T): the position of each token within its sequence, counted from 0."""
        return (self.place % self.longest).unsqueeze(0)

    @property
    def real_cells(self) -> Tensor:
        """(T,) the cells without those of spare rows."""
        return self.cells[: len(self.place)]

    def with_spare_rows(self, weight: Tensor) -> "Tokens":
        """The same tokens with spare rows after them: one more sequence, which repeats the first position."""
        cells = with_spare_rows(self.cells, weight)
        spare = len(cells) - len(self.place)
        return self._replace(cells=cells, runs=(*self.runs, (1, spare))) if spare else self

    def unpad(self, values: Tensor) -> Tensor:
        """(B, L, ...) -> (1, T + spare, ...): the values of the computed tokens, then those of spare rows."""
        return values.flatten(0, 1).index_select(0, self.cells).unsqueeze(0)

    def rows_at(self, positions: Tensor) -> Tensor:
        """The indices (R,) among the T tokens of flattened positions (R,), all of which must be computed."""
        rows = positions.new_full((self.shape[0] * self.shape[1],), -1)
        return rows.index_copy(0, self.real_cells, torch.arange(len(self.place), device=rows.device))[positions]

    def to_blocks(self, values: Tensor) -> Tensor:
        """(T, N, D) -> (sequences, N, longest, D): each sequence at the beginning of its row, followed by zeros."""
        blocks = values.new_zeros(self.sequences * self.longest, *values.shape[1:])
        blocks = blocks.index_copy(0, self.place, values)
        return blocks.view(self.sequences, self.longest, *values.shape[1:]).transpose(1, 2)


def with_spare_rows(rows: Tensor, weight: Tensor, value: int = 0) -> Tensor:
    """Indices of rows, or their labels, and after them spare rows, which are computed in vain: (R,) -> (R + spare,).

    On a CPU in half precision, oneDNN compiles every product again for a new number of rows, which takes up to a
    millisecond; up to 31 more rows take less (lab/notes/performance.md). Elsewhere there are no spare rows.

    Args:
        weight: any tensor of the network, whose device and type count; autocast may compute in another type.
        value: the index or the label of a spare row.
    """
    half = weight.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cpu")
    if not half or weight.device.type != "cpu" or torch.compiler.is_compiling():
        return rows
    return torch.nn.functional.pad(rows, (0, -len(rows) % ROUNDED), value=value)


@torch.compiler.disable
def find_tokens(
    attention_mask: Tensor, kept: Tensor | None, smallest_share: float, kept_may_be_padding: bool
) -> Tokens | None:
    """The computed tokens of a batch with a padding mask (B, L), its sequences sorted by length.

    The host waits for a CUDA device twice: for the numbers of tokens, and for their index.

    Args:
        kept: (B, L) bool, positions to compute although they may be padding; None if there are none.
        smallest_share: the share of padding, from 0 to 1, that must be exceeded for unpadding to be worthwhile.
        kept_may_be_padding: whether the attention back-end can compute padding that no token attends to.

    Returns:
        None if the share of padding is too small; if a sequence has no real token, because the back-ends differ in
        what such a sequence attends to; or if kept positions are padding and the back-end cannot compute these.
    """
    attended = attention_mask.bool()
    computed = attended if kept is None else attended | kept
    attended_lengths, lengths = torch.stack([attended.sum(1), computed.sum(1)]).tolist()
    extra = attended_lengths != lengths
    padding = attention_mask.numel() - sum(lengths)
    if padding <= smallest_share * attention_mask.numel() or 0 in attended_lengths:
        return None
    if extra and not kept_may_be_padding:
        return None
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    rows = torch.tensor(order, device=attention_mask.device)
    rank, column = computed[rows].nonzero().unbind(1)
    index = rows[rank] * attention_mask.shape[1] + column
    shape = (attention_mask.shape[0], attention_mask.shape[1])
    return lay_out([lengths[row] for row in order], index, shape, attended.flatten()[index] if extra else None)


@torch.compiler.disable
def packed_tokens(cu_seq_lens: Tensor, attention_mask: Tensor | None, longest: int) -> Tokens:
    """The tokens of one row (1, T) that holds several sequences.

    Args:
        cu_seq_lens: (sequences + 1,) the cumulative lengths of the sequences, from 0 to T.
        longest: the greatest length allowed.

    Raises:
        ValueError: the cumulative lengths do not rise from 0, a sequence is too long, or there is an attention mask.
    """
    limits = cu_seq_lens.tolist()
    lengths = [stop - start for start, stop in pairwise(limits)]
    if attention_mask is not None:
        raise ValueError("expected no attention_mask beside cu_seq_lens_q, got one: a packed row has no padding")
    if not lengths or limits[0] != 0 or min(lengths) < 1 or max(lengths) > longest:
        raise ValueError(
            f"expected cu_seq_lens_q to rise from 0 to the number of tokens, by at most {longest} a sequence "
            f"(config.max_position_embeddings), got {limits}"
        )
    index = torch.arange(limits[-1], device=cu_seq_lens.device)
    return lay_out(lengths, index, (1, limits[-1]), None)


def lay_out(lengths: list[int], index: Tensor, shape: tuple[int, int], attended: Tensor | None) -> Tokens:
    """The tokens of sequences with these lengths, in this order.

    Args:
        index: (T,) int64, the tokens' positions in the flattened B * L positions.
        shape: B and L.
        attended: (T,) bool, which of the tokens are attended to; None for all of them.
    """
    device, longest = index.device, max(lengths)
    limits = torch.tensor([0, *accumulate(lengths)], device=device)
    rank = torch.arange(len(lengths), device=device).repeat_interleave(limits.diff(), output_size=len(index))
    place = rank * longest + torch.arange(len(index), device=device) - limits[rank]
    mask = torch.zeros(len(lengths) * longest, dtype=torch.bool, device=device)
    mask[place] = True if attended is None else attended
    mask = mask.view(len(lengths), longest)
    runs = tuple((len(list(group)), length) for length, group in groupby(lengths))
    return Tokens(index, place, limits.int(), mask, attended is None, runs, shape, len(lengths), longest)


def attend_unpadded(
    attend: AttentionFunction,
    tokens: Tokens,
    module: Any,
    query: Tensor,  # (1, N, T, D)
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    dropout: float,
    scaling: float,
    attend_runs: Callable[..., Tensor] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention within each sequence, for the back-ends eager, sdpa and flash: (1, T, N, D), without the weights.

    - flash_attention_*: transformers' call with variable lengths.
    - sdpa on a CPU: one call for each length, without a mask and without copies, which is faster than blocks, or all
      lengths by ``attend_runs``; with dropout, and by ``attend_runs``, in float32 (lab/notes/performance.md).
    - sdpa on CUDA in half precision: FlashAttention's kernel for variable lengths, where torch has it
      (``has_varlen_kernel``); not with dropout in a compiled network.
    - In all other cases: blocks of the longest length with a mask. Only the attention itself then computes padding.

    Args:
        attend_runs: attention within each sequence by separate products, for sdpa on a CPU; called with the tokens'
            runs, query, key and value (T, N, D), ``dropout`` and ``scaling``, it returns (T, N, D).
    """
    implementation = module.config._attn_implementation
    if implementation.startswith("flash_attention"):
        lengths = {
            "cu_seq_lens_q": tokens.limits,
            "cu_seq_lens_k": tokens.limits,
            "max_length_q": tokens.longest,
            "max_length_k": tokens.longest,
        }
        return attend(module, query, key, value, None, dropout=dropout, scaling=scaling, **{**kwargs, **lengths})
    qkv = [states.transpose(1, 2).squeeze(0) for states in (query, key, value)]  # (T, N, D)
    needs_no_mask = tokens.attends_to_all and implementation == "sdpa"
    compiling = torch.compiler.is_compiling()
    varlen = needs_no_mask and not module.is_causal and not (dropout and compiling)
    if varlen and has_varlen_kernel(query.device, query.dtype, query.shape[-1], dropout):
        context = varlen_attention(tokens, dropout, *qkv)
    elif needs_no_mask and query.device.type == "cpu" and not compiling:
        compute = partial(attend_runs or partial(attend_by_length, attend, module), tokens.runs)
        if dropout or attend_runs:  # separate products, not torch's fused kernel
            compute = partial(in_float32, compute)
        context = compute(*qkv, dropout=dropout, scaling=scaling)
    else:
        context = attend_in_blocks(attend, tokens, module, *qkv, dropout=dropout, scaling=scaling)
    return context.unsqueeze(0), None


def has_varlen_kernel(device: torch.device, dtype: torch.dtype, head_size: int, dropout: float) -> bool:
    """Whether torch has a kernel of attention for variable lengths: in half precision on CUDA.

    The kernel is FlashAttention's, without the checks and the padding of ``scaled_dot_product_attention``. It needs
    compute capability 8.0 (Ampere) and heads whose size is a multiple of 8 and at most 256; with dropout, at most 192,
    because not every GPU computes the gradient of larger ones, and no other version of FlashAttention in its place.
    """
    if device.type != "cuda" or not has_flash_attention():
        return False
    if dtype not in (torch.bfloat16, torch.float16) or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    if head_size % 8 or head_size > (192 if dropout else 256):
        return False
    replaced = getattr(torch.nn.attention, "current_flash_attention_impl", lambda: None)()
    return not dropout or (replaced is None and hasattr(torch.ops.aten, "_flash_attention_forward"))


@torch.compiler.assume_constant_result
def has_flash_attention() -> bool:
    """Whether this torch has FlashAttention, and nobody has switched it off, as for second derivatives."""
    return torch.backends.cuda.is_flash_attention_available() and torch.backends.cuda.flash_sdp_enabled()


def varlen_attention(tokens: Tokens, dropout: float, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """(T, N, D), bidirectional, with the kernel's default scale, which is BERT's: 1 / sqrt(D)."""
    limits, longest = tokens.limits, tokens.longest
    if dropout:
        # What ``varlen_attn`` calls, with 0 for the kernel's dropout.
        flash = torch.ops.aten._flash_attention_forward
        return cast("Tensor", flash(query, key, value, limits, limits, longest, longest, dropout, False, False)[0])
    from torch.nn.attention import varlen  # importing it registers CUDA kernels, which a CPU process does not need

    # The declared type includes a pair, which is returned only if more than the context is asked for.
    return cast("Tensor", varlen.varlen_attn(query, key, value, limits, limits, longest, longest))


def in_float32(attend_runs: Callable[..., Tensor], *qkv: Tensor, **options: float) -> Tensor:
    """``attend_runs`` in float32 (or float64), also under autocast.

    Products of half precision are oneDNN's, which compiles them for every new shape; that takes longer than products
    of single sequences do.
    """
    states = (part.to(torch.promote_types(part.dtype, torch.float32)) for part in qkv)
    with torch.autocast("cpu", enabled=False):
        return attend_runs(*states, **options).to(qkv[0].dtype)


def attend_by_length(
    attend: AttentionFunction,
    module: Any,
    runs: Sequence[tuple[int, int]],
    query: Tensor,  # (T, N, D)
    key: Tensor,
    value: Tensor,
    **options: float,
) -> Tensor:
    """(T, N, D), with one unmasked call for each run of sequences of equal length."""
    sizes = [sequences * length for sequences, length in runs]
    contexts = []
    # The backward pass of split is a single concatenation; that of slices makes a tensor of T rows for each slice.
    for run, *states in zip(runs, query.split(sizes), key.split(sizes), value.split(sizes)):
        shape = (*run, *query.shape[1:])
        context, _ = attend(module, *(part.view(shape).transpose(1, 2) for part in states), None, **options)
        contexts.append(context.flatten(0, 1))
    return torch.cat(contexts)


def attend_in_blocks(
    attend: AttentionFunction,
    tokens: Tokens,
    module: Any,
    query: Tensor,  # (T, N, D)
    key: Tensor,
    value: Tensor,
    **options: float,
) -> Tensor:
    """(T, N, D), computed in padded blocks (sequences, N, longest, D) with a mask in the form of the back-end."""
    mask = attended_to(tokens.mask, module)
    if module.config._attn_implementation != "sdpa":  # eager and flex attention add the mask to their scores
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
    states = [tokens.to_blocks(part) for part in (query, key, value)]
    context, _ = attend(module, *states, mask, **options)
    return context.flatten(0, 1).index_select(0, tokens.place)


def attended_to(mask: Tensor, module: Any) -> Tensor:
    """(B, 1, L, L) bool: what each position attends to, from the positions (B, L) that are attended to at all."""
    length = mask.shape[1]
    mask = mask[:, None, None, :].expand(-1, -1, length, -1)
    if module.is_causal:
        mask = mask & torch.ones(length, length, dtype=torch.bool, device=mask.device).tril()
    return mask
