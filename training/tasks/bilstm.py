"""A BiLSTM on top of BERT, fine-tuned together with it (paper, section 5.1: "LTR & No NSP + BiLSTM").

A left-to-right network sees nothing behind a token; the paper asks whether a new bidirectional layer repairs that. Its
text says no more than "a randomly initialized BiLSTM on top": here it has two layers, as the one of the feature-based
approach (section 5.3), and as many units in each direction as BERT has.

Shapes: B batch, L length, H hidden size of BERT, C classes.

This file is copied into saved models, which `trust_remote_code=True` then opens; it imports nothing of the project.
Without that flag transformers refuses such a folder: its own heads read H values of a token, these read 2H.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import BertConfig, BertModel, PreTrainedModel, initialization
from transformers.modeling_outputs import QuestionAnsweringModelOutput, TokenClassifierOutput

Count = int | Tensor | None
IGNORED_LABEL = -100


class BertBiLSTM(PreTrainedModel):
    """BERT and a two-layer BiLSTM, both trained; the two classes below add the output layer.

    Args:
        encoder_class: the class of BERT, with the interface of transformers' BertModel.
    """

    config_class = BertConfig
    base_model_prefix = "bert"
    _supports_sdpa = True

    def __init__(self, config: BertConfig, encoder_class: type = BertModel) -> None:
        super().__init__(config)
        self.num_labels = cast("int", config.num_labels)  # transformers declares that it may be None
        self.bert = encoder_class(config, add_pooling_layer=False)
        size, dropout = config.hidden_size, config.hidden_dropout_prob
        self.lstm = nn.LSTM(size, size, 2, batch_first=True, dropout=dropout, bidirectional=True)
        self.dropout = nn.Dropout(dropout)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise the LSTM as torch does, because transformers has no rule for it."""
        super()._init_weights(module)
        if isinstance(module, nn.LSTM):
            for parameter in module.parameters():
                initialization.uniform_(parameter, -(module.hidden_size**-0.5), module.hidden_size**-0.5)

    def read(self, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None) -> Tensor:
        """The BiLSTM's outputs (B, L, 2H), 0 at padding, which must be on the right."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = self.bert(input_ids, mask, token_type_ids).last_hidden_state.to(self.lstm.weight_ih_l0.dtype)
        packed = pack_padded_sequence(hidden, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        # Without autocast, because torch has no mixed-precision LSTM for processors that do not compute in bfloat16.
        with torch.autocast(input_ids.device.type, enabled=False):
            outputs, _ = self.lstm(packed)
        padded, _ = pad_packed_sequence(outputs, batch_first=True, total_length=input_ids.shape[1])
        return self.dropout(padded)


class BertBiLSTMForTokenClassification(BertBiLSTM):
    """A class for every token: logits (B, L, C). A text's only label is that of its last token."""

    _auto_class = "AutoModelForTokenClassification"  # save_pretrained writes this file and an auto_map to it

    def __init__(self, config: BertConfig, encoder_class: type = BertModel) -> None:
        super().__init__(config, encoder_class)
        self.classifier = nn.Linear(2 * config.hidden_size, self.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Count = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Labels (B, L) are class ids or -100; the loss is their sum, divided by ``num_items_in_batch``."""
        logits = self.classifier(self.read(input_ids, attention_mask, token_type_ids))
        loss = None
        if labels is not None:
            loss = _loss(logits.flatten(0, 1), labels.flatten(), num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits)


class BertBiLSTMForQuestionAnswering(BertBiLSTM):
    """Start and end of an answer: two logits for every token, the lowest number of their type at padding."""

    _auto_class = "AutoModelForQuestionAnswering"

    def __init__(self, config: BertConfig, encoder_class: type = BertModel) -> None:
        super().__init__(config, encoder_class)
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
        """start_positions, end_positions: (B,). The loss is the mean of the start's and the end's."""
        logits = self.qa_outputs(self.read(input_ids, attention_mask, token_type_ids))
        if attention_mask is not None:
            logits = logits.masked_fill(attention_mask.unsqueeze(-1) == 0, torch.finfo(logits.dtype).min)
        start, end = (side.contiguous() for side in logits.unbind(-1))
        loss = None
        if start_positions is not None and end_positions is not None:
            losses = (
                _loss(side, positions.view(-1), num_items_in_batch)
                for side, positions in ((start, start_positions), (end, end_positions))
            )
            loss = sum(losses, torch.zeros((), device=logits.device)) / 2
        return QuestionAnsweringModelOutput(loss=loss, start_logits=start, end_logits=end)


def _loss(logits: Tensor, labels: Tensor, count: Count) -> Tensor:
    total = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED_LABEL, reduction="sum")
    items = (labels != IGNORED_LABEL).sum() if count is None else count
    return total / torch.as_tensor(items).clamp(min=1).to(total.device)
