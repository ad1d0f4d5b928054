"""A padded batch <-> its real tokens laid end to end, and attention between them.

Linear layers, LayerNorm, GELU and dropout then run on (1, T, H) in place of (B, L, H); attention never crosses from
one sequence into the next. Off, nothing of this file runs.

Shapes: B batch, L length, H hidden size, N heads, D head size, T computed tokens.
"""

from collections.abc import Callable
from itertools import accumulate, groupby, pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from transformers import BertConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

# Below this share of padding the gain is lost in the noise of a step (docs/performance.md).
SMALLEST_SHARE = 0.1
Switch = bool | Literal["auto"] | None


class Tokens(NamedTuple):
    """The T computed positions of a (B, L) batch, sequence after sequence.

    A named tuple, because accelerate then moves its tensors to a layer's device like any other argument.
    """

    index: Tensor  # (T,) int64 into the flattened B * L positions
    place: Tensor  # (T,) int64 into the flattened blocks of attention, sequences x longest
    limits: Tensor  # (sequences + 1,) int32: sequence i is tokens limits[i] .. limits[i + 1]
    mask: Tensor  # (sequences, longest) bool: what the blocks of attention attend to
    attends_to_all: bool  # False: some computed tokens are padding, which nothing attends to
    runs: tuple[tuple[int, int], ...]  # neighbours of equal length: (sequences, length)
    shape: tuple[int, int]  # B, L
    sequences: int
    longest: int

    @property
    def positions(self) -> Tensor:
        """(1, T): 0, 1, ... within each sequence."""
        return (self.place % self.longest).unsqueeze(0)

    def unpad(self, values: Tensor) -> Tensor:
        """(B, L, ...) -> (T, ...)"""
        return values.flatten(0, 1).index_select(0, self.index)

    def unpad_inputs(self, inputs: Tensor, token_type_ids: Tensor, position_ids: Tensor) -> tuple[Tensor, ...]:
        """(B, L) or (B, L, H) -> (1, T) or (1, T, H); position_ids may be (1, L)."""
        if inputs.shape[:2] != self.shape:
            raise ValueError(
                f"expected attention_mask or cu_seq_lens_q for inputs of shape {tuple(inputs.shape[:2])}, "
                f"got one for {self.shape}"
            )
        columns = (inputs, token_type_ids, position_ids.expand(self.shape))
        return tuple(self.unpad(column).unsqueeze(0) for column in columns)

    def pad(self, values: Tensor) -> Tensor:
        """(T, ...) -> (B, L, ...) with zeros at the positions that were not computed."""
        rest = values.shape[1:]
        padded = values.new_zeros(self.shape[0] * self.shape[1], *rest)
        return padded.index_copy(0, self.index, values).view(*self.shape, *rest)

    def to_blocks(self, values: Tensor) -> Tensor:
        """(T, N, D) -> (sequences, N, longest, D), each sequence from the start of its row, zeros after it."""
        blocks = values.new_zeros(self.sequences * self.longest, *values.shape[1:])
        blocks = blocks.index_copy(0, self.place, values)
        return blocks.view(self.sequences, self.longest, *values.shape[1:]).transpose(1, 2)


def choose_tokens(
    config: BertConfig,
    attention_mask: Tensor | None,
    unpad_inputs: Switch,
    options: dict[str, Any],
    kept: Tensor | None = None,
    keep_first: bool = False,
    padding_shows: bool = True,
) -> Tokens | None:
    """The tokens to compute, or None for the padded path.

    unpad_inputs: False never, True wherever possible, "auto" if padding is worth removing, None `config.unpad_inputs`,
    and where that is unset too: as "auto" if no result of the call shows what padding positions hold
    (`padding_shows`). Then no number that the caller sees depends on the choice. kept: (B, L) bool, positions to
    compute although they may be padding (labelled ones); keep_first: the first position too, for the pooler.
    Raises ValueError for another switch and for bad packing.
    """
    if options.get("cu_seq_lens_q") is not None:
        return packed_tokens(options["cu_seq_lens_q"], attention_mask, config.max_position_embeddings)
    unpad_inputs = resolve(unpad_inputs, config)
    automatic = unpad_inputs in (None, "auto")
    if attention_mask is None or attention_mask.dim() != 2 or unpad_inputs is False:
        return None
    if (unpad_inputs is None and padding_shows) or (automatic and torch.compiler.is_compiling()):
        return None
    if records_layers(config, options) or config.chunk_size_feed_forward:
        return None
    # A trace would hold the lengths of its example for ever; other devices compile anew for every length, or hold no
    # numbers (meta).
    if torch.compiler.is_exporting() or torch.jit.is_tracing() or attention_mask.device.type not in ("cpu", "cuda"):
        return None
    flash = config._attn_implementation.startswith("flash_attention")
    if not flash and config._attn_implementation not in ("eager", "sdpa"):
        return None
    if keep_first:
        first = torch.zeros_like(attention_mask, dtype=torch.bool)
        first[:, 0] = True
        kept = first if kept is None else kept | first
    share = SMALLEST_SHARE if automatic else 0.0
    return find_tokens(attention_mask, kept, share, kept_may_be_padding=not (flash or config.is_decoder))


