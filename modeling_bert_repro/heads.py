"""The seven task heads over BertModel.

Every forward takes `unpad_inputs`; what it does is told in `unpadding.choose_tokens` and docs/performance.md.
Shapes: B batch, L length, H hidden size, V vocabulary, C classes, M labelled positions.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, initialization
from transformers.activations import ACT2FN
from transformers.modeling_outputs import (
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.models.bert import modeling_bert as transformers_bert
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import can_return_tuple

from .losses import IGNORED, Count, classification_loss, cross_entropy, per_item
from .modeling_bert import BertModel, BertPreTrainedModel
from .unpadding import Switch, Tokens, encode, on_tokens, resolve

TIED_DECODER = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


@dataclass
class BertForPreTrainingOutput(transformers_bert.BertForPreTrainingOutput):
    """transformers' output of the same name with the two terms of the loss; the tuple form is unchanged."""

    mlm_loss: Tensor | None = None
    nsp_loss: Tensor | None = None

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self[key] for key in self.keys() if key not in ("mlm_loss", "nsp_loss"))


def classifier_dropout(config: BertConfig) -> nn.Dropout:
    own = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if own is None else own)


class BertPredictionTransform(nn.Module):
    """Dense, activation and LayerNorm before the vocabulary (`get_masked_lm_output` of the original)."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.LayerNorm(self.activation(self.dense(hidden_states)))


class BertLMPredictionHead(nn.Module):
    """Logits over the vocabulary (..., V); the weight is the word embedding's, the bias is the head's own."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.transform = BertPredictionTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))  # tied to decoder.bias; the name on disk

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.decoder(self.transform(hidden_states))


class BertHeads(nn.Module):
    """The container behind the tensor names `cls.predictions...` and `cls.seq_relationship...`."""

    def __init__(self, config: BertConfig, predictions: bool, seq_relationship: bool):
        super().__init__()
        if predictions:
            self.predictions = BertLMPredictionHead(config)
        if seq_relationship:
            self.seq_relationship = nn.Linear(config.hidden_size, 2)


class BertLanguageModel(BertPreTrainedModel):
    """What the two classes with a vocabulary head share."""

    _tied_weights_keys = TIED_DECODER

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, BertLMPredictionHead):
            initialization.zeros_(module.bias)  # a model built on the meta device would keep arbitrary memory

    def get_output_embeddings(self) -> nn.Module:
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    def is_sparse(self, labels: Tensor | None, sparse_prediction: bool | None) -> bool:
        """Whether only labelled positions are projected: the argument, default `config.sparse_prediction`, off."""
        if sparse_prediction is None:
            sparse_prediction = getattr(self.config, "sparse_prediction", False)
        return labels is not None and sparse_prediction

    def predict_tokens(
        self, hidden_states: Tensor, labels: Tensor | None, count: Count, sparse: bool, tokens: Tokens | None
    ) -> tuple[Tensor, Tensor | None]:
        """Logits and loss for hidden_states (B, L, H) and labels (B, L), -100 where there is none.

        sparse: logits (M, V) of the labelled positions only, in row-major order, so that `labels[labels != -100]` are
        their targets. Finding them makes the host wait for a CUDA device once. tokens: logits are 0 elsewhere.
        """
        if sparse:
            labelled = labels != IGNORED
            hidden_states, labels = hidden_states[labelled], labels[labelled]
        elif tokens is not None:
            hidden_states = tokens.unpad(hidden_states)
            labels = None if labels is None else tokens.unpad(labels)
        logits, loss = self.cls.predictions(hidden_states), None
        if labels is not None:
            loss = cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), count)
        return logits if sparse or tokens is None else tokens.pad(logits), loss


