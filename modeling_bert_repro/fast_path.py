"""The fast path: which positions of a batch are computed, and what a GPU multiplies at once (modeling_bert.py).

It computes real tokens only, and the last layer only at the positions that a head reads. While no switch is set
(``config.unpad_inputs`` or the argument of that name) and no packed row is passed (``cu_seq_lens_q``),
``choose_layout`` returns None, and every position is computed in every layer.

Shapes: B batch, L length, H hidden size, N heads, D head size, T computed tokens, R rows that the last layer computes.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .pretrained import BertPreTrainedModel, HeadReads, UnpadInputs
from .unpadding import Tokens, find_tokens, has_varlen_kernel, packed_tokens, with_spare_rows

# If the share of padding is below this, the gain is smaller than the noise of a step's time (lab/notes/performance.md).
SMALLEST_SHARE = 0.1
# With small batches, a GPU waits for the host, which has more kernels to start if there is no padding. So much padding
# must then be left out, in tokens * H * H: 6,800 tokens of BERT-Base. With large ones, from so much work on, in
# B * L * H * (H + L), leaving out any padding pays, because attention then needs no mask (lab/notes/performance.md).
LEAST_ON_CUDA = 4e9
BUSY_ON_CUDA = 1.3e10


class Layout(NamedTuple):
    """Which positions of a (B, L) batch the encoder computes, and their order in its hidden states.

    A named tuple, because accelerate then moves its tensors to a layer's device like any other argument.
    """

    shape: tuple[int, int]  # B, L
    tokens: Tokens | None = None  # the computed tokens; None for all B * L positions
    read: Tensor | None = None  # (R,) int64, the flattened positions that a head reads; None for all
    rows: Tensor | None = None  # (R + spare,) the same positions as rows of the flattened hidden states, and spare rows

    def all_rows(self) -> "Layout":
        """The layout for the layers before the last; they compute every row."""
        return self._replace(rows=None)

    def unpad(self, *columns: Tensor | None) -> Iterator[Tensor | None]:
        """The inputs of the computed tokens, (B, L, ...) or (1, L, ...) -> (1, T + spare, ...); None stays None."""
        assert self.tokens is not None
        for values in columns:
            yield None if values is None else self.tokens.unpad(values.expand(*self.shape, *values.shape[2:]))

    def keep_rows(self, hidden_states: Tensor) -> Tensor:
        """The hidden states that this layer has to compute.

        - Last layer: only the rows that a head reads, (B, L, H) or (1, T, H) -> (1, R, H), and spare ones after them.
        - Other layers, and a last layer of which every row is read: unchanged.
        """
        if self.rows is None:
            return hidden_states
        return hidden_states.flatten(0, 1).index_select(0, self.rows).unsqueeze(0)

    def lay_back(self, hidden_states: Tensor) -> Tensor:
        """The last layer's hidden states as (B, L, H), with zeros at the positions that were not computed."""
        if self.read is not None:
            index = self.read
        elif self.tokens is not None:
            index = self.tokens.real_cells
        else:
            return hidden_states
        index = index.to(hidden_states.device)  # another one, if accelerate has spread the layers over devices
        batch_size, length = self.shape
        padded = hidden_states.new_zeros(batch_size * length, hidden_states.shape[-1])
        return padded.index_copy(0, index, hidden_states[0, : index.shape[0]]).view(batch_size, length, -1)


def multiplies_once(hidden_states: Tensor) -> bool:
    """Whether one product instead of three is faster. On CPUs it is not (lab/notes/performance.md)."""
    return hidden_states.is_cuda and torch.is_grad_enabled()


