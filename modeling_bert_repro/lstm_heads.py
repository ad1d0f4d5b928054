"""Networks with a bidirectional LSTM over BERT, as the paper has them in two experiments.

- Section 5.1, "LTR & No NSP + BiLSTM": in a left-to-right network a token does not see the tokens after it, and the
  paper asks whether a new bidirectional layer, trained with the rest, makes up for that. It says no more than "a
  randomly initialized BiLSTM on top"; here the BiLSTM has two layers, as in section 5.3, and as many units in each
  direction as BERT has.
- Section 5.3 and Table 7, the feature-based approach: a two-layer BiLSTM over layers of a frozen BERT.

A saved model gets a copy of this file and of losses.py, with which ``trust_remote_code=True`` opens it. Without that
flag transformers refuses the folder, because its own heads read H values of a token and these read those of the LSTM.

Shapes: B batch, L length, H hidden size of BERT, N its layers, U units of the LSTM in each direction, C classes.
"""

from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import BertConfig, BertModel, PreTrainedModel, initialization
from transformers.modeling_outputs import QuestionAnsweringModelOutput, TokenClassifierOutput

from .losses import Count, cross_entropy, token_loss

LAYERS = {  # name: which of [embeddings, 1, ..., N]; a "sum" adds them up with weights, others are concatenated
    "embeddings": slice(0, 1),
    "second_to_last": slice(-2, -1),
    "last": slice(-1, None),
    "weighted_sum_last_four": slice(-4, None),
    "concat_last_four": slice(-4, None),
    "weighted_sum_all": slice(1, None),
}


