"""The training loop of all scripts.

The loss of a step is the sum over all labelled items of the global batch, divided by their number, for any number of
micro-batches and processes. The items of all micro-batches of a step are therefore counted before the first forward
pass, and the model's heads divide by that count.
"""

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType

from bert_training.engine.batches import is_labelled, num_examples
from bert_training.engine.checkpoint import TrainingState, save_checkpoint
from bert_training.engine.run import Run
from bert_training.files.processes import STOPPED, StopSignals
from bert_training.inputs.flags.shared import SharedArguments

# The gradient scaler of fp16 halves its scale whenever it skips a step. A gradient that is not even finite at this
# scale does not overflow because of the scale.
LEAST_SCALE = 2.0**-14
FIRST_STEPS = 20  # after so many, the time left is estimated
# An attribute of a network whose loss is also divided by the number of real tokens, ``num_tokens_in_batch``.
COUNTS_TOKENS = "counts_tokens"


@dataclass
class StepCounts:
    """What the global batch of a step contains, over all micro-batches and processes.

    Attributes:
        items: labelled items or, if they have weights (``loss_weights``), the sum of these.
        sequences: sequences.
        tokens: tokens without padding.
        has_pairs: whether the sequences have labels of next sentence prediction.
    """

    items: int | float
    sequences: int
    tokens: int
    has_pairs: bool

    def model_arguments(self, with_tokens: bool = False) -> dict[str, int | torch.Tensor]:
        """The counts by which the heads of a network divide their losses."""
        pairs = {"num_sequences_in_batch": self.sequences} if self.has_pairs else {}
        # torch.compile would compile the network anew for every other float.
        items = torch.tensor(self.items) if isinstance(self.items, float) else self.items
        tokens = {"num_tokens_in_batch": self.tokens} if with_tokens else {}
        return {"num_items_in_batch": items, **pairs, **tokens}


@dataclass
class Step:
    """One finished optimiser step.

    Attributes:
        index: counted from 1.
        loss: the mean over the labelled items of the global batch.
        grad_norm: the norm of the gradient before clipping.
        lr: the learning rate of this step.
        counts: what the global batch contained.
        parts: the other losses that the outputs of the network name, such as ``mlm_loss`` and ``nsp_loss``.
    """

    index: int
    loss: float
    grad_norm: float
    lr: float
    counts: StepCounts
    parts: dict[str, float]