def project_together(hidden_states: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """What the layers compute from hidden_states (B, L, H), by one matrix product."""
    weight, bias = (torch.cat([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
    return nn.functional.linear(hidden_states, weight, bias).split([layer.weight.shape[0] for layer in layers], dim=-1)


def is_plain(layer: nn.Module) -> bool:
    """Whether a call of this layer only multiplies by its weight and adds its bias, and nobody watches the call.

    Adapters and quantisation put other classes in the place of the layer or of its tensors. Hooks, and what Accelerate
    sets as ``forward``, must see the call.
    """
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    watched = any(hooks) or nn.modules.module._has_any_global_hook() or "forward" in vars(layer)
    tensors = (nn.Parameter, Tensor)
    return type(layer) is nn.Linear and not watched and type(layer.weight) in tensors and type(layer.bias) in tensors


def choose_layout(
    model: BertPreTrainedModel,
    inputs: Tensor,
    attention_mask: Tensor | None,
    unpad_inputs: UnpadInputs,
    reads: HeadReads | None,
    options: dict[str, Any],
) -> Layout | None:
    """The positions of a batch to compute; None for all of them in every layer, as in plain BERT.

    Args:
        inputs: (B, L) or (B, L, H), token ids or embeddings.
        reads: what the head reads; None if the caller reads everything.
        options: the other arguments of ``BertModel.forward``, among them ``cu_seq_lens_q``.

    Raises:
        ValueError: the packing is invalid, or the mask or the packing is one for inputs of another shape.
    """
    shape = (inputs.shape[0], inputs.shape[1])
    switch, cu_seq_lens = model.find_switch(unpad_inputs), options.get("cu_seq_lens_q")
    tokens = read = None
    if cu_seq_lens is not None:
        flash = model.config._attn_implementation.startswith("flash_attention")
        other_direction = not flash and not is_usual_direction(model, options)
        if other_direction or asked_for(model, options, "output_attentions"):
            raise ValueError(
                "expected output_attentions and is_causal to be unset with cu_seq_lens_q: no weights are kept then, "
                "and the config's is_decoder decides"
            )
        tokens = packed_tokens(cu_seq_lens, attention_mask, model.config.max_position_embeddings)
    elif switch:
        tokens = choose_tokens(model, attention_mask, switch, reads, options)
    if switch and reads is not None and not reads.other_positions and leaves_layers_alone(model, options):
        read = positions_read(model, inputs, reads)
    if tokens is None and read is None:
        return None
    if tokens is not None and tokens.shape != shape:
        raise ValueError(
            f"expected attention_mask or cu_seq_lens_q for inputs of shape {shape}, got one for {tokens.shape}"
        )
    rows = read
    if tokens is not None and read is not None:
        rows = tokens.rows_at(read)
    if rows is not None:
        rows = with_spare_rows(rows, next(model.parameters(), inputs))  # replicas of DataParallel have no parameters
    return Layout(shape, tokens, read, rows)


def choose_tokens(
    model: BertPreTrainedModel,
    attention_mask: Tensor | None,
    switch: UnpadInputs,
    reads: HeadReads | None,
    options: dict[str, Any],
) -> Tokens | None:
    """The real tokens of a batch, the tokens with a label and, for the pooler, the first token of every sequence.

    Returns:
        None if removing the padding is not worthwhile (``switch`` is "auto") or not possible. It is not possible

        - without a mask (B, L), or with ``is_causal`` other than the config's ``is_decoder``;
        - if an option needs the full shapes in every layer (``leaves_layers_alone``);
        - in a trace, which would contain the lengths of its example as constants;
        - on devices that compile again for every new length or that hold no values (meta);
        - with attention back-ends that cannot skip padding.
    """
    config = model.config
    implementation = config._attn_implementation
    flash = implementation.startswith("flash_attention")
    if attention_mask is None or attention_mask.dim() != 2 or not leaves_layers_alone(model, options):
        return None
    if not is_usual_direction(model, options):
        return None
    if torch.compiler.is_exporting() or torch.jit.is_tracing() or attention_mask.device.type not in ("cpu", "cuda"):
        return None
    if (switch == "auto" and torch.compiler.is_compiling()) or not (flash or implementation in ("eager", "sdpa")):
        return None
    kept = None if reads is None else reads.labelled
    if model.pooler is not None:
        first = torch.zeros_like(attention_mask, dtype=torch.bool)
        first[:, 0] = True
        kept = first if kept is None else kept | first
    smallest_share = share_that_pays(model, attention_mask) if switch == "auto" else 0.0
    if smallest_share >= 1:
        return None
    # On a GPU, a share of 0 means a kernel that computes no padding; blocks in its place would be slower than padding.
    needs_kernel = switch == "auto" and attention_mask.is_cuda and smallest_share == 0
    kept_may_be_padding = not (flash or config.is_decoder or needs_kernel)
    tokens = find_tokens(attention_mask, kept, smallest_share, kept_may_be_padding)
    if tokens is None or not tokens.attends_to_all or implementation != "sdpa":
        return tokens
    return tokens.with_spare_rows(next(model.parameters(), attention_mask))


def share_that_pays(model: BertPreTrainedModel, attention_mask: Tensor) -> float:
    """The share of padding that must be exceeded for a batch without it to be faster; 1 or more if none is enough."""
    if not attention_mask.is_cuda:
        return SMALLEST_SHARE
    tokens, length, size = attention_mask.numel(), attention_mask.shape[1], model.config.hidden_size
    if tokens * size * (size + length) >= BUSY_ON_CUDA and attends_without_mask(model, attention_mask.device):
        return 0.0
    return max(SMALLEST_SHARE, LEAST_ON_CUDA / (size**2 * max(1, tokens)))


def attends_without_mask(model: BertPreTrainedModel, device: torch.device) -> bool:
    """Whether attention among the tokens of a layout is a single call of torch's kernel for variable lengths."""
    config = model.config
    if config._attn_implementation != "sdpa" or config.is_decoder:
        return False
    # Without parameters, as in the replicas of DataParallel, `model.dtype` raises an error.
    dtype = next((weight.dtype for weight in model.parameters()), torch.float32)
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
    dropout = config.attention_probs_dropout_prob if model.training else 0.0
    return has_varlen_kernel(device, dtype, config.hidden_size // config.num_attention_heads, dropout)


def positions_read(model: BertPreTrainedModel, inputs: Tensor, reads: HeadReads) -> Tensor:
    """(R,) flattened positions: those with a label and, for the pooler, the first one of every sequence."""
    if reads.labelled is None:
        return torch.arange(inputs.shape[0], device=inputs.device) * inputs.shape[1]
    if model.pooler is None and reads.rows is not None:
        return reads.rows
    read = reads.labelled
    if model.pooler is not None:
        read = read.clone()
        read[:, 0] = True
    return read.flatten().nonzero().squeeze(1)


def leaves_layers_alone(model: BertPreTrainedModel, options: dict[str, Any]) -> bool:
    """True if no option needs full shapes in every layer (recorded states, chunking), so positions may be skipped."""
    config = model.config
    if any(asked_for(model, options, name) for name in ("output_hidden_states", "output_attentions")):
        return False
    return not config.chunk_size_feed_forward and config.num_hidden_layers > 0


def is_usual_direction(model: BertPreTrainedModel, options: dict[str, Any]) -> bool:
    """Whether neither an argument nor the config asks for another direction of attention than ``is_decoder`` says."""
    causal = options.get("is_causal", getattr(model.config, "is_causal", None))
    return causal is None or bool(causal) == bool(model.config.is_decoder)


def asked_for(model: BertPreTrainedModel, options: dict[str, Any], name: str) -> bool:
    """Whether an output is wanted, by the argument of this name or, without it, by the config."""
    asked = options.get(name)
    return bool(getattr(model.config, name) if asked is None else asked)
