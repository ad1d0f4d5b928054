"""A student learns from a teacher: the term of the loss, and where it is added.

The loss of a student is (Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", section 2.1)

    (1 - w) loss of the labels + w T^2 KL(softmax(teacher / T) || softmax(student / T))

with the weight w and the temperature T. The factor T^2 keeps the gradient of the second term as large as at T = 1. Of
several labels a text, each has a distribution of its own over yes and no; of a score, the term is the squared distance
from the teacher's, without a temperature.

Both terms are sums over the same items, divided by the same count, so that the loss is exact under accumulation
(``bert_training/engine/loop.py``). What weighs an item (``loss_weights``: rows, and classes) weighs both of its terms.
Weights of several labels concern labels alone and stay in the first: they would move the best answer away from the
teacher's.

A network knows nothing of this: ``learn_from`` puts a function around its forward, as the control has one
(``control.py``). It reads the teacher's outputs from the batch, and a batch without them has the plain loss.
"""

import functools
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch.nn import functional as F
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import ModelOutput

from bert_training.engine.batches import is_labelled
from bert_training.files.processes import say
from bert_training.inputs.models import check_fit, check_length
from bert_training.inputs.tokenizers import check_rows, weights_tokenizer

Tensors = Mapping[str, torch.Tensor]
Kind = Literal["classes", "labels", "score", "span"]
"""What a head gives an item: one of several classes, several labels, a score, or the two ends of a span."""

PREFIX = "teacher_"  # of the teacher's outputs in a batch, such as teacher_logits
SIDES = ("start_logits", "end_logits")


def exact_enough(scores: torch.Tensor) -> torch.Tensor:
    """Scores in float32 at least; in 16 bits, the difference of two close distributions is lost."""
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def divergence(
    student: torch.Tensor, teacher: torch.Tensor, temperature: float, real: torch.Tensor | None = None
) -> torch.Tensor:
    """T^2 KL(teacher || student) of every item, from scores (..., C): (...).

    Args:
        real: (..., C), False for scores that neither of them has, such as those of padding; default: all are real.
    """
    student, teacher = exact_enough(student) / temperature, exact_enough(teacher) / temperature
    if real is not None:
        lowest = torch.finfo(student.dtype).min
        student, teacher = student.masked_fill(~real, lowest), teacher.masked_fill(~real, lowest)
    expected = teacher.log_softmax(-1)
    parts = expected.exp() * (expected - student.log_softmax(-1))
    if real is not None:
        parts = parts.masked_fill(~real, 0)
    return temperature**2 * parts.sum(-1)


def divergence_of_labels(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """T^2 KL(teacher || student) of every label, which is there or not, from scores of any shape."""
    student, teacher = exact_enough(student) / temperature, exact_enough(teacher) / temperature
    there = teacher.sigmoid() * (F.logsigmoid(teacher) - F.logsigmoid(student))
    absent = (-teacher).sigmoid() * (F.logsigmoid(-teacher) - F.logsigmoid(-student))
    return temperature**2 * (there + absent)


def per_item(total: torch.Tensor, count: int | float | torch.Tensor) -> torch.Tensor:
    """``total`` divided by ``count``; a count of 0 is taken for 1, as in the losses of the heads."""
    count = torch.as_tensor(count).to(total.device)
    return total / (count + (count == 0))


def teacher_term(outputs: Tensors, batch: Tensors, teacher: Tensors, kind: Kind, temperature: float) -> torch.Tensor:
    """The teacher's term of a batch, divided by ``num_items_in_batch`` or else by the batch's own count.

    Args:
        outputs: of the student: logits (B, C), of tokens (B, L, C), or start_logits and end_logits (B, L).
        batch: the inputs, with labels and perhaps ``loss_weights``.
        teacher: the teacher's outputs, with the names and shapes of the student's.
    """
    if kind == "span":
        real = batch["attention_mask"].bool()
        sides = [divergence(outputs[side], teacher[side], temperature, real) for side in SIDES]
        return per_item(torch.stack(sides).mean(0).sum(), batch.get("num_items_in_batch", len(real)))
    labels, student, expected = batch["labels"], outputs["logits"], teacher["logits"]
    if kind == "classes":
        items = divergence(student, expected, temperature)
    elif kind == "labels":
        items = divergence_of_labels(student, expected, temperature)
    else:
        items = (exact_enough(student) - exact_enough(expected)).square().view_as(labels)
    weights = is_labelled(labels).to(items)
    if (given := batch.get("loss_weights")) is not None:
        weights = weights * given.reshape(*given.shape, *[1] * (labels.dim() - given.dim()))
    # A padded row of the teacher holds zeros, and its items weigh nothing.
    return per_item((items * weights).sum(), batch.get("num_items_in_batch", weights.sum()))


def learn_from(model: PreTrainedModel, kind: Kind, temperature: float, weight: float) -> None:
    """Let a network's loss contain the term of a teacher whose outputs are in the batch (``PREFIX``).

    The output then names both terms: ``labels_loss`` and ``teacher_loss``, each without its weight.

    Args:
        model: one of this project's networks, or of transformers'.
        weight: w, of the teacher's term.
    """
    stock_forward = model.forward

    @functools.wraps(stock_forward)
    def forward(**batch: Any) -> ModelOutput:
        teacher = {name.removeprefix(PREFIX): batch.pop(name) for name in [*batch] if name.startswith(PREFIX)}
        outputs = stock_forward(**batch)
        if teacher and outputs.get("loss") is not None:
            of_labels, term = outputs["loss"], teacher_term(outputs, batch, teacher, kind, temperature)
            set_loss(outputs, (1 - weight) * of_labels + weight * term, labels_loss=of_labels, teacher_loss=term)
        return outputs

    model.forward = forward


def check_inputs(teacher: str, config: BertConfig, tokenizer: PreTrainedTokenizerBase, max_seq_length: int) -> None:
    """Check that a teacher can read what its student reads.

    Raises:
        ValueError: an id stands for another piece, or the teacher has too few positions.
    """
    own = weights_tokenizer(teacher)
    if own is None:
        say(f"warning: --teacher {teacher} has no tokenizer; nothing shows that its rows are the student's")
    else:
        check_rows(tokenizer, f"--teacher {teacher}: the tokenizer of the student", own, teacher, same=True)
    check_fit(config, tokenizer, 1, quiet=True)
    check_length(config, max_seq_length, f"--teacher {teacher}")


def set_loss(outputs: ModelOutput, loss: torch.Tensor, **terms: torch.Tensor) -> None:
    """Replace the loss of an output, and name its terms for the records, as items, which Accelerate copies."""
    for name, term in terms.items():
        outputs[name] = term
    outputs["loss"] = loss
