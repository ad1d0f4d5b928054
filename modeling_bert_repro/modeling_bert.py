"""BERT's encoder (Devlin et al., 2018, section 3), in order: embeddings -> layers -> pooler -> BertModel.

Shapes: B batch, L length, H hidden size, N heads, D head size (H = N * D), I intermediate size, V vocabulary.
Without padding (`unpadding.py`) the layers see T tokens as (1, T, H), a batch of one.
Config, arguments, outputs and tensor names are those of transformers' BERT, so checkpoints open in both.
This file travels inside saved checkpoints: besides torch and transformers it may use only its flat neighbours.
"""

import os
import shutil
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, initialization
from transformers.activations import ACT2FN
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.pytorch_utils import apply_chunking_to_forward
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .dropout import BertDropout, drops_fast, fast_dropout_attention
from .unpadding import Switch, Tokens, attend_unpadded, choose_tokens, lay_back, rows_of, take

CODE_FILES = ("modeling_bert.py", "losses.py", "heads.py", "unpadding.py", "dropout.py")
SWITCHES = ("sparse_prediction", "unpad_inputs", "fast_dropout")
# Every entry names heads.py, from which all code files are reachable: transformers' module cache holds only
# the files that the named one imports, and a model loaded from there must be able to save them all again.
AUTO_MAP = {
    "AutoModel": "heads.BertModel",
    "AutoModelForPreTraining": "heads.BertForPreTraining",
    "AutoModelForMaskedLM": "heads.BertForMaskedLM",
    "AutoModelForNextSentencePrediction": "heads.BertForNextSentencePrediction",
    "AutoModelForSequenceClassification": "heads.BertForSequenceClassification",
    "AutoModelForTokenClassification": "heads.BertForTokenClassification",
    "AutoModelForMultipleChoice": "heads.BertForMultipleChoice",
    "AutoModelForQuestionAnswering": "heads.BertForQuestionAnswering",
}


class BertEmbeddings(nn.Module):
    """Sum of word, segment and position embeddings, then LayerNorm and dropout (section 3.2, figure 2)."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = BertDropout(config.hidden_dropout_prob, config)

    def forward(
        self,
        input_ids: Tensor | None,  # (B, L)
        token_type_ids: Tensor | None,  # (B, L)
        position_ids: Tensor | None,  # (B, L) or (1, L)
        inputs_embeds: Tensor | None,  # (B, L, H)
        tokens: Tokens | None = None,
    ) -> Tensor:
        inputs = input_ids if inputs_embeds is None else inputs_embeds
        batch_size, length = inputs.shape[:2]
        limit = self.position_embeddings.num_embeddings
        if position_ids is None:
            if length > limit:
                raise ValueError(
                    f"expected at most {limit} tokens (config.max_position_embeddings), got {length}: "
                    "truncate the input or split it into windows"
                )
            position_ids = torch.arange(length, device=inputs.device).unsqueeze(0)
        if token_type_ids is None:
            token_type_ids = torch.zeros(batch_size, length, dtype=torch.long, device=inputs.device)
        if tokens is not None:
            inputs, token_type_ids, position_ids = tokens.unpad_inputs(inputs, token_type_ids, position_ids)
        words = self.word_embeddings(inputs) if inputs_embeds is None else inputs
        embeddings = words + self.token_type_embeddings(token_type_ids)
        embeddings = embeddings + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))  # (B, L, H)


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
    """Scaled dot-product attention written out; returns (B, L, N, D) and the weights (B, N, L, L)."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling  # (B, N, L, L)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


class BertSelfAttention(nn.Module):
    """Multi-head self-attention; bidirectional, or left-to-right with `config.is_decoder`."""

    def __init__(self, config: BertConfig):
        super().__init__()
        if config.hidden_size % config.num_attention_heads != 0:
            raise ValueError(
                f"expected hidden_size to be a multiple of num_attention_heads, got {config.hidden_size} and "
                f"{config.num_attention_heads}: change one of them in the config"
            )
        self.config = config
        self.head_size = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_size**-0.5
        # transformers' sdpa takes a missing attribute for True, and then is causal on batches without padding.
        self.is_causal = config.is_decoder
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        tokens: Tokens | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, Tensor | None]:
        batch_size, length, hidden_size = hidden_states.shape
        heads_shape = (batch_size, length, -1, self.head_size)
        query = self.query(hidden_states).view(heads_shape).transpose(1, 2)  # (B, N, L, D)
        key = self.key(hidden_states).view(heads_shape).transpose(1, 2)
        value = self.value(hidden_states).view(heads_shape).transpose(1, 2)
        name = self.config._attn_implementation
        attend: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(name, eager_attention_forward)
        if self.training and not self.is_causal and self.dropout.p and drops_fast(self.config, query):
            fast = partial(fast_dropout_attention, keep_weights=name == "eager")
            attend = fast if name in ("eager", "sdpa") else attend
        if tokens is not None:
            attend = partial(attend_unpadded, attend, tokens)
        context, weights = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.dropout.p if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        return context.reshape(batch_size, length, hidden_size), weights


