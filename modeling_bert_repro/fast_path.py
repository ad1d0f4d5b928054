"""The interface between plain BERT and its fast path.

The fast path computes real tokens only, computes the last layer only at the positions that a head reads, and has a
faster dropout. modeling_bert.py uses only three functions of this file and the methods of ``Layout``. While no switch
is set (``config.unpad_inputs`` or the argument of that name, ``config.fast_dropout``) and no packed row is passed
(``cu_seq_lens_q``), ``choose_layout`` returns None, ``choose_attention`` returns the back-end's function, and
``choose_dropout`` returns a subclass of torch's dropout that behaves like it.

Shapes: B batch, L length, H hidden size, T computed tokens, R rows that the last layer computes.
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

# If the share of padding is below this, the gain is smaller than the noise of a step's time (lab/notes/performance.md).
SMALLEST_SHARE = 0.1


class Layout(NamedTuple):
    """Which positions of a (B, L) batch the encoder computes, and in which order they lie in its hidden states.

    A named tuple, because accelerate then moves its tensors to a layer's device like any other argument.
    """

    shape: tuple[int, int]  # B, L
    tokens: Tokens | None = None  # the computed tokens; None for all B * L positions
    read: Tensor | None = None  # (R,) int64, the flattened positions that a head reads; None for all
    rows: Tensor | None = None  # (R,) the same positions as rows of the flattened hidden states

    def all_rows(self) -> "Layout":
        """The layout for the layers before the last; they compute every row."""
        return self._replace(rows=None)

    def keep_rows(self, hidden_states: Tensor) -> Tensor:
        """The hidden states that this layer has to compute.

        - Last layer: only the rows that a head reads, (B, L, H) or (1, T, H) -> (1, R, H).
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
            index = self.tokens.cells
        else:
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
        """The remainder of ``BertModel.forward``, computed at the positions of this layout."""
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
    """The positions of a batch to compute; None for all of them in every layer, as in plain BERT.

    Args:
        inputs: (B, L) or (B, L, H), token ids or embeddings.
        reads: what the head reads; None if the caller reads everything.
        options: the other arguments of ``BertModel.forward``, among them ``cu_seq_lens_q``.

    Raises:
        ValueError: the value of ``unpad_inputs`` is unknown, the packing is invalid, or the mask or the packing is one
            for inputs of another shape.
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
    rows = read
    if tokens is not None and read is not None:
        rows = tokens.rows_at(read)
    return Layout(shape, tokens, read, rows)


def choose_tokens(
    model: "BertModel",
    attention_mask: Tensor | None,
    switch: UnpadInputs,
    reads: "HeadReads | None",
    options: dict[str, Any],
) -> Tokens | None:
    """The real tokens of a batch, the tokens with a label and, for the pooler, the first token of every sequence.

    Returns:
        None if removing the padding is not worthwhile (``switch`` is "auto") or not possible. It is not possible

        - without a mask (B, L);
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
    """(R,) flattened positions: those with a label and, for the pooler, the first one of every sequence."""
    if reads.labelled is None:
        return torch.arange(inputs.shape[0], device=inputs.device) * inputs.shape[1]
    read = reads.labelled
    if model.pooler is not None:
        read = read.clone()
        read[:, 0] = True
    return read.flatten().nonzero().squeeze(1)


def leaves_layers_alone(model: "BertModel", options: dict[str, Any]) -> bool:
    """True if no option needs full shapes in every layer (recorded states, chunking), so positions may be skipped."""
    config = model.config
    for name in ("output_hidden_states", "output_attentions"):
        asked = options.get(name)
        if getattr(config, name) if asked is None else asked:
            return False
    return not config.chunk_size_feed_forward and len(model.encoder.layer) > 0


def choose_attention(
    attend: "AttentionFunction", module: "BertSelfAttention", query: Tensor, layout: Layout | None
) -> "AttentionFunction":
    """The attention function of the back-end, or a faster one with the same signature."""
    name = module.config._attn_implementation
    drops = module.training and module.dropout.p > 0 and not module.is_causal
    if drops and name in ("eager", "sdpa") and drops_fast(module.config, query):
        attend = partial(fast_dropout_attention, keep_weights=name == "eager")
    if layout is not None and layout.tokens is not None:
        attend = partial(attend_unpadded, attend, layout.tokens)
    return attend


def choose_dropout(p: float, config: BertConfig) -> nn.Dropout:
    """torch's dropout with probability p; in training it reads ``config.fast_dropout`` at every call."""
    return BertDropout(p, config)
