"""transformers' own BERT, trained by the same loop as a control.

Its heads ignore ``num_items_in_batch`` (huggingface/transformers#47688) and average over each micro-batch, which is
another objective under gradient accumulation. For a fair comparison, the loss is computed here from the logits. This
file does not use modeling_bert_repro/losses.py on purpose: a mistake that both shared would stay unnoticed.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from bert_training.engine.batches import IGNORED, is_labelled

LABELS = ("labels", "next_sentence_label", "start_positions", "end_positions")
OPTIONS = ("loss_weights", "class_weights")
Count = int | torch.Tensor


def control_of(model: PreTrainedModel, spans_over_padding: bool = True) -> PreTrainedModel:
    """A model of transformers' class of the same name, with the same weights and with this project's loss.

    Args:
        model: an instance of one of this project's classes.
        spans_over_padding: see ``with_exact_losses``.
    """
    config = copy.deepcopy(model.config)
    vars(config).pop("auto_map", None)  # it names code files, which transformers' class does not save
    control = getattr(transformers, type(model).__name__)(config)
    control.load_state_dict(model.state_dict())
    return with_exact_losses(control, spans_over_padding)


def with_exact_losses(model: PreTrainedModel, spans_over_padding: bool = True) -> PreTrainedModel:
    """Make a BERT model of transformers divide its loss by the counts that it is given, as this project's heads do.

    The counts are ``num_items_in_batch`` and, for next sentence prediction, ``num_sequences_in_batch``. Returns the
    same model.

    Args:
        spans_over_padding: the softmax over starts and ends includes padding, as in transformers; this project's
            head excludes it with ``unpad_inputs``.
    """
    stock_forward = model.forward

    @functools.wraps(stock_forward)
    def forward(
        num_items_in_batch: Count | None = None, num_sequences_in_batch: Count | None = None, **batch: Any
    ) -> ModelOutput:
        labels = {name: batch.pop(name) for name in LABELS if name in batch}
        options = {name: batch.pop(name) for name in OPTIONS if name in batch}
        outputs = stock_forward(**batch)
        if "start_positions" in labels:
            count = _divisor(num_items_in_batch, lambda: len(labels["start_positions"]))
            real = batch["attention_mask"].bool() | spans_over_padding
            start, end = (side.masked_fill(~real, -torch.inf) for side in (outputs.start_logits, outputs.end_logits))
            start_loss = _cross_entropy(start, labels["start_positions"], count)
            outputs.loss = (start_loss + _cross_entropy(end, labels["end_positions"], count)) / 2
        elif "labels" in labels:
            logits = outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits
            if options:
                outputs.loss = _weighted_loss(logits, labels["labels"], num_items_in_batch, **options)
                return outputs
            count = _divisor(num_items_in_batch, lambda: is_labelled(labels["labels"]).sum())
            outputs.loss = _loss(logits, labels["labels"], count)
            if "next_sentence_label" in labels:
                outputs["mlm_loss"] = outputs.loss  # as items, which Accelerate copies
                count = _divisor(num_sequences_in_batch, lambda: len(labels["next_sentence_label"]))
                of_pairs = _cross_entropy(outputs.seq_relationship_logits, labels["next_sentence_label"], count)
                outputs["nsp_loss"] = of_pairs
                outputs.loss = outputs["mlm_loss"] + of_pairs
        return outputs

    model.forward = forward
    return model


def _divisor(given: Count | None, own: Callable[[], Count]) -> torch.Tensor:
    """The count to divide by: the one that is given, or else the batch's own; at least 1, so that 0 items give 0."""
    return torch.as_tensor(own() if given is None else given).clamp(min=1)


def _loss(logits: torch.Tensor, labels: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    if labels.is_floating_point() and labels.dim() == 2:  # several labels a text
        return F.binary_cross_entropy_with_logits(logits.float(), labels.float(), reduction="sum") / count
    if labels.is_floating_point():
        return F.mse_loss(logits.squeeze(-1).float(), labels.float(), reduction="sum") / count
    return _cross_entropy(logits, labels, count)


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    flat = logits.float().flatten(0, -2)
    return F.cross_entropy(flat, labels.flatten(), ignore_index=IGNORED, reduction="sum") / count


def _weighted_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    count: Count | None,
    loss_weights: torch.Tensor | None = None,
    class_weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """The weighted mean, written down for every item; see losses.py: cross_entropy.

    A count may be less than 1, because it is a sum of weights.
    """
    several = labels.is_floating_point() and labels.dim() == 2
    logits, labels = logits.float().flatten(0, -2), labels if several else labels.flatten()
    real = is_labelled(labels).float()
    weights = real if loss_weights is None else real * loss_weights.view(-1, *[1] * several)
    if several:
        positive = labels if class_weights is None else labels * class_weights.to(logits)
        losses = -(positive * F.logsigmoid(logits) + (1 - labels) * F.logsigmoid(-logits))
    elif labels.is_floating_point():
        losses = (logits.squeeze(-1) - labels.float()) ** 2
    else:
        target = F.one_hot(labels.where(labels != IGNORED, 0), logits.shape[1])
        losses = -(target * logits.log_softmax(1)).sum(1)
    divisor = torch.as_tensor(weights.sum() if count is None else count).to(weights)
    return (losses * weights).sum() / torch.where(divisor == 0, 1, divisor)
