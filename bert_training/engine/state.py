"""The state of a training: what the loop advances, and what the run was started with."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from bert_training.engine.fsdp import prepare
from bert_training.engine.run import Run


@dataclass(frozen=True)
class Origin:
    """What a run was started with besides its flags; a run that resumes from its checkpoint must have the same.

    Attributes:
        data: a description of the training and evaluation data, as in run.json; every "sha256" in it is compared.
        initial_weights: file -> SHA-256 (``weights_sha256``); None for new weights.
        teacher: those of the teacher; None without one.
        phases: steps and batches of a pre-training in several phases, in words; None if all batches have the size
            that the flags give.
    """

    data: Any = None
    tokenizer_sha256: str | None = None
    initial_weights: dict[str, str] | None = None
    phases: str | None = None
    teacher: dict[str, str] | None = None


UNKNOWN = Origin()


@dataclass
class Totals:
    """Sums over the steps of the run, including those before it was resumed.

    Attributes:
        steps: steps counted here.
        loss: the sum of the losses of the steps.
        seconds: the time of the steps, without evaluations and checkpoints.
    """

    steps: int = 0
    loss: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class TrainingState:
    """What the loop advances and a checkpoint preserves.

    Attributes:
        model, optimizer: prepared by Accelerate.
        scheduler: not prepared by Accelerate; it counts optimiser steps.
        total_steps: optimiser steps of the whole run.
        origin: what the run was started with.
        totals: sums over the steps done so far.
        evaluations: (step, results) of each evaluation so far.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: LRScheduler
    total_steps: int
    origin: Origin
    totals: Totals = field(default_factory=Totals)
    evaluations: list[tuple[int, dict[str, Any]]] = field(default_factory=list)


def prepared_state(
    run: Run,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: LRScheduler,
    total_steps: int,
    origin: Origin,
) -> TrainingState:
    """The state before the first step, with the network and the optimiser prepared by Accelerate."""
    model, optimizer = prepare(run, model, optimizer)
    return TrainingState(model, optimizer, scheduler, total_steps, origin)