def training_steps(
    run: Run[SharedArguments],
    state: TrainingState,
    batches: Iterable[list[dict[str, torch.Tensor]]],
    *,
    max_grad_norm: float,
    start_step: int = 0,
    loss_arguments: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Step]:
    """Train, and yield once per optimiser step.

    Args:
        state: the model, its optimiser and its schedule; also what is saved on a signal. ``totals`` includes the
            step that is yielded.
        batches: this process's micro-batches, one list per optimiser step. A generator (``step_batches``) is closed on
            a stop signal, so that its worker processes end.
        max_grad_norm: the global norm to clip to; 0: no clipping.
        start_step: optimiser steps already done; the first one done here is ``start_step + 1``.
        loss_arguments: further arguments of the model in training, such as ``class_weights``.

    Raises:
        FloatingPointError: the loss or the gradient is not finite; the weights are those of the step before. Under
            fp16, a gradient that is not finite stops the run only when the scale has become too small (LEAST_SCALE).
        SystemExit: a signal asked the process to stop (``files/processes.py``). It is raised after the caller's loop
            body for the step has finished and a checkpoint has been written.
    """
    accelerator, model = run.accelerator, state.model
    with_tokens = getattr(accelerator.unwrap_model(model), COUNTS_TOKENS, False)
    with StopSignals() as signals, run.progress(state.total_steps, "training", initial=start_step) as bar:
        started = time.perf_counter()
        recent = deque[float](maxlen=FIRST_STEPS - 1)  # at first without step 1, which allocates memory and may compile
        stream, index = iter(batches), start_step
        upcoming = _fetched(stream)
        while upcoming is not None:
            if isinstance(upcoming, Exception):
                raise upcoming
            micro_batches, index = upcoming, index + 1
            model.train()
            # Dropout depends only on seed, step and process, so that a resumed run draws the same masks.
            torch.manual_seed(_step_seed(run.seed, index, run.rank))
            counts = step_counts(micro_batches, accelerator)
            micro_batches = [_on_device(batch, run.device) for batch in micro_batches]
            arguments = {**counts.model_arguments(with_tokens), **loss_arguments}
            losses = _forward_backward(run, model, micro_batches, arguments)
            upcoming = None if signals.asked else _fetched(stream)  # while a GPU computes; the next line waits for it
            grad_norm = float(accelerator.clip_grad_norm_(model.parameters(), max_grad_norm or float("inf")))
            # A signal may reach only some processes, so the flag is summed over all of them, together with the loss:
            # all stop after the same step.
            values = _global_sums(losses, signals.asked, accelerator)
            finite = _is_finite(values["loss"], grad_norm, accelerator)
            lr = float(state.scheduler.get_last_lr()[0])
            if not finite or (not _update(state, accelerator) and _has_least_scale(accelerator)):
                raise FloatingPointError(
                    f"step {index}: the loss is {values['loss']}, the gradient norm {grad_norm}; the weights are still "
                    f"those of step {index - 1}. Try a lower --learning_rate or a longer --warmup_steps"
                    f"{in_float32(accelerator.mixed_precision)}"
                )
            loss, stopping = values.pop("loss"), values.pop("stopping")
            bar.update()
            bar.set_postfix(loss=f"{loss:.3f}", lr=f"{lr:.1e}", refresh=False)
            state.totals.steps += 1
            state.totals.loss += loss
            recent.append(time.perf_counter() - started)
            state.totals.seconds += recent[-1]
            if index - start_step == FIRST_STEPS and index < state.total_steps:
                _say_time_left(run, sum(recent) / len(recent), state.total_steps - index)
            yield Step(index, loss, grad_norm, lr, counts, parts=values)
            started = time.perf_counter()
            if stopping:
                if isinstance(batches, Generator):
                    batches.close()
                _stop(run, state, index)


def _say_time_left(run: Run[SharedArguments], seconds_per_step: float, steps: int) -> None:
    """Print how long the other steps will take, without evaluations."""
    longer = "; phases of greater length take longer" if getattr(run.args, "phases", None) else ""
    run.say(f"{_duration_text(seconds_per_step * steps)} left for {steps:,} training steps{longer}")


def _duration_text(seconds: float) -> str:
    """A rounded time such as "about 7 minutes", because an estimate should not look exact."""
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= 1.5 * size:
            return f"about {round(seconds / size)} {unit}s"
    return f"about {max(1, round(seconds))} seconds" if seconds >= 1.5 else "about a second"


def _stop(run: Run[SharedArguments], state: TrainingState, step: int) -> NoReturn:
    """Save a checkpoint of the step, unless the caller has, and end the process."""
    if run.saved_step != step:
        save_checkpoint(run, step, state)
    run.say(f"stopped after step {step}; resume with --resume_from_checkpoint auto from checkpoint-{step}")
    run.accelerator.end_training()
    raise SystemExit(STOPPED)


def _fetched(stream: Iterator[list[dict[str, torch.Tensor]]]) -> list[dict[str, torch.Tensor]] | Exception | None:
    """The next micro-batches; None at the end; an error that must not keep the step before from being finished."""
    try:
        return next(stream, None)
    except Exception as error:
        return error