class BertWithLSTM(PreTrainedModel):
    """BERT and a two-layer BiLSTM; the classes below choose what it reads and add the output layer.

    Args:
        features: how many values of a token the LSTM reads.
        units: U.
        encoder_class: the class of BERT, with the interface of transformers' BertModel.
    """

    config_class = BertConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_sdpa = True

    def __init__(self, config: BertConfig, features: int, units: int, encoder_class: type) -> None:
        super().__init__(config)
        self.num_labels = cast("int", config.num_labels)  # transformers declares that it may be None
        self.bert = encoder_class(config, add_pooling_layer=False)
        dropout = config.hidden_dropout_prob
        self.lstm = nn.LSTM(features, units, 2, batch_first=True, dropout=dropout, bidirectional=True)
        self.dropout = nn.Dropout(dropout)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise the LSTM as torch does, because transformers has no rule for it."""
        super()._init_weights(module)
        if isinstance(module, nn.LSTM):
            bound = module.hidden_size**-0.5
            for parameter in module.parameters():
                initialization.uniform_(parameter, -bound, bound)

    def features(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """What the LSTM reads: the output of BERT, (B, L, H)."""
        return self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state

    def lstm_outputs(self, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None) -> Tensor:
        """The outputs of the LSTM after dropout: (B, L, 2U), 0 at padding.

        Args:
            input_ids, attention_mask, token_type_ids: (B, L), as for BERT. Padding must be on the right.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        own = cast("Tensor", self.lstm.weight_ih_l0)  # DataParallel's replicas have no parameters() to ask
        features = self.features(input_ids, mask, token_type_ids).to(own.dtype)
        packed = pack_padded_sequence(features, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        # Without autocast, because torch has no mixed-precision LSTM for processors that do not compute in bfloat16.
        with torch.autocast(input_ids.device.type, enabled=False):
            outputs, _ = self.lstm(packed)
        padded, _ = pad_packed_sequence(outputs, batch_first=True, total_length=input_ids.shape[1])
        return self.dropout(padded)


class TokenClassifier(BertWithLSTM):
    """A class for every token: logits (B, L, C)."""

    def __init__(self, config: BertConfig, features: int, units: int, encoder_class: type) -> None:
        super().__init__(config, features, units, encoder_class)
        self.classifier = nn.Linear(2 * units, self.num_labels)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Count = None,
        loss_weights: Tensor | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """The logits (B, L, C) and, with labels, the loss.

        Args:
            input_ids, attention_mask, token_type_ids: (B, L), with padding on the right.
            labels: (B, L), the number of a class or -100 for a token without a label.
            num_items_in_batch: what the sum of the losses is divided by; None stands for the number of labels.
            loss_weights: as in ``BertForTokenClassification``.
            kwargs: are ignored.
        """
        logits = self.classifier(self.lstm_outputs(input_ids, attention_mask, token_type_ids))
        loss = None
        if labels is not None:
            loss = token_loss(logits, labels, num_items_in_batch, loss_weights)
        return TokenClassifierOutput(loss=loss, logits=logits)


class BertBiLSTMForTokenClassification(TokenClassifier):
    """BERT and a BiLSTM on top, trained together.

    For a task with one label for a text, only the last token has a label (``--label_token last``).
    """

    _auto_class = "AutoModelForTokenClassification"  # save_pretrained writes this file and an auto_map to it

    def __init__(self, config: BertConfig, encoder_class: type = BertModel) -> None:
        super().__init__(config, config.hidden_size, config.hidden_size, encoder_class)
        self.post_init()


class BertBiLSTMForQuestionAnswering(BertWithLSTM):
    """Start and end of an answer: two logits for every token; at padding they are the lowest number of their type."""

    _auto_class = "AutoModelForQuestionAnswering"

    def __init__(self, config: BertConfig, encoder_class: type = BertModel) -> None:
        super().__init__(config, config.hidden_size, config.hidden_size, encoder_class)
        self.qa_outputs = nn.Linear(2 * config.hidden_size, 2)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        num_items_in_batch: Count = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """The logits of start and end, (B, L) each, and, with both positions, the loss: the mean of the two losses.

        Args:
            input_ids, attention_mask, token_type_ids: (B, L), with padding on the right.
            start_positions, end_positions: (B,), 0 to L - 1, or -100 for a row without an answer.
            num_items_in_batch: what the sum of the losses is divided by; None stands for the number of answers.
            kwargs: are ignored.
        """
        logits = self.qa_outputs(self.lstm_outputs(input_ids, attention_mask, token_type_ids))
        if attention_mask is not None:
            logits = logits.masked_fill(attention_mask.unsqueeze(-1) == 0, torch.finfo(logits.dtype).min)
        start_logits, end_logits = logits[..., 0].contiguous(), logits[..., 1].contiguous()
        loss = None
        if start_positions is not None and end_positions is not None:
            start_loss = cross_entropy(start_logits, start_positions.view(-1), num_items_in_batch)
            end_loss = cross_entropy(end_logits, end_positions.view(-1), num_items_in_batch)
            loss = (start_loss + end_loss) / 2
        return QuestionAnsweringModelOutput(loss=loss, start_logits=start_logits, end_logits=end_logits)


class BertFeatureTagger(TokenClassifier):
    """A two-layer BiLSTM and a classifier over layers of a BERT without gradients and dropout: logits (B, L, C).

    ``config.feature_based``, a key of LAYERS, chooses the layers. The weights of a weighted sum are learnt: they are
    the softmax of parameters that are 0 at first, which gives the mean. ``config.lstm_size`` is U. Call ``freeze``
    before training, because ``from_pretrained`` makes trainable parameters.

    Raises:
        ValueError: ``config.feature_based`` is not in LAYERS, or it needs more layers than the model has.
    """

    _auto_class = "AutoModelForTokenClassification"

    def __init__(self, config: BertConfig, encoder_class: type = BertModel):
        choice = config.feature_based
        if choice not in LAYERS or ("four" in choice and config.num_hidden_layers < 4):
            raise ValueError(
                f"expected feature_based out of {', '.join(LAYERS)}, with four layers if it needs four; got {choice!r} "
                f"for {config.num_hidden_layers} layers"
            )
        count = len(range(config.num_hidden_layers + 1)[LAYERS[choice]])
        features = config.hidden_size * (count if "concat" in choice else 1)
        super().__init__(config, features, config.lstm_size, encoder_class)
        self.weights = nn.Parameter(torch.zeros(count)) if "sum" in choice else None
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, BertFeatureTagger) and module.weights is not None:
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

    def features(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """The features (B, L, H), or (B, L, 4H) for a concatenation of four layers."""
        with torch.no_grad():
            states = self.bert(input_ids, attention_mask, token_type_ids, output_hidden_states=True).hidden_states
        layers = states[LAYERS[self.config.feature_based]]
        if self.weights is None:
            return torch.cat(layers, dim=-1)
        shares = self.weights.float().softmax(0)
        return torch.einsum("n,nblh->blh", shares, torch.stack(layers).float()).to(self.weights.dtype)