class BertResidual(nn.Module):
    """Projection, dropout, then LayerNorm of the sum with the residual (post-LN, as in the original)."""

    def __init__(self, config: BertConfig, input_size: int):
        super().__init__()
        self.dense = nn.Linear(input_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = BertDropout(config.hidden_dropout_prob, config)

    def forward(self, hidden_states: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(hidden_states)) + residual)  # (B, L, H)


class BertAttention(nn.Module):
    """Self-attention and its residual block; the attribute names are those of the tensors on disk."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = BertResidual(config, config.hidden_size)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        read: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Tensor:
        context, _ = self.self(hidden_states, attention_mask, **kwargs)
        if read is not None:
            context, hidden_states = take(context, read), take(hidden_states, read)
        return self.output(context, hidden_states)


class BertIntermediate(nn.Module):
    """First half of the feed-forward block: H -> I, then the activation (exact GELU unless configured)."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.activation(self.dense(hidden_states))  # (B, L, I)


class BertLayer(GradientCheckpointingLayer):
    """Attention, then feed-forward, each with its residual block."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.attention = BertAttention(config)
        self.intermediate = BertIntermediate(config)
        self.output = BertResidual(config, config.intermediate_size)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Tensor:
        # hidden_states must stay the first positional argument: checkpointing and output recording read it there.
        attended = self.attention(hidden_states, attention_mask, **kwargs)
        return apply_chunking_to_forward(self.feed_forward, self.chunk_size_feed_forward, 1, attended)

    def feed_forward(self, attended: Tensor) -> Tensor:
        return self.output(self.intermediate(attended), attended)


class BertEncoder(nn.Module):
    """The stack of layers; of the last one, from its attention on, only the rows `read` (None: all), (1, rows, H)."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.layer = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, read: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        *layers, last = self.layer
        for layer in layers:
            hidden_states = layer(hidden_states, attention_mask, **kwargs)
        return last(hidden_states, attention_mask, read=read, **kwargs)


class BertPooler(nn.Module):
    """Dense layer and tanh over the first token, [CLS]: the sentence representation "C" of the paper."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return torch.tanh(self.dense(hidden_states[:, 0]))  # (B, H)


class BertPreTrainedModel(PreTrainedModel):
    """What all eight classes share: initialisation, capabilities and the format of saved folders."""

    config: BertConfig
    config_class = BertConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _keys_to_ignore_on_load_unexpected = [r"embeddings\.position_ids"]  # noqa: RUF012 - a buffer of old checkpoints
    _can_record_outputs = {"hidden_states": BertLayer, "attentions": BertSelfAttention}  # noqa: RUF012

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Weights from N(0, initializer_range) cut at two standard deviations, biases 0, LayerNorm 1 and 0.

        Source: `create_initializer` of google-research/bert (transformers draws from the uncut normal). The padding
        token's row is zero, as in transformers. `transformers.initialization` leaves loaded tensors alone.
        """
        if isinstance(module, nn.Linear | nn.Embedding):
            std = self.config.initializer_range
            initialization.trunc_normal_(module.weight, mean=0.0, std=std, a=-2 * std, b=2 * std)
            if isinstance(module, nn.Linear):
                if module.bias is not None:
                    initialization.zeros_(module.bias)
            elif module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                initialization.zeros_(module.weight[module.padding_idx])
        else:
            super()._init_weights(module)

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoModel") -> None:
        """No effect on the classes of this package: `save_pretrained` always writes the whole family's auto_map.

        transformers calls this on classes loaded with trust_remote_code; its own bookkeeping would replace an entry
        of that table at the next save. Classes derived elsewhere keep transformers' behaviour.
        """
        if cls.__module__.rpartition(".")[0] != __name__.rpartition(".")[0]:
            super().register_for_auto_class(auto_class)

    def save_pretrained(
        self, save_directory: str | os.PathLike, is_main_process: bool = True, *args: Any, **kwargs: Any
    ) -> None:
        """Save as transformers does, plus the modelling code and an `auto_map` over the whole AutoModel family.

        The folder opens as transformers' BERT everywhere, and as these classes with `trust_remote_code=True`.
        The switches of this package are not written.
        """
        if is_main_process:
            os.makedirs(save_directory, exist_ok=True)
            for name in CODE_FILES:
                shutil.copyfile(Path(__file__).with_name(name), Path(save_directory) / name)
        self.config.auto_map = dict(AUTO_MAP)
        fields = self.config.__dict__
        switches = {name: fields.pop(name) for name in SWITCHES if name in fields}
        try:
            super().save_pretrained(save_directory, is_main_process, *args, **kwargs)
        finally:
            fields.update(switches)

    def _get_files_timestamps(self, working_dir: str | os.PathLike) -> dict[str, float]:
        # save_pretrained(push_to_hub=True) uploads what is newer than this table, and our code is copied before it.
        stamps = super()._get_files_timestamps(working_dir)
        return {name: stamp for name, stamp in stamps.items() if name not in CODE_FILES}


