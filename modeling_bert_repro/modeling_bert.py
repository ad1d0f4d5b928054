"""BERT's encoder (Devlin et al., 2018, section 3) from top to bottom: embeddings, layers, pooler, BertModel.

Shapes: B batch, L length, H hidden size, N heads, D head size (H = N * D), I intermediate size, V vocabulary.
Config, arguments, outputs and tensor names are those of transformers' BERT, so checkpoints open in both.

The fast path is seen here in two places: a ``layout`` says which positions are computed (fast_path.py), and
``config.fast_dropout`` chooses another kernel of attention and dropout (fast_dropout.py). Unless somebody sets a switch
there is no layout, and this is plain BERT, with one exception: on a GPU, in training, query, key and value are one
matrix product, which gives the same up to rounding.

This file is copied into saved checkpoints, so it may import only torch, transformers and files of this folder.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig
from transformers.activations import ACT2FN
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.pytorch_utils import apply_chunking_to_forward
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .fast_dropout import BertDropout, attend_runs, fast_dropout_attention, pays_in_products
from .fast_path import Layout, choose_layout, is_plain, multiplies_once, project_together
from .pretrained import (
    NO_CACHE,
    AttentionFunction,
    BertPreTrainedModel,
    HeadReads,
    UnpadInputs,
    check_config,
    only_input,
    refuse_cache,
    refuse_cross_attention,
)
from .unpadding import attend_unpadded


class BertEmbeddings(nn.Module):
    """Sum of word, segment and position embeddings, then LayerNorm and dropout (section 3.2, figure 2)."""

    def __init__(self, config: BertConfig):
        super().__init__()
        # Declared as nn.Module because `set_input_embeddings` accepts any module.
        self.word_embeddings: nn.Module = nn.Embedding(
            config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id
        )
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = BertDropout(config.hidden_dropout_prob, config)

    def forward(
        self,
        input_ids: Tensor | None = None,  # (B, L)
        token_type_ids: Tensor | None = None,  # (B, L)
        position_ids: Tensor | None = None,  # (B, L) or (1, L)
        inputs_embeds: Tensor | None = None,  # (B, L, H)
    ) -> Tensor:
        """The embedding of each position, (B, L, H). The default positions are 0 .. L-1, the default segment is 0.

        Raises ValueError if positions are not given and there are fewer than L position embeddings.
        """
        words = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        batch_size, length = words.shape[:2]
        if position_ids is None:
            position_ids = self.default_positions(length, words.device)
        if token_type_ids is None:
            token_type_ids = torch.zeros(batch_size, length, dtype=torch.long, device=words.device)
        embeddings = words + self.token_type_embeddings(token_type_ids)
        embeddings = embeddings + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))

    def default_positions(self, length: int, device: torch.device) -> Tensor:
        """0 .. L-1 as (1, L). Raises ValueError if there are fewer than L position embeddings."""
        limit = self.position_embeddings.num_embeddings
        if length > limit:
            raise ValueError(
                f"expected at most {limit} tokens (config.max_position_embeddings), got {length}: "
                "truncate the input or split it into windows"
            )
        return torch.arange(length, device=device).unsqueeze(0)


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,  # (B, N, L, D)
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # additive, (B, 1, L, L) or broadcastable
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention in separate operations (Vaswani et al., 2017, section 3.2.1).

    Args:
        dropout: the probability with which a weight is dropped in training.

    Returns:
        The context (B, L, N, D) and the weights (B, N, L, L).
    """
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling  # (B, N, L, L)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


