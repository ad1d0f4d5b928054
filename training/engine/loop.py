"""The one training loop.

A loss of a step is a sum over all labelled items of the global batch divided by their count, whatever the
number of micro-batches and processes: the counts are taken over the whole window before the first forward
pass and handed to the model, whose heads divide by them.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from accelerate.utils import gather_object

from training.engine.batches import IGNORED
from training.engine.checkpoint import save_checkpoint
from training.engine.phases import phase_at, phases_of, scheduled
from training.engine.run import Run
from training.engine.signals import STOPPED, StopSignals


@dataclass
class Step:
    """One finished optimiser step. ``index`` counts from 1; ``loss`` is the mean over the global batch, in which
    ``tokens`` are real ones."""

    index: int
    loss: float
    grad_norm: float
    lr: float
    tokens: int
    sequences: int
    labels: int
    parts: dict[str, float]


def training_steps(
    run: Run, model, optimizer, scheduler, batches, total_steps: int, start_step: int = 0
) -> Iterator[Step]:
    """Train: accumulate, backward, clip, step, schedule, zero; yield once per optimiser step.

    Args:
        model, optimizer: as prepared by Accelerate. ``scheduler`` is not prepared.
        batches: this process's micro-batches, one list per optimiser step (``step_batches``).
        total_steps, start_step: optimiser steps; the first one done here is ``start_step + 1``.

    Raises:
        FloatingPointError: the loss or the gradient is not finite; the weights are left as they were.
        SystemExit: a signal asked to stop (``stopping.py``): the step is done, what the caller does after it too,
            and a checkpoint stands.
    """
    accelerator = run.accelerator
    if run.args.gradient_checkpointing:
        _recompute_activations(accelerator.unwrap_model(model))
    with StopSignals() as signals, run.progress(total_steps, "training", initial=start_step) as bar:
        for index, window in enumerate(batches, start_step + 1):
            model.train()
            # Dropout is a function of (seed, step, process): a resumed run draws what the unbroken one drew.
            torch.manual_seed(_step_seed(run.args.seed, index, run.rank))
            window = [{k: v.to(run.device, non_blocking=True) for k, v in b.items()} for b in window]
            counts = window_counts(window, accelerator)
            losses = _forward_backward(run, model, window, counts)
            grad_norm = accelerator.clip_grad_norm_(model.parameters(), run.args.max_grad_norm or float("inf"))
            grad_norm = float(grad_norm)
            # A signal may reach one process only, or between two steps of the others: all have to agree.
            values = _global_sums(losses, signals.asked, accelerator)
            # With a scaler, gradients that overflow are its business: it skips the step.
            if not (np.isfinite(values["loss"]) and (np.isfinite(grad_norm) or accelerator.scaler)):
                raise FloatingPointError(_not_finite(run, model, window, index, total_steps, values["loss"], grad_norm))
            lr = scheduler.get_last_lr()[0]
            optimizer.step()
            if not accelerator.optimizer_step_was_skipped:
                scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            loss, stopping = values.pop("loss"), values.pop("stopping")
            bar.update()
            bar.set_postfix(loss=f"{loss:.3f}", lr=f"{lr:.1e}", refresh=False)
            sizes = (counts["tokens"], counts["sequences"], counts["num_items_in_batch"])
            yield Step(index, loss, grad_norm, lr, *sizes, values)
            if stopping:
                batches.close()
                if run.saved_step != index:
                    save_checkpoint(run, index, total_steps, model, optimizer, scheduler)
                run.say(f"stopped after step {index}; --resume_from_checkpoint auto goes on from checkpoint-{index}")
                accelerator.end_training()
                raise SystemExit(STOPPED)


def _forward_backward(run: Run, model, window: list[dict], counts: dict) -> dict[str, torch.Tensor]:
    """Gradients of the window; returns this process's share of the loss (and of its parts)."""
    sums: dict[str, torch.Tensor] = {}
    known = {name: counts[name] for name in ("num_items_in_batch", "num_sequences_in_batch") if name in counts}
    for number, batch in enumerate(window, 1):
        # Gradients travel between processes once, with the last micro-batch.
        wait = nullcontext() if number == len(window) else run.accelerator.no_sync(model)
        with wait:
            outputs = model(**batch, **known)
            # Data parallelism averages gradients over processes, but the loss already has a global divisor.
            run.accelerator.backward(outputs.loss * run.world_size)
        for name in ("loss", "mlm_loss", "nsp_loss"):
            value = getattr(outputs, name, None)
            if value is not None:
                sums[name] = sums.get(name, 0) + value.detach().float()
    return sums


