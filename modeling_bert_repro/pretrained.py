"""What all classes share: initial weights, capabilities, what they refuse, the saved folder."""

import os
import shutil
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from transformers import BertConfig, initialization
from transformers.modeling_utils import PreTrainedModel

AttentionFunction = Callable[..., tuple[Tensor, Tensor | None]]  # called like eager_attention_forward
UnpadInputs = bool | Literal["auto"] | None
# The code that is copied into every checkpoint, for ``trust_remote_code=True``.
CODE_FILES = (
    *("modeling_bert.py", "pretrained.py", "pretraining_heads.py", "heads.py", "losses.py"),
    *("fast_path.py", "unpadding.py", "fast_dropout.py"),
)
# Fields of the config that concern the running process only and are never saved.
SWITCHES = ("sparse_prediction", "unpad_inputs", "fast_dropout", "keys_to_ignore_at_inference")
RENAMINGS = "_weight_conversions"  # where transformers keeps how it renamed the tensors of the loaded checkpoint
# All entries name heads.py because transformers copies only what the named file imports, and heads.py imports
# everything, directly or indirectly. A model loaded from such a copy can therefore save all code files again.
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


class HeadReads(NamedTuple):
    """What a head reads from the encoder besides the pooled output, so that the fast path may skip the rest."""

    labelled: Tensor | None = None  # (B, L) bool: positions with a label, which are computed even if they are padding
    other_positions: bool = True  # whether the head reads the positions without a label as well
    rows: Tensor | None = None  # (M,) int64: the labelled positions, flattened, if the head reads no others


POOLED_ONLY = HeadReads(other_positions=False)


def only_input(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
    """Whichever of the two is given. Raises ValueError if both or neither are."""
    given = [values for values in (input_ids, inputs_embeds) if values is not None]
    if len(given) != 1:
        got = "both" if given else "neither"
        raise ValueError(f"expected exactly one of input_ids and inputs_embeds, got {got}: pass one of them")
    return given[0]


def check_config(config: BertConfig) -> None:
    """Raise ValueError for what this BERT does not have, and for sizes that do not fit together."""
    problems = []
    if config.add_cross_attention:
        problems.append(
            "expected add_cross_attention=False, got True: BERT here is an encoder (left-to-right with "
            "is_decoder=True); use transformers' BertModel for cross-attention"
        )
    positions = getattr(config, "position_embedding_type", None)
    if positions not in (None, "absolute"):
        problems.append(
            f"expected absolute positions, got position_embedding_type={positions!r}: this BERT, like that of "
            "transformers 5, has no relative ones and would compute something else with such weights"
        )
    if config.hidden_size % config.num_attention_heads != 0:
        problems.append(
            f"expected hidden_size to be a multiple of num_attention_heads, got {config.hidden_size} and "
            f"{config.num_attention_heads}: change one of them in the config"
        )
    if problems:
        raise ValueError("; ".join(problems))


def refuse_cross_attention(encoder_hidden_states: Tensor | None, encoder_attention_mask: Tensor | None) -> None:
    """Raise ValueError if either of the two is given."""
    if encoder_hidden_states is not None or encoder_attention_mask is not None:
        raise ValueError(
            "expected no encoder_hidden_states or encoder_attention_mask, got one: this BERT has no "
            "cross-attention; use transformers' BertModel for it"
        )


NO_CACHE = (
    "expected no key-value cache, got past_key_values (which prefix tuning passes) or use_cache=True: this BERT reads "
    "whole sequences, also left to right with is_decoder=True; pass all tokens at every call"
)


def refuse_cache(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate ``forward`` so that it raises ValueError if the caller asks for a key-value cache.

    It must be the outermost decorator: ``merge_with_config_defaults`` sets ``use_cache`` to ``config.use_cache``, which
    is True by default.
    """

    @wraps(forward)
    def checked(self: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("past_key_values") is not None or (kwargs.get("use_cache") and self.config.is_decoder):
            raise ValueError(NO_CACHE)
        return forward(self, *args, **kwargs)

    return checked


class BertPreTrainedModel(PreTrainedModel):
    """The base class of all models: initial weights, capabilities and the format of saved folders."""

    config: BertConfig
    config_class = BertConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _keys_to_ignore_on_load_unexpected = [r"embeddings\.position_ids"]  # noqa: RUF012 - a buffer of old checkpoints

    def find_switch(self, unpad_inputs: UnpadInputs) -> UnpadInputs:
        """The argument ``unpad_inputs`` if given, otherwise ``config.unpad_inputs``; False if neither is set."""
        switch = getattr(self.config, "unpad_inputs", None) if unpad_inputs is None else unpad_inputs
        return switch or False

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Weights from a normal distribution truncated at two deviations (``initializer_range``); biases 0.

        Source: ``create_initializer`` of google-research/bert (transformers does not truncate). The row of the padding
        token is zero, as in transformers. ``transformers.initialization`` does not change tensors that were loaded.
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
        """Do nothing for the classes of this package, because ``save_pretrained`` always writes the complete AUTO_MAP.

        transformers calls this for classes loaded with trust_remote_code, and would then replace an entry of the
        auto_map at the next save. Subclasses defined elsewhere keep transformers' behaviour.
        """
        if cls.__module__.rpartition(".")[0] != __name__.rpartition(".")[0]:
            super().register_for_auto_class(auto_class)

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], is_main_process: bool = True, *args: Any, **kwargs: Any
    ) -> None:
        """Save as transformers does, and add the modeling code and AUTO_MAP.

        The folder opens as transformers' BERT everywhere, and as these classes with ``trust_remote_code=True``. The
        switches of this package (``unpad_inputs``, ``fast_dropout``, ``sparse_prediction``) are not saved. The tensors
        have the names of the network, unless ``save_original_format=True`` asks for those of the loaded checkpoint.
        """
        if is_main_process:
            os.makedirs(save_directory, exist_ok=True)
            for name in CODE_FILES:
                shutil.copyfile(Path(__file__).with_name(name), Path(save_directory) / name)
        self.config.auto_map = dict(AUTO_MAP)
        # transformers saves every attribute of the config, so the switches are removed during the save.
        fields, own = self.config.__dict__, self.__dict__
        switches = {name: fields.pop(name) for name in SWITCHES if name in fields}
        # transformers undoes by default how it renamed the tensors of the loaded checkpoint (LayerNorm.gamma to
        # LayerNorm.weight); the names in a folder would then depend on where its training began.
        asked = "save_original_format" in kwargs or len(args) > 6
        renamings = {} if asked else {name: own.pop(name) for name in (RENAMINGS,) if name in own}
        try:
            super().save_pretrained(save_directory, is_main_process, *args, **kwargs)
        finally:
            fields.update(switches)
            own.update(renamings)

    def _get_files_timestamps(self, working_dir: str | os.PathLike[str]) -> dict[str, float]:
        # save_pretrained(push_to_hub=True) uploads files that are newer than in this table, which is made after our
        # code has been copied; files without an entry are uploaded, too.
        stamps = super()._get_files_timestamps(working_dir)
        return {name: stamp for name, stamp in stamps.items() if name not in CODE_FILES}
