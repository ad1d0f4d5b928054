"""A BiLSTM on top of BERT, fine-tuned together with it (paper, section 5.1: "LTR & No NSP + BiLSTM").

In a left-to-right network a token does not see the tokens after it; the paper asks whether a new bidirectional layer
makes up for that. The paper says no more than "a randomly initialized BiLSTM on top". Here the BiLSTM has two layers,
as in the feature-based approach (section 5.3), and as many units in each direction as BERT has.

Shapes: B batch, L length, H hidden size of BERT, C classes.

This file is copied into saved models, which ``trust_remote_code=True`` then opens; therefore it imports nothing of the
project. Without that flag transformers refuses such a folder, because its own heads read H values of a token and these
read 2H.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import BertConfig, BertModel, PreTrainedModel, initialization
from transformers.modeling_outputs import QuestionAnsweringModelOutput, TokenClassifierOutput

Count = int | Tensor | None
IGNORED_LABEL = -100  # as in transformers: the position is excluded from the loss


class BertBiLSTM(PreTrainedModel):
    """BERT and a two-layer BiLSTM, which are trained together; the two classes below add the output layer.

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
            bound = module.hidden_size**-0.5
            for parameter in module.parameters():
                initialization.uniform_(parameter, -bound, bound)

    def bilstm_outputs(self, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None) -> Tensor:
        """The outputs of the BiLSTM after dropout: (B, L, 2H), 0 at padding.

        Args:
            input_ids, attention_mask, token_type_ids: (B, L), as for BERT. Padding must be on the right.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = self.bert(input_ids, mask, token_type_ids).last_hidden_state.to(self.lstm.weight_ih_l0.dtype)
        packed = pack_padded_sequence(hidden, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        # Without autocast, because torch has no mixed-precision LSTM for processors that do not compute in bfloat16.
        with torch.autocast(input_ids.device.type, enabled=False):
            outputs, _ = self.lstm(packed)
        padded, _ = pad_packed_sequence(outputs, batch_first=True, total_length=input_ids.shape[1])
        return self.dropout(padded)


class BertBiLSTMForTokenClassification(BertBiLSTM):
    """A class for every token: logits (B, L, C).

    For a task with one label for a text, only the last token has a label (``--label_token last``).
    """

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
        """The logits (B, L, C) and, with labels, the loss.

        Args:
            input_ids, attention_mask, token_type_ids: (B, L), with padding on the right.
            labels: (B, L), the number of a class or -100 for a token without a label.
            num_items_in_batch: what the sum of the losses is divided by; None stands for the number of labels.
            kwargs: are ignored.
        """
        logits = self.classifier(self.bilstm_outputs(input_ids, attention_mask, token_type_ids))
        loss = None
        if labels is not None:
            loss = _loss(logits.flatten(0, 1), labels.flatten(), num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits)


class BertBiLSTMForQuestionAnswering(BertBiLSTM):
    """Start and end of an answer: two logits for every token; at padding they are the lowest number of their type."""

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
        """The logits of start and end, (B, L) each, and, with both positions, the loss: the mean of the two losses.

        Args:
            input_ids, attention_mask, token_type_ids: (B, L), with padding on the right.
            start_positions, end_positions: (B,), 0 to L - 1, or -100 for a row without an answer.
            num_items_in_batch: what the sum of the losses is divided by; None stands for the number of answers.
            kwargs: are ignored.
        """
        logits = self.qa_outputs(self.bilstm_outputs(input_ids, attention_mask, token_type_ids))
        if attention_mask is not None:
            logits = logits.masked_fill(attention_mask.unsqueeze(-1) == 0, torch.finfo(logits.dtype).min)
        start_logits, end_logits = logits[..., 0].contiguous(), logits[..., 1].contiguous()
        loss = None
        if start_positions is not None and end_positions is not None:
            start_loss = _loss(start_logits, start_positions.view(-1), num_items_in_batch)
            end_loss = _loss(end_logits, end_positions.view(-1), num_items_in_batch)
            loss = (start_loss + end_loss) / 2
        return QuestionAnsweringModelOutput(loss=loss, start_logits=start_logits, end_logits=end_logits)


def _loss(logits: Tensor, labels: Tensor, count: Count) -> Tensor:
    """The sum of the cross-entropies of the rows, divided by ``count`` or else by the number of labels; 0 without any.

    Args:
        logits: (rows, classes).
        labels: (rows,), the number of a class or -100.
    """
    total = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED_LABEL, reduction="sum")
    items = (labels != IGNORED_LABEL).sum() if count is None else count
    return total / torch.as_tensor(items).clamp(min=1).to(total.device)
