"""The seam between plain BERT and what makes it fast: real tokens only, the last layer where it is read, fast dropout.

`modeling_bert.py` calls three functions of this file and the methods of a `Layout`; nothing else of the fast path is
known there. All of it is off until a switch of the config (or an argument of the call) turns it on: with
`config.unpad_inputs` and `config.fast_dropout` unset, none of this code changes a shape, a number or a random draw.

Shapes: B batch, L length, H hidden size, T computed tokens, R rows that the last layer goes on with.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import BertConfig
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

from .fast_dropout import BertDropout, drops_fast, fast_dropout_attention
from .pretrained import UnpadInputs
from .unpadding import Tokens, attend_unpadded, find_tokens, packed_tokens

if TYPE_CHECKING:
    from .modeling_bert import AttentionFunction, BertModel, BertSelfAttention, HeadReads

# Below this share of padding the gain is lost in the noise of a step (docs/lab/performance.md).
SMALLEST_SHARE = 0.1


class Layout(NamedTuple):
    """Which positions of a (B, L) batch the encoder computes, and in which order they lie in its hidden states.

    A named tuple, because accelerate then moves its tensors to a layer's device like any other argument.
    """

    shape: tuple[int, int]  # B, L
    tokens: Tokens | None = None  # the computed tokens; None: all B * L positions
    read: Tensor | None = None  # (R,) int64 into the flattened B * L positions: what a head reads; None: all
    rows: Tensor | None = None  # (R,) the same as rows of the flattened hidden states

    def all_rows(self) -> "Layout":
        """The layout of every layer but the last."""
        return self._replace(rows=None)

    def keep_rows(self, hidden_states: Tensor) -> Tensor:
        """(B, L, H) or (1, T, H) -> (1, R, H): the rows that are read, in the last layer; in others all of them."""
        if self.rows is None:
            return hidden_states
        return hidden_states.flatten(0, 1).index_select(0, self.rows).unsqueeze(0)

    def lay_back(self, hidden_states: Tensor) -> Tensor:
        """The last layer's states as (B, L, H), with zeros at the positions that were not computed."""
        index = self.read if self.read is not None else None if self.tokens is None else self.tokens.cells
        if index is None:
            return hidden_states
        batch_size, length = self.shape
        padded = hidden_states.new_zeros(batch_size * length, hidden_states.shape[-1])
        return padded.index_copy(0, index, hidden_states.squeeze(0)).view(batch_size, length, -1)

    def encode(
        self,
        model: "BertModel",
        attention_mask: Tensor | None,
        input_ids: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPoolingAndCrossAttentions:
        """What follows in `BertModel.forward`, for the positions of this layout."""
        mask, tokens = None, self.tokens
        if tokens is not None:
            if position_ids is None and kwargs.get("cu_seq_lens_q") is not None:
                position_ids = tokens.positions
            elif position_ids is None:
                position_ids = model.embeddings.default_positions(self.shape[1], tokens.cells.device)
            input_ids, token_type_ids, inputs_embeds = (
                None if values is None else tokens.unpad(values)
                for values in (input_ids, token_type_ids, inputs_embeds)
            )
            position_ids = tokens.unpad(position_ids.expand(self.shape))
        hidden_states = model.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)
        if tokens is None:
            mask = model.make_attention_mask(hidden_states, attention_mask)
        hidden_states = model.encoder(hidden_states, mask, layout=self, **kwargs)
        return model.make_output(self.lay_back(hidden_states))


def choose_layout(
    model: "BertModel",
    inputs: Tensor,
    attention_mask: Tensor | None,
    unpad_inputs: UnpadInputs,
    reads: "HeadReads | None",
    options: dict[str, Any],
) -> Layout | None:
    """Which positions of inputs (B, L) or (B, L, H) are computed; None: all of them in every layer, as in plain BERT.

    Raises ValueError for an unpad_inputs that is no switch and for bad packing (`cu_seq_lens_q` among the options).
    """
    shape = (inputs.shape[0], inputs.shape[1])
    switch, cu_seq_lens = model.find_switch(unpad_inputs), options.get("cu_seq_lens_q")
    tokens = read = None
    if cu_seq_lens is not None:
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
    return Layout(shape, tokens, read, read if tokens is None or read is None else tokens.rows_at(read))


def choose_tokens(
    model: "BertModel",
    attention_mask: Tensor | None,
    switch: UnpadInputs,
    reads: "HeadReads | None",
    options: dict[str, Any],
) -> Tokens | None:
    """The real tokens of a batch, those with a label and, for the pooler, the first of every sequence.

    None where padding is not worth removing ("auto") or cannot be removed: without a mask (B, L), in a trace (it would
    hold the lengths of its example for ever), on devices that compile anew for every length or hold no numbers (meta),
    and in attention back-ends without a form for it.
    """
    config = model.config
    implementation = config._attn_implementation
    flash = implementation.startswith("flash_attention")
    if attention_mask is None or attention_mask.dim() != 2 or not leaves_layers_alone(model, options):
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
    smallest_share = SMALLEST_SHARE if switch == "auto" else 0.0
    return find_tokens(attention_mask, kept, smallest_share, kept_may_be_padding=not (flash or config.is_decoder))


def positions_read(model: "BertModel", inputs: Tensor, reads: "HeadReads") -> Tensor:
    """(R,) of the flattened B * L positions: those with a label and, for the pooler, the first of every sequence."""
    if reads.labelled is None:
        return torch.arange(inputs.shape[0], device=inputs.device) * inputs.shape[1]
    read = reads.labelled
    if model.pooler is not None:
        read = read.clone()
        read[:, 0] = True
    return read.flatten().nonzero().squeeze(1)


def leaves_layers_alone(model: "BertModel", options: dict[str, Any]) -> bool:
    """Whether nobody asked for something that needs every layer in padded shapes: recorded states, chunking."""
    config = model.config
    for name in ("output_hidden_states", "output_attentions"):
        asked = options.get(name)
        if getattr(config, name) if asked is None else asked:
            return False
    return not config.chunk_size_feed_forward and len(model.encoder.layer) > 0


def choose_attention(
    attend: "AttentionFunction", module: "BertSelfAttention", query: Tensor, layout: Layout | None
) -> "AttentionFunction":
    """The attention function of the back-end, or a faster one with its signature."""
    name = module.config._attn_implementation
    drops = module.training and module.dropout.p > 0 and not module.is_causal
    if drops and name in ("eager", "sdpa") and drops_fast(module.config, query):
        attend = partial(fast_dropout_attention, keep_weights=name == "eager")
    if layout is not None and layout.tokens is not None:
        attend = partial(attend_unpadded, attend, layout.tokens)
    return attend


def choose_dropout(p: float, config: BertConfig) -> nn.Dropout:
    """torch's dropout, which looks at `config.fast_dropout` at every call in training."""
    return BertDropout(p, config)