class BertForPreTraining(BertLanguageModel):
    """Masked LM and next-sentence prediction together (section 3.1)."""

    def __init__(self, config: BertConfig):
        super().__init__(config)
        self.bert = BertModel(config)
        self.cls = BertHeads(config, predictions=True, seq_relationship=True)
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
        next_sentence_label: Tensor | None = None,
        num_items_in_batch: Count = None,
        num_sequences_in_batch: Count = None,
        sparse_prediction: bool | None = None,
        unpad_inputs: Switch = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, ...] | BertForPreTrainingOutput:
        """labels: (B, L), token ids or -100; next_sentence_label: (B,), 0 B follows A, 1 B is random. Either alone
        trains its own term. num_items_in_batch counts the labelled tokens of the optimiser step and
        num_sequences_in_batch its labelled sequences. Without the second, the NSP mean is weighted by this batch's
        share of the labelled tokens, so that the weights of a step add up to 1. prediction_logits: (B, L, V), or
        (M, V) if sparse.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        sparse = self.is_sparse(labels, sparse_prediction)
        kept = None if labels is None else labels != IGNORED
        outputs, tokens = encode(self, inputs, unpad_inputs, kwargs, kept, read=kept if sparse else None)
        hidden_states = outputs.last_hidden_state
        logits, mlm_loss = self.predict_tokens(hidden_states, labels, num_items_in_batch, sparse, tokens)
        nsp_logits = self.cls.seq_relationship(outputs.pooler_output)  # (B, 2)
        nsp_loss = None
        if next_sentence_label is not None:
            count = num_sequences_in_batch
            if count is None and labels is None:
                count = num_items_in_batch
            nsp_loss = cross_entropy(nsp_logits, next_sentence_label.view(-1), count)
            if count is None and num_items_in_batch is not None:
                nsp_loss = per_item(nsp_loss * (labels != IGNORED).sum(), num_items_in_batch)
        terms = [term for term in (mlm_loss, nsp_loss) if term is not None]
        return BertForPreTrainingOutput(
            loss=sum(terms) if terms else None,
            prediction_logits=logits,
            seq_relationship_logits=nsp_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            mlm_loss=mlm_loss,
            nsp_loss=nsp_loss,
        )


class BertForMaskedLM(BertLanguageModel):
    """Masked LM; with `config.is_decoder` the left-to-right ablation (the caller shifts the labels)."""

    def __init__(self, config: BertConfig):
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.cls = BertHeads(config, predictions=True, seq_relationship=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Count = None,
        sparse_prediction: bool | None = None,
        unpad_inputs: Switch = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, ...] | MaskedLMOutput:
        """labels: (B, L), token ids or -100. logits: (B, L, V), or (M, V) if sparse."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        inputs = (*inputs, encoder_hidden_states, encoder_attention_mask)
        sparse = self.is_sparse(labels, sparse_prediction)
        kept = None if labels is None else labels != IGNORED
        outputs, tokens = encode(self, inputs, unpad_inputs, kwargs, kept, read=kept if sparse else None)
        hidden_states = outputs.last_hidden_state
        logits, loss = self.predict_tokens(hidden_states, labels, num_items_in_batch, sparse, tokens)
        return MaskedLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class BertForNextSentencePrediction(BertPreTrainedModel):
    """Does segment B follow segment A? logits (B, 2): 0 it does, 1 it is random."""

    def __init__(self, config: BertConfig):
        super().__init__(config)
        self.bert = BertModel(config)
        self.cls = BertHeads(config, predictions=False, seq_relationship=True)
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
        unpad_inputs: Switch = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, ...] | NextSentencePredictorOutput:
        """labels: (B,) of 0, 1 or -100."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs, _ = encode(self, inputs, unpad_inputs, kwargs, pooled=True)
        logits = self.cls.seq_relationship(outputs.pooler_output)
        loss = None if labels is None else cross_entropy(logits, labels.view(-1), num_items_in_batch)
        return NextSentencePredictorOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class BertForSequenceClassification(BertPreTrainedModel):
    """Classification or regression from the pooled [CLS] (section 4.1): logits (B, C)."""

    def __init__(self, config: BertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
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
        unpad_inputs: Switch = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, ...] | SequenceClassifierOutput:
        """labels: see `classification_loss`, which `config.problem_type` steers."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs, _ = encode(self, inputs, unpad_inputs, kwargs, pooled=True)
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config.problem_type, num_items_in_batch)
        return SequenceClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class BertForTokenClassification(BertPreTrainedModel):
    """A class for every token (section 5.3): logits (B, L, C)."""

    def __init__(self, config: BertConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
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
        unpad_inputs: Switch = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, ...] | TokenClassifierOutput:
        """labels: (B, L) of class ids or -100."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        kept = None if labels is None else labels != IGNORED
        outputs, tokens = encode(self, inputs, unpad_inputs, kwargs, kept)
        classify = nn.Sequential(self.dropout, self.classifier)
        logits = on_tokens(classify, outputs.last_hidden_state, tokens)
        loss = None
        if labels is not None:
            loss = cross_entropy(logits.view(-1, self.num_labels), labels.view(-1), num_items_in_batch)
        return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


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
        unpad_inputs: Switch = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, ...] | MultipleChoiceModelOutput:
        """Inputs have one more dimension than elsewhere, (B, choices, L); labels: (B,) of choice indices."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        flat = tuple(None if tensor is None else tensor.flatten(0, 1) for tensor in inputs)
        outputs, _ = encode(self, flat, unpad_inputs, kwargs, pooled=True)
        choices = (inputs_embeds if input_ids is None else input_ids).shape[1]
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, choices)
        loss = None if labels is None else cross_entropy(logits, labels.view(-1), num_items_in_batch)
        return MultipleChoiceModelOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class BertForQuestionAnswering(BertPreTrainedModel):
    """Start and end of an answer span (section 4.2): start_logits and end_logits (B, L)."""

    def __init__(self, config: BertConfig):
        """Raises ValueError unless config.num_labels is 2: one score for the start and one for the end."""
        super().__init__(config)
        if config.num_labels != 2:
            raise ValueError(f"expected num_labels=2 (start and end), got {config.num_labels}: set num_labels=2")
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
        unpad_inputs: Switch = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, ...] | QuestionAnsweringModelOutput:
        """start_positions, end_positions: (B,). As in transformers, L and beyond are ignored and below 0 counts as 0.
        The loss is the mean of the start's and the end's, softmax over all L positions as in transformers; with
        unpad_inputs True or "auto" over the real ones, as logits at padding are then the lowest number of their type.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        outputs, tokens = encode(self, inputs, unpad_inputs, kwargs)
        logits = on_tokens(self.qa_outputs, outputs.last_hidden_state, tokens)
        # Also where the padded path was taken: the loss must not depend on which one it was.
        if resolve(unpad_inputs, self.config) and attention_mask is not None and attention_mask.dim() == 2:
            logits = logits.masked_fill(attention_mask.unsqueeze(-1) == 0, torch.finfo(logits.dtype).min)
        start_logits, end_logits = logits.unbind(-1)
        start_logits, end_logits = start_logits.contiguous(), end_logits.contiguous()
        loss = None
        if start_positions is not None and end_positions is not None:
            length = start_logits.shape[1]
            spans = ((start_logits, start_positions), (end_logits, end_positions))
            loss = (
                sum(
                    cross_entropy(logits, positions.view(-1).clamp(0, length), num_items_in_batch, ignored=length)
                    for logits, positions in spans
                )
                / 2
            )
        return QuestionAnsweringModelOutput(loss, start_logits, end_logits, outputs.hidden_states, outputs.attentions)