class BertSelfAttention(nn.Module):
    """Multi-head self-attention; bidirectional, or left-to-right with ``config.is_decoder``."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.config = config
        self.head_size = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_size**-0.5
        # Without this attribute transformers' sdpa assumes causal attention whenever it gets no mask.
        self.is_causal = config.is_decoder
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from every position of hidden_states (B, L, H) to the positions that the mask allows.

        Returns:
            The concatenated contexts of the heads, (B, L, H), and the weights (B, N, L, L), which are None unless the
            back-end is eager.
        """
        heads_shape = (*hidden_states.shape[:2], -1, self.head_size)  # there are fewer heads if some were pruned
        query, key, value = self.project(hidden_states)
        context, weights = self.attend(
            query.view(heads_shape).transpose(1, 2),  # (B, N, L, D)
            key.view(heads_shape).transpose(1, 2),
            value.view(heads_shape).transpose(1, 2),
            attention_mask,
            dropout=self.dropout.p if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        return context.flatten(2), weights

    def project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of every position, (B, L, H) each; on a GPU, with gradients, by one product.

        Under autocast, three products also cast the states three times, and add up three gradients of theirs. The
        three results are views of one tensor, and until the backward pass every layer keeps its weights side by side.
        """
        layers = (self.query, self.key, self.value)
        if multiplies_once(hidden_states) and all(map(is_plain, layers)):
            query, key, value = project_together(hidden_states, *layers)
            return query, key, value
        return self.query(hidden_states), self.key(hidden_states), self.value(hidden_states)

    def attend(
        self,
        query: Tensor,  # (B, N, L, D), or (1, N, T, D) with a layout that has tokens
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        layout: Layout | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """What ``eager_attention_forward`` computes, by the back-end of transformers that the config names.

        With a layout, tokens attend within their own sequence, and there are no weights.
        """
        name = self.config._attn_implementation
        function: AttentionFunction = ALL_ATTENTION_FUNCTIONS.get_interface(name, eager_attention_forward)
        separate = pays_in_products(self, query, attention_mask, options)
        if separate:
            function = partial(fast_dropout_attention, keep_weights=name == "eager")
        if layout is not None and layout.tokens is not None:
            runs = attend_runs if separate else None
            function = partial(attend_unpadded, function, layout.tokens, attend_runs=runs)
        return function(self, query, key, value, attention_mask, **options)


class BertResidual(nn.Module):
    """Projection, dropout, then LayerNorm of the sum with the residual (post-LN, as in the original)."""

    def __init__(self, config: BertConfig, input_size: int):
        super().__init__()
        self.dense = nn.Linear(input_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = BertDropout(config.hidden_dropout_prob, config)

    def forward(self, hidden_states: Tensor, residual: Tensor) -> Tensor:
        """hidden_states (B, L, H or I) and residual (B, L, H) -> (B, L, H)"""
        return self.LayerNorm(self.dropout(self.dense(hidden_states)) + residual)


class BertAttention(nn.Module):
    """Self-attention and its residual block; the attribute names are parts of the tensor names in checkpoints."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = BertResidual(config, config.hidden_size)

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, layout: Layout | None = None, **kwargs: Any
    ) -> Tensor:
        """(B, L, H) -> (B, L, H); with a layout, (B, L, H) or (1, T, H) -> the same or (1, R, H)."""
        if layout is None:
            context, _ = self.self(hidden_states, attention_mask, **kwargs)
            return self.output(context, hidden_states)
        context, _ = self.self(hidden_states, attention_mask, layout=layout, **kwargs)
        return self.output(layout.keep_rows(context), layout.keep_rows(hidden_states))


class BertIntermediate(nn.Module):
    """First half of the feed-forward block: H -> I, then the activation (exact GELU unless configured)."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = ACT2FN[config.hidden_act]  # which may have weights

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(B, L, H) -> (B, L, I)"""
        return self.intermediate_act_fn(self.dense(hidden_states))


class BertLayer(GradientCheckpointingLayer):
    """Attention, then feed-forward, each with its residual block (``transformer_model`` of google-research/bert)."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.attention = BertAttention(config)
        self.intermediate = BertIntermediate(config)
        self.output = BertResidual(config, config.intermediate_size)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        """(B, L, H) -> (B, L, H)"""
        # hidden_states must stay the first positional argument: checkpointing and output recording expect it there.
        attended = self.attention(hidden_states, attention_mask, **kwargs)
        return apply_chunking_to_forward(self.feed_forward, self.chunk_size_feed_forward, 1, attended)

    def feed_forward(self, attended: Tensor) -> Tensor:
        """(B, L, H) -> (B, L, H). Positions are independent of each other, so L can be split into chunks."""
        return self.output(self.intermediate(attended), attended)


class BertEncoder(nn.Module):
    """The stack of layers."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.layer = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, layout: Layout | None = None, **kwargs: Any
    ) -> Tensor:
        """(B, L, H) -> (B, L, H); with a layout, (B, L, H) or (1, T, H) -> the same or (1, R, H)."""
        for number, layer in enumerate(self.layer, 1):
            if layout is not None:
                kwargs["layout"] = layout if number == len(self.layer) else layout.all_rows()
            hidden_states = layer(hidden_states, attention_mask, **kwargs)
        return hidden_states


def takes_layouts(layer: nn.Module) -> bool:
    """Whether the attention of a layer is of these classes. In a layer that a user has put in, it may be another."""
    attention = getattr(layer, "attention", None)
    return isinstance(attention, BertAttention) and isinstance(attention.self, BertSelfAttention)


class BertPooler(nn.Module):
    """Dense layer and tanh over the first token, [CLS]: the sentence representation "C" of the paper."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(B, L, H) -> (B, H)"""
        return torch.tanh(self.dense(hidden_states[:, 0]))


