"""The heads of fine-tuning (section 4): sequences, tokens, multiple choice, question answering.

Every forward accepts ``unpad_inputs`` and tells the encoder what it reads, as in pretraining_heads.py. Arguments
without a description are those of ``BertModel.forward``; ``num_items_in_batch`` is explained in losses.py.
Shapes: B batch, L length, H hidden size, C classes.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import BertConfig
from transformers.modeling_outputs import (
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from .losses import IGNORED, Count, classification_loss, cross_entropy, find_problem_type, token_loss
from .modeling_bert import BertModel
from .pretrained import POOLED_ONLY, BertPreTrainedModel, HeadReads, UnpadInputs, only_input
from .pretraining_heads import BertForMaskedLM, BertForNextSentencePrediction, BertForPreTraining

# The config of a saved folder refers to this file for every class (see AUTO_MAP).
__all__ = [
    "BertForMaskedLM",
    "BertForMultipleChoice",
    "BertForNextSentencePrediction",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertModel",
]


def count_labels(config: BertConfig) -> int:
    """The number of classes C, without the None that transformers' declaration of ``num_labels`` allows."""
    return cast("int", config.num_labels)


def classifier_dropout(config: BertConfig) -> nn.Dropout:
    """Dropout before the classifier: ``config.classifier_dropout`` or, if unset, ``config.hidden_dropout_prob``."""
    own = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if own is None else own)


class BertForSequenceClassification(BertPreTrainedModel):
    """Classification or regression from the pooled [CLS] (section 4.1): logits (B, C)."""

    def __init__(self, config: BertConfig):
        super().__init__(config)
        self.num_labels = count_labels(config)
        self.bert = BertModel(config)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Count = None,
        loss_weights: Tensor | None = None,
        class_weights: Tensor | None = None,
        unpad_inputs: UnpadInputs = None,
        **kwargs: Any,
    ) -> tuple[Tensor, ...] | SequenceClassifierOutput:
        """Classify every sequence.

        As in transformers, the first call with labels sets ``config.problem_type`` if it is unset; pipelines choose by
        it between softmax, sigmoid and the raw score.

        Args:
            labels, loss_weights, class_weights: those of ``classification_loss``.
        """
        outputs = self.bert(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            unpad_inputs=unpad_inputs,
            reads=POOLED_ONLY,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None
        if labels is not None:
            if self.config.problem_type is None:
                self.config.problem_type = find_problem_type(self.num_labels, labels)
            problem, options = self.config.problem_type, (loss_weights, class_weights)
            loss = classification_loss(logits, labels, problem, num_items_in_batch, *options)
        return SequenceClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class BertForTokenClassification(BertPreTrainedModel):
    """A class for every token (section 5.3): logits (B, L, C)."""

    def __init__(self, config: BertConfig):
        super().__init__(config)
        self.num_labels = count_labels(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Count = None,
        loss_weights: Tensor | None = None,
        unpad_inputs: UnpadInputs = None,
        **kwargs: Any,
    ) -> tuple[Tensor, ...] | TokenClassifierOutput:
        """Classify every token.

        Args:
            labels: (B, L), class ids or -100.
            loss_weights: (B, L), by which the losses of the tokens are multiplied.
        """
        outputs = self.bert(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            unpad_inputs=unpad_inputs,
            reads=None if labels is None else HeadReads(labels != IGNORED),
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = token_loss(logits, labels, num_items_in_batch, loss_weights)
        return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


def flat_choices(values: Tensor | None) -> Tensor | None:
    """(B, choices, L, ...) -> (B * choices, L, ...)"""
    return None if values is None else values.flatten(0, 1)


class BertForMultipleChoice(BertPreTrainedModel):
    """One score for each choice (section 4.4), softmax over the choices: logits (B, choices)."""

    def __init__(self, config: BertConfig):
        super().__init__(config)
        self.bert = BertModel(config)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Count = None,
        unpad_inputs: UnpadInputs = None,
        **kwargs: Any,
    ) -> tuple[Tensor, ...] | MultipleChoiceModelOutput:
        """Score every choice. Inputs have one more dimension than in other heads, (B, choices, L).

        Args:
            labels: (B,), the index of the right choice.
        """
        choices = only_input(input_ids, inputs_embeds).shape[1]
        outputs = self.bert(
            flat_choices(input_ids),
            flat_choices(attention_mask),
            flat_choices(token_type_ids),
            flat_choices(position_ids),
            flat_choices(inputs_embeds),
            unpad_inputs=unpad_inputs,
            reads=POOLED_ONLY,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, choices)
        loss = None if labels is None else cross_entropy(logits, labels.view(-1), num_items_in_batch)
        return MultipleChoiceModelOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class BertForQuestionAnswering(BertPreTrainedModel):
    """Start and end of an answer span (section 4.2): start_logits and end_logits (B, L)."""

    def __init__(self, config: BertConfig):
        """Raises ValueError unless ``config.num_labels`` is 2: one score for the start and one for the end."""
        super().__init__(config)
        if config.num_labels != 2:
            raise ValueError(f"expected num_labels=2 (start and end), got {config.num_labels}: set num_labels=2")
        self.num_labels = count_labels(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        num_items_in_batch: Count = None,
        unpad_inputs: UnpadInputs = None,
        **kwargs: Any,
    ) -> tuple[Tensor, ...] | QuestionAnsweringModelOutput:
        """Score every token as the start and as the end of the answer.

        The loss is the mean of the cross-entropies of start and end. Their softmax is over the real tokens if
        ``unpad_inputs`` is True or "auto", and otherwise over all L positions, as in transformers.

        Args:
            start_positions, end_positions: (B,) token indices. As in transformers, indices of L or more are ignored
                and negative ones count as 0.
        """
        outputs = self.bert(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            unpad_inputs=unpad_inputs,
            return_dict=True,
            **kwargs,
        )
        logits = self.qa_outputs(outputs.last_hidden_state)
        # Logits at padding become the lowest number of their type, so that their softmax is 0. This is done whether or
        # not padding was computed in this call, so that the loss does not depend on it.
        if self.find_switch(unpad_inputs) and attention_mask is not None and attention_mask.dim() == 2:
            padding = (attention_mask == 0).unsqueeze(-1).to(logits.device)
            logits = logits.masked_fill(padding, torch.finfo(logits.dtype).min)
        start_logits, end_logits = logits.unbind(-1)
        start_logits, end_logits = start_logits.contiguous(), end_logits.contiguous()
        loss = None
        if start_positions is not None and end_positions is not None:
            length = start_logits.shape[1]
            start_loss, end_loss = (
                cross_entropy(scores, positions.view(-1).clamp(0, length), num_items_in_batch, ignored=length)
                for scores, positions in ((start_logits, start_positions), (end_logits, end_positions))
            )
            loss = (start_loss + end_loss) / 2
        return QuestionAnsweringModelOutput(loss, start_logits, end_logits, outputs.hidden_states, outputs.attentions)