def _on_device(batch: dict[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def _forward_backward(
    run: Run[SharedArguments], model: torch.nn.Module, micro_batches: list[dict], arguments: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """Compute the gradients of all micro-batches; returns this process's share of the loss and of its parts.

    Args:
        arguments: of the model, besides those in the batches.
    """
    sums: dict[str, torch.Tensor] = {}
    for number, batch in enumerate(micro_batches, 1):
        # The processes exchange gradients once, with the last micro-batch.
        wait = nullcontext() if number == len(micro_batches) else run.accelerator.no_sync(model)
        with wait:
            outputs = model(**batch, **arguments)
            # Data parallelism averages gradients over processes, but the loss already has a global divisor.
            run.accelerator.backward(outputs.loss * run.world_size)
        for name, value in vars(outputs).items():
            if (name == "loss" or name.endswith("_loss")) and value is not None:
                sums[name] = sums.get(name, 0) + value.detach().float()
    return sums


def step_counts(micro_batches: list[dict], accelerator: Accelerator) -> StepCounts:
    """Count over the micro-batches of this process, and add up over all processes.

    Count before the batches are moved to a device, which the host would have to wait for.
    """
    labelled = torch.stack([labelled_items(batch) for batch in micro_batches]).sum()
    counts = torch.stack(
        [
            labelled.long(),
            torch.tensor(sum(map(num_examples, micro_batches))),
            sum(batch["attention_mask"].sum() for batch in micro_batches),
        ]
    )
    if accelerator.distributed_type != DistributedType.NO:
        labelled, counts = labelled.to(accelerator.device), counts.to(accelerator.device)
    items, sequences, tokens = accelerator.reduce(counts, "sum").tolist()
    if labelled.is_floating_point():
        items = float(accelerator.reduce(labelled, "sum"))
    has_pairs = any("next_sentence_label" in batch for batch in micro_batches)
    return StepCounts(items, sequences, tokens, has_pairs)


def labelled_items(batch: dict) -> torch.Tensor:
    """The number of labels of a batch that its loss includes (``is_labelled``), as a 0-d int64 tensor.

    With ``loss_weights``, (B,) or as many as labels, it is the sum of their weights, a float.
    """
    if "loss_weights" in batch:
        labelled, weights = is_labelled(batch["labels"]), batch["loss_weights"]
        weights = weights.reshape(*weights.shape, *[1] * (labelled.dim() - weights.dim()))
        return (weights * labelled).sum()
    if "labels" in batch:
        return is_labelled(batch["labels"]).sum()
    return torch.tensor(len(batch["input_ids"]), device=batch["input_ids"].device)


def _update(state: TrainingState, accelerator: Accelerator) -> bool:
    """Step and clear the gradients. Returns False for a step that the gradient scaler skips.

    Such a step does not advance the schedule.
    """
    scaler = accelerator.scaler
    scale = scaler.get_scale() if scaler else None
    state.optimizer.step()
    # A fused optimiser is also called for a step to skip, and leaves the weights as they are by itself. Accelerate
    # takes this for a step that was done, but the scaler has halved its scale.
    halved = scale is not None and scaler.get_scale() < scale
    taken = not (halved or accelerator.optimizer_step_was_skipped)
    if taken:
        state.scheduler.step()
    state.optimizer.zero_grad(set_to_none=True)
    return taken


def _global_sums(sums: dict[str, torch.Tensor], stopping: bool, accelerator: Accelerator) -> dict[str, float]:
    """The sums over all processes and, under "stopping", the number of processes that were asked to stop."""
    loss = sums["loss"]
    values = torch.stack([*sums.values(), torch.tensor(float(stopping), device=loss.device)])
    return dict(zip((*sums, "stopping"), accelerator.reduce(values, "sum").tolist()))


def _is_finite(loss: float, grad_norm: float, accelerator: Accelerator) -> bool:
    """Whether the step may change the weights. Under fp16 the gradient scaler skips steps whose gradients overflow."""
    return bool(np.isfinite(loss) and (np.isfinite(grad_norm) or accelerator.scaler))


def _has_least_scale(accelerator: Accelerator) -> bool:
    return accelerator.scaler is not None and accelerator.scaler.get_scale() < LEAST_SCALE


def in_float32(precision: str) -> str:
    """What else to try in a run that computes in another type and whose numbers are not finite."""
    return "" if precision == "no" else f"; the run computes in {precision}: also try --mixed_precision no"


def _step_seed(seed: int, step: int, rank: int) -> int:
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1)