def refuse_cache(forward: Callable) -> Callable:
    """Reject key-value caches; outside the merge of config defaults, as `config.use_cache` is true there."""

    @wraps(forward)
    def checked(self: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("past_key_values") is not None or (kwargs.get("use_cache") and self.config.is_decoder):
            raise ValueError(
                "expected no key-value cache, got past_key_values or use_cache=True: is_decoder=True means "
                "left-to-right attention over whole sequences here; pass all tokens at every call"
            )
        return forward(self, *args, **kwargs)

    return checked


class BertModel(BertPreTrainedModel):
    """The encoder with its pooler: `last_hidden_state` (B, L, H) and `pooler_output` (B, H)."""

    _no_split_modules = ["BertEmbeddings", "BertLayer"]  # noqa: RUF012

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True):
        """Raises ValueError for a config with cross-attention or an initializer_range of 0 or below."""
        super().__init__(config)
        if config.add_cross_attention:
            raise ValueError(
                "expected add_cross_attention=False, got True: BERT here is an encoder (left-to-right with "
                "is_decoder=True); use transformers' BertModel for cross-attention"
            )
        if config.initializer_range <= 0:
            raise ValueError(f"expected initializer_range above 0, got {config.initializer_range}: BERT uses 0.02")
        self.gradient_checkpointing = False
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config) if add_pooling_layer else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
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
        unpad_inputs: Switch | Tokens = None,
        read_positions: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, ...] | BaseModelOutputWithPoolingAndCrossAttentions:
        """Encode `input_ids` (B, L) or `inputs_embeds` (B, L, H), exactly one of them.

        attention_mask: (B, L), 1 real and 0 padding, on either side; token_type_ids: (B, L), 0 first and 1 second
        segment (default 0); position_ids: (B, L), default 0 .. L-1. output_hidden_states, output_attentions (eager
        only) and return_dict work as in transformers. The cross-attention and cache arguments hold their places in
        transformers' signature; using them raises ValueError, as does L above config.max_position_embeddings.
        unpad_inputs: True, or "auto" where it pays (default `config.unpad_inputs`, default off here), computes real
        tokens only and gives zeros at padding; the heads pass the tokens that they chose. read_positions: (M,) int64
        into the flattened B * L positions, what the heads look at; the last layer is computed to its end there only,
        last_hidden_state is 0 elsewhere. cu_seq_lens_q as in transformers' FlashAttentionKwargs: one row (1, L) holds
        several sequences end to end, none attends to another; positions restart by default.
        """
        if (input_ids is None) == (inputs_embeds is None):
            got = "neither" if input_ids is None else "both"
            raise ValueError(f"expected exactly one of input_ids and inputs_embeds, got {got}: pass one of them")
        if encoder_hidden_states is not None or encoder_attention_mask is not None:
            raise ValueError(
                "expected no encoder_hidden_states or encoder_attention_mask, got one: this BERT has no "
                "cross-attention; use transformers' BertModel for it"
            )
        tokens = unpad_inputs
        if not isinstance(tokens, Tokens):
            tokens = choose_tokens(self.config, attention_mask, tokens, kwargs, keep_first=self.pooler is not None)
        shape = (input_ids if inputs_embeds is None else inputs_embeds).shape[:2]
        if kwargs.get("cu_seq_lens_q") is not None and position_ids is None:
            position_ids = tokens.positions
        hidden_states = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds, tokens)
        make_mask = create_causal_mask if self.config.is_decoder else create_bidirectional_mask
        inputs = {"inputs_embeds": hidden_states, "attention_mask": attention_mask, "past_key_values": None}
        mask = make_mask(config=self.config, **inputs) if tokens is None else None
        read = rows_of(read_positions, tokens)
        hidden_states = self.encoder(hidden_states, mask, read=read, tokens=tokens, **kwargs)
        hidden_states = lay_back(hidden_states, read_positions, tokens, *shape)
        return BaseModelOutputWithPoolingAndCrossAttentions(
            last_hidden_state=hidden_states,
            pooler_output=self.pooler(hidden_states) if self.pooler is not None else None,
        )
