"""The losses of the heads.

Every loss is a sum over labelled items divided by a count. By default this is the count of the batch itself. If
``num_items_in_batch`` gives the count of the whole optimiser step (all micro-batches, all processes), the losses of the
micro-batches add up to exactly the loss of the undivided batch, and so do the gradients. Taking a mean in each
micro-batch, as transformers' heads do, gives another result as soon as the counts differ. Items without a label have
the label -100; if no item has a label, the loss is 0.

Items may have weights (``loss_weights`` of the heads): the product of an item's own weight and that of its class. The
count is then the sum of the weights, which makes the loss torch's weighted mean.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

IGNORED = -100
LARGE = 1 << 20  # number of logits; below it, torch's function is fast enough
BLOCK = 1 << 18  # number of logits that are processed at a time, so that they stay in the cache of a core
Count = int | Tensor | None
ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]


def runs_eagerly() -> bool:
    """Whether plain autograd records the operations.

    Autograd functions fail under torch.compile, under torch.func, and in forward mode.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return forward_ad._current_level < 0


def per_item(total: Tensor, count: int | Tensor) -> Tensor:
    """``total`` divided by ``count``. A count of 0 is replaced by 1, so that the loss of no items is 0 and not NaN."""
    count = torch.as_tensor(count).to(total.device)  # it may be on another device
    return total / (count + (count == 0))


def at_least_float32(logits: Tensor) -> Tensor:
    """Cast fp16 and bf16 logits to float32, in which sums over many items are exact enough; leave other types."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


class LargeCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of logits (M, V), computed in blocks that stay in the cache of a core.

    torch writes the log-probabilities (M, V) in the forward pass, and zeros (M, V) and their gradient in the backward
    pass. On a CPU, allocating and writing that much memory takes longer than the arithmetic. Here the gradient is the
    only tensor of that size. If the gradient itself is differentiated (``create_graph=True``), torch's operations
    compute it.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, ignored: int) -> Tensor:
        """The sum over the items of logits (M, V) whose label in labels (M,) is not ``ignored``."""
        labelled = labels != ignored
        targets = labels.where(labelled, 0).long().unsqueeze(1)
        ctx.rows = max(1, BLOCK // logits.shape[1])
        log_sums = torch.cat([at_least_float32(block).logsumexp(1) for block in logits.split(ctx.rows)])
        ctx.save_for_backward(logits, targets, labelled, log_sums)
        return (log_sums - logits.gather(1, targets).squeeze(1)).where(labelled, 0).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of the logits (M, V): softmax minus the one-hot label, and 0 for items without a label."""
        logits, targets, labelled, log_sums = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            softmax = at_least_float32(logits).softmax(1)
            slopes = softmax.scatter_add(1, targets, softmax.new_full(targets.shape, -1.0))
            return (slopes * (labelled * gradient).unsqueeze(1)).to(logits.dtype), None, None
        weights, logits_gradient = (labelled * gradient).unsqueeze(1), torch.empty_like(logits)
        columns = (logits, targets, log_sums.unsqueeze(1), weights, logits_gradient)
        for block, target, log_sum, weight, out in zip(*(column.split(ctx.rows) for column in columns)):
            softmax = (at_least_float32(block) - log_sum).exp_()
            out.copy_(softmax.scatter_add_(1, target, softmax.new_full(target.shape, -1.0)).mul_(weight))
        return logits_gradient, None, None


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    count: Count = None,
    ignored: int = IGNORED,
    weights: Tensor | None = None,
) -> Tensor:
    """Cross-entropy, summed over the labelled items and divided by a count.

    If the weight of an item of class y is w[y], the mean is ``F.cross_entropy(logits, labels, w)``.

    Args:
        logits: (items, C).
        labels: (items,), class ids or ``ignored``.
        count: the default is the number of labelled items or, with weights, the sum of their weights.
        ignored: the label of items without a label.
        weights: (items,), by which the losses of the items are multiplied. An item with 0 counts for nothing.
    """
    if weights is not None:
        losses = F.cross_entropy(at_least_float32(logits), labels.long(), ignore_index=ignored, reduction="none")
        return per_item((losses * weights).sum(), (weights * (labels != ignored)).sum() if count is None else count)
    if logits.device.type == "cpu" and logits.numel() >= LARGE and runs_eagerly():
        total = LargeCrossEntropy.apply(logits, labels, ignored)
    else:
        total = F.cross_entropy(at_least_float32(logits), labels.long(), ignore_index=ignored, reduction="sum")
    return per_item(total, (labels != ignored).sum() if count is None else count)


def token_loss(logits: Tensor, labels: Tensor, count: Count = None, weights: Tensor | None = None) -> Tensor:
    """``cross_entropy`` of all tokens: logits (B, L, C), labels and weights (B, L)."""
    flat = None if weights is None else weights.flatten()
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), count, IGNORED, flat)


def find_problem_type(num_labels: int, labels: Tensor) -> ProblemType:
    """transformers' rule for a config without problem_type: one output means regression, integer labels are classes."""
    if num_labels == 1:
        return "regression"
    integers = labels.dtype in (torch.long, torch.int)
    return "single_label_classification" if integers else "multi_label_classification"


def classification_loss(
    logits: Tensor,
    labels: Tensor,
    problem_type: str,
    count: Count = None,
    weights: Tensor | None = None,
    class_weights: Tensor | None = None,
) -> Tensor:
    """Loss of BertForSequenceClassification for logits (B, C).

    - "regression": squared error; labels (B,) or (B, C).
    - "single_label_classification": cross-entropy; labels (B,) of class ids.
    - "multi_label_classification": binary cross-entropy; labels (B, C) of 0 and 1.

    Args:
        problem_type: one of these three.
        count: the number by which the summed loss is divided. Default: ``labels.numel()``; for class ids, the number
            of labels other than -100; with weights, the sum of the weights of all labels.
        weights: (B,), by which the losses of the sequences are multiplied.
        class_weights: (C,), of several labels only: they multiply the loss of the labels that are 1 (torch's
            ``pos_weight``), and the count does not contain them.

    Raises:
        ValueError: another problem_type was given, or the labels do not match the logits or the other arguments.
    """
    if class_weights is not None and problem_type != "multi_label_classification":
        raise ValueError(f"expected no class_weights, which {problem_type} cannot use; give loss_weights")
    if problem_type == "single_label_classification":
        return cross_entropy(logits, labels.view(-1), count, IGNORED, weights)
    elementwise: dict[str, Callable[..., Tensor]] = {
        "regression": F.mse_loss,
        "multi_label_classification": F.binary_cross_entropy_with_logits,
    }
    if problem_type not in elementwise:
        known = ", ".join(["single_label_classification", *elementwise])
        raise ValueError(f"expected config.problem_type to be one of {known}, got {problem_type!r}")
    if labels.numel() != logits.numel():
        raise ValueError(
            f"expected a label for each logit, {tuple(logits.shape)}, got labels {tuple(labels.shape)}: "
            f"{problem_type} needs config.num_labels values for every sequence"
        )
    logits = at_least_float32(logits)
    options = {} if class_weights is None else {"pos_weight": class_weights.to(logits)}
    labels = labels.to(logits.dtype).view_as(logits)
    if weights is None:
        total = elementwise[problem_type](logits, labels, reduction="sum", **options)
        return per_item(total, labels.numel() if count is None else count)
    weights = weights.view(-1, *[1] * (logits.dim() - 1)).expand_as(logits)
    total = (elementwise[problem_type](logits, labels, reduction="none", **options) * weights).sum()
    return per_item(total, weights.sum() if count is None else count)
