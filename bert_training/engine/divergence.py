"""The error message for a training step whose loss or gradient is not finite."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bert_training.inputs.flags.phases import Phase, phase_at


@dataclass(frozen=True)
class Divergence:
    """An optimiser step whose loss or gradient is not finite; the weights are still those of the step before.

    Attributes:
        step: counted from 1.
        instances: the number of instances in the global batch.
        culprits: positions in the global batch, from 0, of the instances whose own loss is not finite.
        precision: the type of autocast, "no" for none.
    """

    step: int
    loss: float
    grad_norm: float
    instances: int
    culprits: list[int]
    precision: str = "no"


def check_outputs(culprits: Sequence[int], total: int, precision: str) -> None:
    """Raise FloatingPointError if there are rows or instances of an evaluation whose outputs are not finite.

    Args:
        culprits: their numbers, counted from 0.
        total: the number of all rows that were evaluated.
        precision: the type of autocast, "no" for none.
    """
    if culprits:
        shown = ", ".join(map(str, culprits[:8])) + (", ..." if len(culprits) > 8 else "")
        raise FloatingPointError(
            f"evaluation: the outputs of the network are NaN or infinite for {len(culprits)} of {total} rows (counted "
            f"from 0: {shown}), so that there is no score; the weights are unchanged. If the training has just "
            f"begun to diverge, try a lower --learning_rate from an earlier checkpoint{_in_float32(precision)}"
        )


def explain_divergence(found: Divergence, phases: Sequence[Phase] = (), folder: Path | None = None) -> str:
    """The message: which instances the step had, which of them have no finite loss alone, and what to try.

    Args:
        phases: the phases of a pre-training, with their steps. If there are several, each reads a data stream of its
            own from the beginning.
        folder: the folder of a pre-training run, whose instances ``bert-repro inspect`` prints.
    """
    steps_before, data = found.step - 1, "the data"
    if len(phases) > 1:
        phase = phase_at(phases, found.step)
        steps_before, data = steps_before - phase.start, f"the data of length {phase.length}"
    first = steps_before * found.instances
    positions = [str(first + place) for place in found.culprits[:8]]
    verdict = (
        f"no finite loss by itself: {', '.join(positions)}" if positions else "each of them by itself has a finite loss"
    )
    show = f"; bert-repro inspect {folder} --step {found.step} prints them" if folder else ""
    return (
        f"step {found.step}: the loss is {found.loss}, the gradient norm {found.grad_norm}; the weights are still "
        f"those of step {found.step - 1}. The step's instances: positions {first} to {first + found.instances - 1} "
        f"of {data} ({verdict}){show}. Try a lower --learning_rate or a longer --warmup_steps"
        + _in_float32(found.precision)
    )


def _in_float32(precision: str) -> str:
    """What else to try in a run that computes in another type."""
    return "" if precision == "no" else f"; the run computes in {precision}: also try --mixed_precision no"
