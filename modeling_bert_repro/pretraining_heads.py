"""The heads of pre-training (section 3.1): masked LM, next sentence prediction, and both together.

Every forward accepts ``unpad_inputs`` and passes ``HeadReads`` to the encoder: with unpadding on, the encoder skips
what the head does not read. Arguments without a description are those of ``BertModel.forward``; ``num_items_in_batch``
is explained in losses.py.
Shapes: B batch, L length, H hidden size, V vocabulary, M labelled positions.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, initialization
from transformers.activations import ACT2FN
from transformers.modeling_outputs import MaskedLMOutput, NextSentencePredictorOutput
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from .losses import IGNORED, Count, cross_entropy, per_item
from .modeling_bert import BertModel
from .pretrained import POOLED_ONLY, BertPreTrainedModel, HeadReads, UnpadInputs, only_input
from .unpadding import with_spare_rows

TIED_DECODER = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


@dataclass
class BertForPreTrainingOutput(ModelOutput):
    """transformers' output of the same name with the two terms of the loss added; its tuple form omits them."""

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    mlm_loss: Tensor | None = None
    nsp_loss: Tensor | None = None

    def to_tuple(self) -> tuple[Any, ...]:
        """The fields that are set, without the two terms of the loss, as in transformers' output."""
        return tuple(self[key] for key in self.keys() if key not in ("mlm_loss", "nsp_loss"))


class BertPredictionTransform(nn.Module):
    """Dense layer, activation and LayerNorm before the decoder (``get_masked_lm_output`` of google-research/bert)."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.transform_act_fn = ACT2FN[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(..., H) -> (..., H)"""
        return self.LayerNorm(self.transform_act_fn(self.dense(hidden_states)))


class BertLMPredictionHead(nn.Module):
    """Logits over the vocabulary (..., V); the weight is tied to the word embeddings, the bias belongs to the head."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.transform = BertPredictionTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))  # tied to decoder.bias; saved under this name

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(..., H) -> (..., V)"""
        return self.decoder(self.transform(hidden_states))


class BertHeads(nn.Module):
    """One or both heads, whose tensors are named after the attributes: ``cls.predictions...`` and so on."""

    predictions: BertLMPredictionHead
    seq_relationship: nn.Linear

    def __init__(self, config: BertConfig, predictions: bool, seq_relationship: bool):
        super().__init__()
        if predictions:
            self.predictions = BertLMPredictionHead(config)
        if seq_relationship:
            self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def forward(self, *states: Tensor) -> Any:
        """The logits of the one head, or of both, from as many states: (..., H) -> (..., V), and (B, H) -> (B, 2)."""
        heads = [getattr(self, name) for name in ("predictions", "seq_relationship") if hasattr(self, name)]
        logits = tuple(head(state) for head, state in zip(heads, states, strict=True))
        return logits if len(logits) > 1 else logits[0]


