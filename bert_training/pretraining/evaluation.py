"""Losses and accuracies of a pre-training run."""

from typing import NamedTuple

import torch
from torch.nn import functional as F
from transformers.utils import ModelOutput

from bert_training.engine.batches import IGNORED, deal_batches
from bert_training.engine.divergence import check_outputs
from bert_training.engine.run import Run, gather_object
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.instances import PretrainingInstances


@torch.no_grad()
def evaluate(
    run: Run[PretrainingArguments], model: torch.nn.Module, held_out: PretrainingInstances
) -> dict[str, float]:
    """Losses and accuracies on held-out instances, each a mean over all predictions (not over batches).

    All processes call it and return the same numbers. The first ``--max_eval_instances`` instances are used.
    ``eval_mlm_loss`` is in nats per predicted token and ``eval_perplexity`` is its exponential; ``eval_loss`` is the
    sum of the losses. The results of pairs have the name of their task (``PairTask.name``). The model stays in
    evaluation mode.

    Raises:
        FloatingPointError: the outputs for an instance are not finite.
    """
    model.eval()
    args = run.args
    count = min(args.max_eval_instances, held_out.epoch_size(0))
    size = args.per_device_eval_batch_size
    own = deal_batches(range(0, count, size), run)
    culprits: list[int] = []
    sums = torch.zeros(len(_Sums._fields), dtype=torch.float64)
    with run.progress(len(own), "evaluating") as bar:
        for start, is_filler in own:
            batch = held_out.batch(start, min(start + size, count))
            batch = {name: tensor.to(run.device) for name, tensor in batch.items()}
            outputs = model(**batch)
            if not is_filler:
                culprits += [start + row for row in _broken_rows(outputs, batch)]
                sums += torch.tensor(_batch_sums(outputs, batch), dtype=torch.float64)
            bar.update()
    check_outputs(sorted(gather_object(culprits)), count, run.accelerator.mixed_precision)
    # Apple's GPUs (mps) have no float64.
    sums = sums.to(run.device, torch.float32 if run.device.type == "mps" else torch.float64)
    total = _Sums._make(run.accelerator.reduce(sums, "sum").tolist())
    mlm_loss = total.mlm_loss / total.predictions
    results = {
        "eval_mlm_loss": mlm_loss,
        "eval_mlm_accuracy": total.mlm_correct / total.predictions,
        "eval_perplexity": float(torch.tensor(mlm_loss).exp()),
        "eval_loss": mlm_loss,
    }
    if task := held_out.settings.pairs:
        loss = total.pair_loss / total.pairs
        results |= {f"eval_{task.name}_loss": loss, f"eval_{task.name}_accuracy": total.pairs_correct / total.pairs}
        results["eval_loss"] += loss
    return results


class _Sums(NamedTuple):
    """Sums over the predicted tokens and over the pairs of one batch or of several."""

    mlm_loss: float
    mlm_correct: float
    predictions: float
    pair_loss: float = 0.0
    pairs_correct: float = 0.0
    pairs: float = 0.0


def _batch_sums(outputs: ModelOutput, batch: dict[str, torch.Tensor]) -> _Sums:
    logits = outputs["prediction_logits" if "prediction_logits" in outputs else "logits"]
    labelled = batch["labels"] != IGNORED
    if logits.dim() == 3:  # (B, L, V); with sparse_prediction it is (P, V), at the labelled positions only
        logits = logits[labelled]
    mlm_loss, mlm_correct = _loss_and_correct(logits, batch["labels"][labelled])
    sums = _Sums(mlm_loss, mlm_correct, predictions=int(labelled.sum()))
    if "next_sentence_label" not in batch:
        return sums
    labels = batch["next_sentence_label"]
    pair_loss, pairs_correct = _loss_and_correct(outputs["seq_relationship_logits"], labels)
    return sums._replace(pair_loss=pair_loss, pairs_correct=pairs_correct, pairs=len(labels))


def _broken_rows(outputs: ModelOutput, batch: dict[str, torch.Tensor]) -> list[int]:
    """The rows of a batch for which an output is not finite."""
    broken = torch.zeros(len(batch["input_ids"]), dtype=torch.bool, device=batch["input_ids"].device)
    for name, logits in outputs.items():
        if name.endswith("logits"):
            finite = torch.isfinite(logits).all(-1)
            if name == "seq_relationship_logits" or logits.dim() == 3:
                broken |= ~finite.reshape(len(broken), -1).all(1)
            else:  # with sparse_prediction, (P, V) at the labelled positions of all rows
                broken[(batch["labels"] != IGNORED).nonzero()[:, 0][~finite]] = True
    return broken.nonzero()[:, 0].tolist()


def _loss_and_correct(logits: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """(summed cross-entropy, number of correct predictions) of logits (N, C) and labels (N,)."""
    loss = F.cross_entropy(logits.float(), labels, reduction="sum")
    return float(loss), float((logits.argmax(-1) == labels).sum())
