"""The losses of the heads.

Every loss is a sum over labelled items divided by a count. The count is the batch's own unless
`num_items_in_batch` gives that of the whole optimiser step (all micro-batches, all processes): then the
losses of the micro-batches add up to exactly the loss of the undivided batch, and so do the gradients. A mean
in each micro-batch, as in transformers' heads, is wrong by the spread of the counts. Items without a label
carry -100; a batch without any labelled item has loss 0.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

IGNORED = -100
Count = int | Tensor | None


def sum_over_count(total: Tensor, own_count: Tensor, count: Count) -> Tensor:
    """`total` over `count`, or over the batch's own count (at least 1: an empty sum is 0, not 0/0)."""
    return total / (own_count.clamp(min=1) if count is None else count)


def cross_entropy(logits: Tensor, labels: Tensor, count: Count = None, ignored: int = IGNORED) -> Tensor:
    """Cross-entropy of logits (items, C) summed over the labelled items of labels (items,), over a count."""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()  # a sum over thousands of items does not fit half precision
    total = F.cross_entropy(logits, labels, ignore_index=ignored, reduction="sum")
    return sum_over_count(total, (labels != ignored).sum(), count)


def classification_loss(logits: Tensor, labels: Tensor, problem_type: str | None, count: Count) -> Tensor:
    """Loss of BertForSequenceClassification for logits (B, C); transformers' rules for an unset problem_type.

    regression: labels (B,) or (B, C), squared error; single_label_classification: labels (B,) of class ids;
    multi_label_classification: labels (B, C) of 0 and 1. The count is that of label elements.
    """
    if problem_type is None:
        if logits.shape[-1] == 1:
            problem_type = "regression"
        elif labels.dtype in (torch.long, torch.int):
            problem_type = "single_label_classification"
        else:
            problem_type = "multi_label_classification"
    if problem_type == "single_label_classification":
        return cross_entropy(logits, labels.view(-1), count)
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    if labels.numel() != logits.numel():
        raise ValueError(f"expected one label for each of {tuple(logits.shape)} logits, got {tuple(labels.shape)}")
    labels = labels.to(logits.dtype).view_as(logits)
    if problem_type == "regression":
        total = F.mse_loss(logits, labels, reduction="sum")
    else:
        total = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    return sum_over_count(total, torch.tensor(labels.numel()), count)
