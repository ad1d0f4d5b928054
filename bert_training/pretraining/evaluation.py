"""What is measured of a network while it is pre-trained: its speed, and losses and accuracies on held-out text."""

import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import NamedTuple

import torch
from torch.nn import functional as F
from transformers.utils import ModelOutput

from bert_training.engine.batches import IGNORED, deal_batches
from bert_training.engine.checkpoint import Totals
from bert_training.engine.loop import Step
from bert_training.engine.predict import check_outputs
from bert_training.engine.run import Run, gather_object
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.phases import mean_shares
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.corpus import unigram_entropy
from bert_training.pretraining.data import PretrainingData, instances_by_length, note_new_epochs
from bert_training.pretraining.instances import PretrainingInstances


class Progress:
    """What is measured of a run while it trains: speed, losses, and its held-out text. All processes make one.

    If ``--validation_file`` names several files, each of them is evaluated as well.
    """

    def __init__(self, run: Run[PretrainingArguments], data: PretrainingData):
        self.run, self.data = run, data
        self.files = {
            name: instances_by_length(vars(run.args), corpus, data.tokenizer, held_out=True)
            for name, corpus in data.corpora.held_out_files.items()
        }
        self.speed = Throughput(run.device, data.total_steps)

    def begin(self, model: torch.nn.Module) -> None:
        """Evaluate given weights before the first step."""
        if self.run.args.model_name_or_path and self.run.args.eval_steps:
            self.evaluate(model, 0)

    def timed(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Yield the optimiser steps; say which of them begins another epoch of a source."""
        for step in self.speed.timed(steps):
            note_new_epochs(self.run, self.data.phases, self.data.streams, step.index)
            yield step  # after which a checkpoint may be saved, whose records must have the epoch

    def log(self, step: Step) -> None:
        """Record a training step in metrics.jsonl, and before the first one what the losses are compared with."""
        if step.index == 1:
            shares = mean_shares(vars(self.run.args))
            self.run.log(event="corpus", unigram_entropy=unigram_entropy(self.data.corpora.train, shares))
        pairs = objective_of(vars(self.run.args)).pairs
        # The head of next sentence prediction may have learnt another task.
        names = {"nsp_loss": f"{pairs.name}_loss"} if pairs else {}
        losses = {"loss": step.loss, **{names.get(name, name): loss for name, loss in step.parts.items()}}
        rates = {"learning_rate": step.lr, "grad_norm": step.grad_norm}
        length = self.data.length_at(step.index)
        self.run.log(event="train", step=step.index, **losses, **rates, max_seq_length=length, **self.speed.record())

    def evaluate(self, model: torch.nn.Module, step: int) -> dict[str, float]:
        """Evaluate after an optimiser step (0: before the first); record and print the results.

        All processes call it and return the same numbers.
        """
        run, length = self.run, self.data.length_at(step)
        results = evaluate(run, model, self.data.held_out[length])
        shown = ["eval_mlm_loss", *(name for name in results if name.endswith("_accuracy"))]
        for name, by_length in self.files.items():
            found = evaluate(run, model, by_length[length])
            parts = {key: value for key, value in found.items() if key.endswith(("mlm_loss", "_accuracy"))}
            results |= {key.replace("eval_", f"eval_{name}_", 1): value for key, value in parts.items()}
        run.log(event="eval", step=step, max_seq_length=length, **results)
        numbers = ", ".join(f"{name} {results[name]:.4f}" for name in shown)
        run.say(f"step {step}: {numbers}" + (f"; {self.speed.time_left()} left" if step else ""))
        for name in self.files:
            keys = (f"eval_{name}_{end}" for end in ("mlm_loss", "mlm_accuracy"))
            run.say(f"    {', '.join(f'{key} {results[key]:.4f}' for key in keys)}")
        return results

    def results(self, totals: Totals) -> dict[str, float]:
        """The entries of all_results.json about the training."""
        loss = totals.loss / totals.steps if totals.steps else float("nan")
        sums = {"train_loss": loss, "train_runtime": totals.seconds, "train_steps": self.data.total_steps}
        return self.speed.results() | sums


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
    predictions = total.predictions or float("nan")  # none in a text of [UNK] alone, which is never predicted
    mlm_loss = total.mlm_loss / predictions
    results = {
        "eval_mlm_loss": mlm_loss,
        "eval_mlm_accuracy": total.mlm_correct / predictions,
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


# --- speed ----------------------------------------------------------------------------------------------------------


class Throughput:
    """A clock for the training steps, without the time for evaluation and saving."""

    def __init__(self, device: torch.device, total_steps: int):
        self.device, self.total_steps = device, total_steps
        self.all = self.recent = _Work()
        self.index = 0

    def timed(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Yield `steps` and time them."""
        while True:
            started = time.perf_counter()
            step = next(steps, None)
            if step is None:
                return
            work = _Work(1, time.perf_counter() - started, step.counts.tokens, step.counts.sequences)
            self.index, self.all, self.recent = step.index, self.all + work, self.recent + work
            yield step

    def record(self) -> dict[str, float]:
        """tokens_per_second and seconds_per_step of the steps since the last call, of which there must be some."""
        recent, self.recent = self.recent, _Work()
        return {
            "tokens_per_second": round(recent.tokens / recent.seconds, 1),
            "seconds_per_step": round(recent.seconds / recent.steps, 5),
        }

    def time_left(self) -> str:
        """The time that the remaining steps will take at the mean speed so far, in the form `1:23:45`."""
        seconds = round((self.total_steps - self.index) * self.all.seconds / max(self.all.steps, 1))
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    def results(self) -> dict[str, float]:
        """The entries of all_results.json about the steps since the last start, without evaluations."""
        seconds = max(self.all.seconds, 1e-9)
        return {
            "train_tokens_per_second": self.all.tokens / seconds,
            "train_samples_per_second": self.all.sequences / seconds,
            "peak_memory_gb": peak_memory_gb(self.device),
        }


def peak_memory_gb(device: torch.device) -> float:
    """The most memory that this process has used so far, in units of 1e9 bytes: GPU memory, or else resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    unit = 1 if sys.platform == "darwin" else 1024  # macOS reports bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


@dataclass(frozen=True)
class _Work:
    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    sequences: int = 0

    def __add__(self, other: "_Work") -> "_Work":
        return _Work(*map(sum, zip(astuple(self), astuple(other))))