class BertLanguageModel(BertPreTrainedModel):
    """The base class of the two classes that predict tokens."""

    bert: BertModel
    cls: BertHeads
    _tied_weights_keys = TIED_DECODER

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, BertLMPredictionHead):
            initialization.zeros_(module.bias)  # in a model built on the meta device it is uninitialised memory

    def get_output_embeddings(self) -> nn.Linear:
        """The projection to the vocabulary, whose weight is that of the word embeddings."""
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Replace the projection to the vocabulary; the new bias becomes that of the head."""
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    def is_sparse(self, labels: Tensor | None, sparse_prediction: bool | None) -> bool:
        """Whether logits are computed at labelled positions only; without labels they never are.

        Args:
            sparse_prediction: the default is ``config.sparse_prediction``, or False if that is unset.
        """
        if sparse_prediction is None:
            sparse_prediction = getattr(self.config, "sparse_prediction", False)
        return labels is not None and sparse_prediction

    def reads_of(self, inputs: Tensor, labels: Tensor | None, sparse: bool) -> HeadReads:
        """What the head reads from the encoder: the labelled positions, and unless sparse the others as well.

        Finding the positions makes the host wait for a CUDA device. Call it before the encoder, whose work the device
        has not been given yet.

        Args:
            inputs: (B, L) or (B, L, H), token ids or embeddings.

        Raises:
            ValueError: sparse, and the labels are not (B, L).
        """
        if labels is None:
            return HeadReads()
        if sparse and labels.shape != inputs.shape[:2]:
            shapes = f"expected labels of shape {tuple(inputs.shape[:2])}, like the inputs, got {tuple(labels.shape)}"
            raise ValueError(f"{shapes}: give every position a token id or {IGNORED}")
        labelled = labels != IGNORED
        return HeadReads(labelled, not sparse, labelled.flatten().nonzero().squeeze(1) if sparse else None)

    def to_predict(
        self, hidden_states: Tensor, labels: Tensor | None, reads: HeadReads
    ) -> tuple[Tensor, Tensor | None]:
        """The states of the masked LM, (B, L, H) or (M, H), and their labels; spare rows may follow, without a label.

        Args:
            hidden_states: (B, L, H).
            labels: (B, L), token ids, or -100 for positions without a label.
            reads: what ``reads_of`` returned. With ``rows``, the M labelled positions are taken only, in row-major
                order, so that their targets are ``labels[labels != -100]``.
        """
        if labels is None or reads.rows is None:
            return hidden_states, labels
        rows = with_spare_rows(reads.rows, hidden_states)
        targets = with_spare_rows(labels.flatten().index_select(0, reads.rows), hidden_states, IGNORED)
        # The hidden states are on another device if accelerate has spread the layers over several.
        return hidden_states.flatten(0, 1).index_select(0, rows.to(hidden_states.device)), targets


def masked_loss(logits: Tensor, labels: Tensor | None, count: Count) -> Tensor | None:
    """The loss of logits (..., V) with labels (...), divided by a count (losses.py); None without labels."""
    return None if labels is None else cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), count)


class BertForPreTraining(BertLanguageModel):
    """Masked LM and next sentence prediction together (section 3.1)."""

    def __init__(self, config: BertConfig):
        super().__init__(config)
        self.bert = BertModel(config)
        self.cls = BertHeads(config, predictions=True, seq_relationship=True)
        # Trainer passes all other outputs to compute_metrics; transformers' class does not have these two.
        self.config.keys_to_ignore_at_inference = ["mlm_loss", "nsp_loss"]
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
        unpad_inputs: UnpadInputs = None,
        **kwargs: Any,
    ) -> tuple[Tensor, ...] | BertForPreTrainingOutput:
        """Predict the masked tokens and whether segment B follows segment A.

        The loss is the sum of the terms whose labels are given.

        Args:
            labels: (B, L), token ids or -100.
            next_sentence_label: (B,), 0 if segment B follows A, 1 if it is random.
            num_items_in_batch: the number of labelled tokens of the optimiser step.
            num_sequences_in_batch: the number of its sequences. Default: the sequences of this batch. If only
                num_items_in_batch is given, the mean NSP loss is weighted by this batch's share of the labelled tokens,
                so that the weights of a step add up to 1; without ``labels``, num_items_in_batch counts sequences.
            sparse_prediction: return ``prediction_logits`` (M, V) of the labelled positions instead of (B, L, V).
        """
        sparse = self.is_sparse(labels, sparse_prediction)
        reads = self.reads_of(only_input(input_ids, inputs_embeds), labels, sparse)
        outputs = self.bert(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            unpad_inputs=unpad_inputs,
            reads=reads,
            return_dict=True,
            **kwargs,
        )
        states, targets = self.to_predict(outputs.last_hidden_state, labels, reads)
        logits, nsp_logits = self.cls(states, outputs.pooler_output)
        mlm_loss = masked_loss(logits, targets, num_items_in_batch)
        nsp_loss = None
        if next_sentence_label is not None:
            count = num_sequences_in_batch
            if count is None and labels is None:
                count = num_items_in_batch
            nsp_loss = cross_entropy(nsp_logits, next_sentence_label.view(-1), count)
            if count is None and labels is not None and num_items_in_batch is not None:
                nsp_loss = per_item(nsp_loss * (labels != IGNORED).sum(), num_items_in_batch)
        terms = [term for term in (mlm_loss, nsp_loss) if term is not None]
        return BertForPreTrainingOutput(
            loss=torch.stack(terms).sum() if terms else None,
            prediction_logits=logits if reads.rows is None else logits[: len(reads.rows)],
            seq_relationship_logits=nsp_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            mlm_loss=mlm_loss,
            nsp_loss=nsp_loss,
        )


class BertForMaskedLM(BertLanguageModel):
    """Masked LM; with ``config.is_decoder`` the left-to-right model of section 5.1, whose labels the caller shifts."""

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
        unpad_inputs: UnpadInputs = None,
        **kwargs: Any,
    ) -> tuple[Tensor, ...] | MaskedLMOutput:
        """Predict the masked tokens.

        Args:
            labels: (B, L), token ids or -100.
            sparse_prediction: return the logits (M, V) of the labelled positions instead of (B, L, V).
        """
        sparse = self.is_sparse(labels, sparse_prediction)
        reads = self.reads_of(only_input(input_ids, inputs_embeds), labels, sparse)
        outputs = self.bert(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            encoder_hidden_states,
            encoder_attention_mask,
            unpad_inputs=unpad_inputs,
            reads=reads,
            return_dict=True,
            **kwargs,
        )
        states, targets = self.to_predict(outputs.last_hidden_state, labels, reads)
        logits = self.cls(states)
        loss = masked_loss(logits, targets, num_items_in_batch)
        found = logits if reads.rows is None else logits[: len(reads.rows)]
        return MaskedLMOutput(loss, found, outputs.hidden_states, outputs.attentions)


class BertForNextSentencePrediction(BertPreTrainedModel):
    """Whether segment B follows segment A: logits (B, 2), class 0 if it does, class 1 if it is random."""

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
        unpad_inputs: UnpadInputs = None,
        **kwargs: Any,
    ) -> tuple[Tensor, ...] | NextSentencePredictorOutput:
        """Predict whether segment B follows segment A.

        Args:
            labels: (B,), 0 if it does, 1 if it is random, or -100.
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
        logits = self.cls(outputs.pooler_output)
        loss = None if labels is None else cross_entropy(logits, labels.view(-1), num_items_in_batch)
        return NextSentencePredictorOutput(loss, logits, outputs.hidden_states, outputs.attentions)