def window_counts(window: list[dict], accelerator) -> dict:
    """Labelled items, sequences and real tokens of the global batch, over all micro-batches and processes."""
    device = window[0]["input_ids"].device
    counts = torch.stack(
        [
            sum(labelled_items(batch) for batch in window),
            torch.tensor(sum(len(batch["input_ids"]) for batch in window), device=device),
            sum(batch["attention_mask"].sum() for batch in window),
        ]
    )
    items, sequences, tokens = accelerator.reduce(counts, "sum").tolist()
    named = {"num_items_in_batch": items, "tokens": tokens, "sequences": sequences}
    if any("next_sentence_label" in batch for batch in window):
        named["num_sequences_in_batch"] = sequences
    return named


def labelled_items(batch: dict) -> torch.Tensor:
    """How many labels of a batch count towards its loss: a 0-d int64 tensor."""
    if "labels" in batch:
        return (batch["labels"] != IGNORED).sum()
    return torch.tensor(len(batch["input_ids"]), device=batch["input_ids"].device)


def _global_sums(sums: dict[str, torch.Tensor], stopping: bool, accelerator) -> dict[str, float]:
    """The sums over all processes, and with them, in the same exchange, how many were asked to stop."""
    loss = sums["loss"]
    values = torch.stack([*sums.values(), torch.tensor(float(stopping), device=loss.device)])
    return dict(zip((*sums, "stopping"), accelerator.reduce(values, "sum").tolist()))


def _recompute_activations(model) -> None:
    """Keep a layer's input only and compute the layer again in the backward pass, with the same dropout."""
    # transformers 5.23 deprecates the older name, 5.17 has no other
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()


@torch.no_grad()
def _not_finite(run: Run, model, window: list[dict], index: int, total_steps: int, loss: float, norm: float) -> str:
    """What to tell the user: the instances of the step, and which of them alone give no finite loss."""
    bare, size = run.accelerator.unwrap_model(model).eval(), len(window[0]["input_ids"])
    length, count, first = "", size * len(window) * run.world_size, index - 1
    if getattr(run.args, "phases", None):  # each reads its own stream from the beginning
        phase = phase_at(scheduled(phases_of(vars(run.args)), total_steps), index)
        length, first = f" of length {phase.length}", first - phase.start
    first *= count
    found = []
    for micro, batch in enumerate(window):
        start = first + (micro * run.world_size + run.rank) * size
        rows = ({name: tensor[i : i + 1] for name, tensor in batch.items()} for i in range(size))
        alone = [bare(**row, num_items_in_batch=1).loss for row in rows]
        found += [str(start + i) for i, value in enumerate(alone) if not torch.isfinite(value)]
    found = sorted(gather_object(found), key=int)
    culprits = (
        f"no finite loss by itself: {', '.join(found[:8])}" if found else "each of them by itself has a finite loss"
    )
    show = f"; python -m training show {run.output_dir} --step {index} prints them"
    return (
        f"step {index}: the loss is {loss}, the gradient norm {norm}; the weights are still those of step {index - 1}. "
        f"The step's instances: positions {first} to {first + count - 1} of the data{length} ({culprits})"
        + (show if hasattr(run.args, "objective") else "")
        + ". Try a lower --learning_rate, a longer --warmup_steps, or --mixed_precision no"
    )


def _step_seed(seed: int, step: int, rank: int) -> int:
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1)