class BertModel(BertPreTrainedModel):
    """The encoder with its pooler: ``last_hidden_state`` (B, L, H) and ``pooler_output`` (B, H)."""

    _no_split_modules = ["BertEmbeddings", "BertLayer"]  # noqa: RUF012
    _can_record_outputs = {"hidden_states": BertLayer, "attentions": BertSelfAttention}  # noqa: RUF012

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True):
        """Build the encoder and, with ``add_pooling_layer``, the pooler. Raises ValueError as ``check_config`` does."""
        super().__init__(config)
        check_config(config)
        self.gradient_checkpointing = False
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config) if add_pooling_layer else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The word embeddings."""
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the word embeddings with a module that maps ids (B, L) to (B, L, H)."""
        self.embeddings.word_embeddings = value

    @refuse_cache
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, ...] | BaseModelOutputWithPoolingAndCrossAttentions:
        """Encode token ids or embeddings.

        Args:
            input_ids, inputs_embeds: (B, L) or (B, L, H); exactly one of them is given.
            attention_mask: (B, L), 1 for real tokens and 0 for padding, which may be on either side.
            token_type_ids: (B, L), 0 for the first segment (default) and 1 for the second.
            position_ids: (B, L), default 0 .. L-1.
            encoder_hidden_states, encoder_attention_mask, past_key_values, use_cache: arguments of cross-attention and
                of a cache, which this BERT does not have; they only keep the order of transformers' signature.
            output_hidden_states, output_attentions, return_dict: as in transformers; attentions need eager attention.

        Raises:
            ValueError: L is above ``config.max_position_embeddings``, both inputs or neither are given, or an argument
                of cross-attention or of a cache is used.
        """
        only_input(input_ids, inputs_embeds)
        refuse_cross_attention(encoder_hidden_states, encoder_attention_mask)
        if past_key_values is not None:  # given by its place; `refuse_cache` sees names
            raise ValueError(NO_CACHE)
        hidden_states = self.encode(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs)
        return BaseModelOutputWithPoolingAndCrossAttentions(  # `capture_outputs` adds the states of the other layers
            last_hidden_state=hidden_states,
            pooler_output=None if self.pooler is None else self.pooler(hidden_states),
        )

    def encode(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        unpad_inputs: UnpadInputs = None,
        reads: HeadReads | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """The last layer's hidden states (B, L, H), from arguments of ``forward``, which passes these three on as well.

        Args:
            unpad_inputs: True computes real tokens only and returns zeros at padding, "auto" does so if it saves time,
                False never does; the default is ``config.unpad_inputs``, or False if that is unset.
            reads: what a head of this package reads from the result; with unpadding on, the hidden states are 0 at
                positions that are not read.
            cu_seq_lens_q: as in transformers' ``FlashAttentionKwargs``, one row (1, L) holds several sequences end to
                end, which do not attend to each other; the default positions of each start at 0.

        Raises:
            ValueError: as ``choose_layout``, or a layer was replaced by one that knows no layouts.
        """
        inputs = only_input(input_ids, inputs_embeds)
        layout = choose_layout(self, inputs, attention_mask, unpad_inputs, reads, kwargs)
        if layout is not None and not all(map(takes_layouts, self.encoder.layer)):
            raise ValueError(
                "expected unpad_inputs and cu_seq_lens_q to be unset, because a layer of this model was replaced by "
                "one that computes all positions: unset them, or use layers of a model of this package"
            )
        if layout is not None and layout.tokens is not None:
            if position_ids is None and kwargs.get("cu_seq_lens_q") is not None:
                position_ids = layout.tokens.positions
            elif position_ids is None:
                position_ids = self.embeddings.default_positions(layout.shape[1], inputs.device)
            rows = layout.unpad(input_ids, token_type_ids, position_ids, inputs_embeds)
            hidden_states, mask = self.embeddings(*rows), None
        else:
            hidden_states = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)
            mask = self.make_attention_mask(hidden_states, attention_mask)
            if position_ids is not None:  # by which FlashAttention tells the sequences of a packed row apart
                kwargs["position_ids"] = position_ids
        if layout is None:
            return self.encoder(hidden_states, mask, **kwargs)
        return layout.lay_back(self.encoder(hidden_states, mask, layout=layout, **kwargs))

    def make_attention_mask(self, hidden_states: Tensor, attention_mask: Tensor | None) -> Any:
        """The mask in the form that the attention back-end expects; causal with ``config.is_decoder``.

        None if every position is attended to, a BlockMask for flex attention, otherwise a tensor (B, 1, L, L).
        """
        make_mask: Callable[..., Any] = create_causal_mask if self.config.is_decoder else create_bidirectional_mask
        return make_mask(
            config=self.config, inputs_embeds=hidden_states, attention_mask=attention_mask, past_key_values=None
        )