def resolve(unpad_inputs: Switch, config: BertConfig) -> Switch:
    """The argument, where it is None the config's. Raises ValueError for what is none of the four."""
    found = getattr(config, "unpad_inputs", None) if unpad_inputs is None else unpad_inputs
    if found not in (None, True, False, "auto"):
        raise ValueError(f'expected unpad_inputs to be True, False, "auto" or None, got {found!r}')
    return found


def encode(
    model: PreTrainedModel,
    inputs: tuple[Tensor | None, ...],
    unpad_inputs: Switch,
    options: dict[str, Any],
    kept: Tensor | None = None,
    read: Tensor | None = None,
    pooled: bool = False,
) -> tuple[BaseModelOutputWithPoolingAndCrossAttentions, Tokens | None]:
    """The encoder's outputs for its positional `inputs`, and the tokens that were computed (None: all positions).

    kept: as in `choose_tokens`. read: (B, L) bool, all that the head looks at besides the pooled output; pooled: it
    looks at nothing else. Without either it looks at every position.
    """
    keep_first = model.bert.pooler is not None
    shows = read is None and not pooled
    tokens = choose_tokens(model.config, inputs[1], unpad_inputs, options, kept, keep_first, padding_shows=shows)
    positions = None
    if not shows and may_stop_early(model, unpad_inputs, options):
        positions = positions_read(inputs, read, keep_first)
    options = {"unpad_inputs": False if tokens is None else tokens, "read_positions": positions, **options}
    return model.bert(*inputs, return_dict=True, **options), tokens


def may_stop_early(model: PreTrainedModel, unpad_inputs: Switch, options: dict[str, Any]) -> bool:
    """Whether the last layer may be computed only where it is read.

    No number depends on it but for the draws of dropout. Where nothing was said these stay transformers'.
    """
    config, switch = model.config, resolve(unpad_inputs, model.config)
    draws = model.training and (config.hidden_dropout_prob or config.attention_probs_dropout_prob)
    if switch is False or (switch is None and draws):
        return False
    return not (records_layers(config, options) or config.chunk_size_feed_forward)


def positions_read(inputs: tuple[Tensor | None, ...], read: Tensor | None, keep_first: bool) -> Tensor | None:
    """(M,) of the flattened B * L positions: those of `read` (None: none) and the first of every sequence."""
    values = inputs[4] if inputs[0] is None else inputs[0]
    if values is None:
        return None  # neither input_ids nor inputs_embeds: the encoder says so
    if read is None:
        return torch.arange(values.shape[0], device=values.device) * values.shape[1]
    if keep_first:
        read = read.clone()
        read[:, 0] = True
    return read.flatten().nonzero().squeeze(1)


def take(values: Tensor, rows: Tensor) -> Tensor:
    """(B, L, H) -> (1, rows, H), rows of the flattened positions."""
    return values.flatten(0, 1).index_select(0, rows).unsqueeze(0)


def rows_of(positions: Tensor | None, tokens: Tokens | None) -> Tensor | None:
    """Which of the T tokens stand at these of the B * L positions, (M,); they must be among those computed."""
    if positions is None or tokens is None:
        return positions
    rows = positions.new_empty(tokens.shape[0] * tokens.shape[1])
    return rows.index_copy(0, tokens.index, torch.arange(len(tokens.index), device=rows.device))[positions]


def lay_back(values: Tensor, positions: Tensor | None, tokens: Tokens | None, batch_size: int, length: int) -> Tensor:
    """(B, L, H) of the states at `positions`, (1, M, H), or of the tokens, (1, T, H), with zeros elsewhere."""
    if positions is None:
        return values if tokens is None else tokens.pad(values.squeeze(0))
    padded = values.new_zeros(batch_size * length, values.shape[2])
    return padded.index_copy(0, positions, values.squeeze(0)).view(batch_size, length, -1)


def on_tokens(function: nn.Module, hidden_states: Tensor, tokens: Tokens | None) -> Tensor:
    """Apply to hidden_states (B, L, H); given tokens, to these only, with zeros elsewhere."""
    return function(hidden_states) if tokens is None else tokens.pad(function(tokens.unpad(hidden_states)))


def records_layers(config: BertConfig, options: dict[str, Any]) -> bool:
    """Whether hidden states or attentions of all layers were asked for: they are recorded in padded shapes."""
    for name in ("output_hidden_states", "output_attentions"):
        asked = options.get(name)
        if getattr(config, name) if asked is None else asked:
            return True
    return False


