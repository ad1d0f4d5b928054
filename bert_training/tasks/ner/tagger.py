"""The feature-based approach (paper, section 5.3 and Table 7): a BiLSTM over the layers of a frozen BERT.

Shapes: B batch, L length, H hidden size of BERT, N its layers, C classes.

This file is copied into saved models, which open with ``trust_remote_code=True``. It imports nothing of the project.
"""

from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import BertConfig, BertModel, PreTrainedModel, initialization
from transformers.modeling_outputs import TokenClassifierOutput

Count = int | Tensor | None
IGNORED_LABEL = -100  # as in transformers: the position is excluded from the loss
LAYERS = {  # name: which of [embeddings, 1, ..., N]; a "sum" adds them up with weights, others are concatenated
    "embeddings": slice(0, 1),
    "second_to_last": slice(-2, -1),
    "last": slice(-1, None),
    "weighted_sum_last_four": slice(-4, None),
    "concat_last_four": slice(-4, None),
    "weighted_sum_all": slice(1, None),
}


class BertFeatureTagger(PreTrainedModel):
    """A two-layer BiLSTM and a classifier over layers of a BERT without gradients and dropout: logits (B, L, C).

    ``config.feature_based``, a key of LAYERS, chooses the layers. The weights of a weighted sum are learnt: they are
    the softmax of parameters that are 0 at first, which gives the mean. ``config.lstm_size`` is the number of units of
    the LSTM in each direction. Call ``freeze`` before training, because ``from_pretrained`` makes trainable parameters.

    Args:
        encoder_class: the class of BERT, with the interface of transformers' BertModel.

    Raises:
        ValueError: ``config.feature_based`` is not in LAYERS, or it needs more layers than the model has.
    """

    config_class = BertConfig
    base_model_prefix = "bert"
    _supports_sdpa = True
    _auto_class = "AutoModelForTokenClassification"  # save_pretrained writes this file and an auto_map to it

    def __init__(self, config: BertConfig, encoder_class: type = BertModel):
        super().__init__(config)
        if config.feature_based not in LAYERS:
            raise ValueError(f"expected feature_based out of {', '.join(LAYERS)}; got {config.feature_based!r}")
        count = len(range(config.num_hidden_layers + 1)[LAYERS[config.feature_based]])
        if "four" in config.feature_based and config.num_hidden_layers < 4:
            raise ValueError(f"{config.feature_based} needs 4 layers; the model has {config.num_hidden_layers}")
        self.num_labels = cast("int", config.num_labels)  # transformers declares that it may be None
        self.bert = encoder_class(config, add_pooling_layer=False)
        self.weights = nn.Parameter(torch.zeros(count)) if "sum" in config.feature_based else None
        size = config.hidden_size * (count if "concat" in config.feature_based else 1)
        dropout = config.hidden_dropout_prob
        self.lstm = nn.LSTM(size, config.lstm_size, 2, batch_first=True, dropout=dropout, bidirectional=True)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(2 * config.lstm_size, self.num_labels)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise the LSTM as torch does, because transformers has no rule for it."""
        super()._init_weights(module)
        if isinstance(module, nn.LSTM):
            bound = module.hidden_size**-0.5
            for parameter in module.parameters():
                initialization.uniform_(parameter, -bound, bound)
        elif isinstance(module, BertFeatureTagger) and module.weights is not None:
            initialization.zeros_(module.weights)

    def freeze(self) -> Self:
        """Exclude BERT from the training; return self."""
        self.bert.requires_grad_(False)
        return self

    def train(self, mode: bool = True) -> Self:
        """Switch the training mode of everything but BERT, whose features must be the same in every epoch."""
        super().train(mode)
        self.bert.eval()
        return self

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Count = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """The logits (B, L, C) and, with labels, the loss.

        Args:
            input_ids, attention_mask, token_type_ids: (B, L), with padding on the right.
            labels: (B, L), the number of a class or -100 for a token without a label.
            num_items_in_batch: what the sum of the losses is divided by; None stands for the number of labels.
            kwargs: are ignored.
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        lengths = attention_mask.sum(1).cpu()
        features = self.features(input_ids, attention_mask, token_type_ids).to(self.classifier.weight.dtype)
        packed = pack_padded_sequence(features, lengths, batch_first=True, enforce_sorted=False)
        # Without autocast, because torch has no mixed-precision LSTM for processors that do not compute in bfloat16.
        with torch.autocast(input_ids.device.type, enabled=False):
            outputs = self.lstm(packed)[0]
        hidden, _ = pad_packed_sequence(outputs, batch_first=True, total_length=input_ids.shape[1])
        logits = self.classifier(self.dropout(hidden))
        loss = None
        if labels is not None:
            loss = _loss(logits.flatten(0, 1), labels.flatten(), num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits)

    def features(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """The features (B, L, H), or (B, L, 4H) for a concatenation of four layers."""
        with torch.no_grad():
            states = self.bert(input_ids, attention_mask, token_type_ids, output_hidden_states=True).hidden_states
        layers = states[LAYERS[self.config.feature_based]]
        if self.weights is None:
            return torch.cat(layers, dim=-1)
        shares = self.weights.float().softmax(0)
        return torch.einsum("n,nblh->blh", shares, torch.stack(layers).float()).to(self.weights.dtype)


def _loss(logits: Tensor, labels: Tensor, count: Count) -> Tensor:
    """The sum of the cross-entropies of the rows, divided by ``count`` or else by the number of labels; 0 without any.

    Args:
        logits: (rows, classes).
        labels: (rows,), the number of a class or -100.
    """
    total = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED_LABEL, reduction="sum")
    items = (labels != IGNORED_LABEL).sum() if count is None else count
    return total / torch.as_tensor(items).clamp(min=1).to(total.device)