@torch.compiler.disable
def find_tokens(
    attention_mask: Tensor, kept: Tensor | None, smallest_share: float, kept_may_be_padding: bool
) -> Tokens | None:
    """Tokens of a mask (B, L), sequences in the order of their lengths.

    None if no padding would be left out, or less than the share; if a sequence has no real token (every back-end has
    its own idea of what it then attends to); if kept positions are padding and that cannot be computed. The counts
    are the one thing that the host must know: it waits for a CUDA device here and once more for the index.
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
    """Tokens of one row (1, T) that holds several sequences: 0, their cumulative lengths, T."""
    limits = cu_seq_lens.tolist()
    lengths = [stop - start for start, stop in pairwise(limits)]
    if not lengths or limits[0] != 0 or min(lengths) < 1:
        raise ValueError(f"expected cu_seq_lens_q to rise from 0 to the number of tokens, got {limits}")
    if attention_mask is not None:
        raise ValueError("expected no attention_mask beside cu_seq_lens_q, got one: a packed row has no padding")
    if max(lengths) > longest:
        raise ValueError(
            f"expected sequences of at most {longest} tokens (config.max_position_embeddings), got {max(lengths)}"
        )
    index = torch.arange(limits[-1], device=cu_seq_lens.device)
    return lay_out(lengths, index, (1, limits[-1]), None)


def lay_out(lengths: list[int], index: Tensor, shape: tuple[int, int], attended: Tensor | None) -> Tokens:
    """Tokens of sequences with these lengths, in this order. attended: (T,) bool, None for all."""
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
    attend: Callable,
    tokens: Tokens,
    module: nn.Module,
    query: Tensor,  # (1, N, T, D)
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    dropout: float,
    scaling: float,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention within each sequence: (1, T, N, D) and no weights, for the back-ends eager, sdpa and flash.

    flash_attention_*: transformers' variable-length call. sdpa on a CPU: one call for each length, without a mask or
    copies (1.3 to 2.8 times faster than blocks, forward and backward). sdpa on CUDA in half precision without
    attention dropout: torch's own variable-length kernel, which has no dropout. Everything else: blocks of the
    longest length with a mask, in which only attention sees padding.
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
    bare = tokens.attends_to_all and implementation == "sdpa"
    if bare and fits_varlen_kernel(query, dropout, module.is_causal):
        context = varlen_attention(tokens, *qkv)
    elif bare and query.device.type == "cpu" and not torch.compiler.is_compiling():
        context = attend_by_length(attend, tokens, module, *qkv, dropout=dropout, scaling=scaling)
    else:
        context = attend_in_blocks(attend, tokens, module, *qkv, dropout=dropout, scaling=scaling)
    return context.unsqueeze(0), None


def fits_varlen_kernel(query: Tensor, dropout: float, is_causal: bool) -> bool:
    return query.is_cuda and query.dtype in (torch.bfloat16, torch.float16) and not dropout and not is_causal


def varlen_attention(tokens: Tokens, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """(T, N, D) through `torch.nn.attention.varlen`; its default scale is ours, 1 / sqrt(D)."""
    from torch.nn.attention import varlen  # loads CUDA kernels' registrations, which a CPU process does not need

    limits, longest = tokens.limits, tokens.longest
    return varlen.varlen_attn(query, key, value, limits, limits, longest, longest)


def attend_by_length(
    attend: Callable, tokens: Tokens, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **options: float
) -> Tensor:
    """(T, N, D), one unmasked call for each run of equal lengths."""
    sizes = [sequences * length for sequences, length in tokens.runs]
    contexts = []
    # split rather than slices: its backward is one concatenation, not a tensor of T rows for every slice.
    for run, *states in zip(tokens.runs, query.split(sizes), key.split(sizes), value.split(sizes)):
        shape = (*run, *query.shape[1:])
        context, _ = attend(module, *(part.view(shape).transpose(1, 2) for part in states), None, **options)
        contexts.append(context.flatten(0, 1))
    return torch.cat(contexts)


def attend_in_blocks(
    attend: Callable, tokens: Tokens, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **options: float
) -> Tensor:
    """(T, N, D) through padded blocks (sequences, N, longest, D) and a mask in the back-end's form."""
    length = tokens.longest
    mask = tokens.mask[:, None, None, :].expand(-1, -1, length, -1)
    if module.is_causal:
        mask = mask & torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
    if module.config._attn_implementation == "eager":
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
    states = [tokens.to_blocks(part) for part in (query, key, value)]
    context, _ = attend(module, *states, mask, **options)
    return context.flatten(0, 1).index_select(0, tokens.place)
