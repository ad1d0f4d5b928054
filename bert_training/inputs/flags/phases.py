"""Phases of one run: short instances for most of the steps and long ones at the end (paper, A.2).

    --phases 128:0.9:32,512:0.1:8x4      LENGTH:SHARE[:BATCH[xACCUMULATION]][@WEIGHT:WEIGHT...]

The first 90 % of the optimiser steps see instances of 128 tokens, 32 per forward pass and process; the last 10 % see
instances of 512 tokens, 8 per forward pass, with 4 forward passes accumulated. One learning-rate schedule spans all
phases, as the paper describes it; google-research/bert runs its script twice, each time with a warm-up and a decay.
Behind @ stands the mixture of a phase (bert_training/inputs/flags/mixtures.py).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokenization.errors import UserError

_PHASE = re.compile(r"(\d{1,9}):([0-9.]{1,40}(?:e-?\d{1,9})?)(?::(\d{1,9})(?:x(\d{1,9}))?)?", re.ASCII)
_EXAMPLE = "expected LENGTH:SHARE[:BATCH[xACCUMULATION]], ... as in 128:0.9:32,512:0.1:8x4"
_WEIGHTS = re.compile(r"[^:@]{1,40}(:[^:@]{1,40}){0,999}", re.ASCII)


@dataclass(frozen=True)
class Phase:
    """Optimiser steps start + 1 .. stop, with instances of at most `length` tokens.

    Attributes:
        share: the phase's share of the steps of the run, above 0 and at most 1.
        size: sequences per forward pass and process.
        accumulation: forward passes per optimiser step.
        mixture: the weight of each file of the training text; empty if all files are one text.
    """

    length: int
    share: float
    size: int
    accumulation: int
    start: int = 0
    stop: int = 0
    mixture: tuple[float, ...] = ()


def phases_of(flags: Mapping[str, Any]) -> list[Phase]:
    """The phases that the flags of run_pretraining.py ask for; a single one without `--phases`.

    Raises:
        ValueError: the text is not a list of phases, the shares do not add up to 1, a length or batch is out of range,
            or a length occurs twice with the same mixture.
    """
    size, accumulation = flags["per_device_train_batch_size"], flags["gradient_accumulation_steps"]
    text, common = flags.get("phases"), tuple(flags.get("mixture") or ())
    if text is None:
        return [Phase(flags["max_seq_length"], 1.0, size, accumulation, mixture=common)]
    shown = text if len(text) <= 200 and text.isprintable() else f"{text!r:.200}"
    phases = []
    for part in text.split(","):
        described, at, weights = part.strip().partition("@")
        match = _PHASE.fullmatch(described)
        if match is None:
            raise UserError(f"--phases {shown}: {part.strip()!r:.60} is not a phase; {_EXAMPLE}")
        mixture = _mixture(weights, shown) if at else common
        length, share, own_size, own_accumulation = match.groups()
        try:
            batch = int(own_size or size), int(own_accumulation or accumulation)
            phase = Phase(int(length), float(share), *batch, mixture=mixture)
        except ValueError as error:
            raise UserError(f"--phases {shown}: {error}; {_EXAMPLE}") from error
        if phase.length < 8 or min(phase.size, phase.accumulation) < 1 or not 0 < phase.share <= 1:
            raise UserError(
                f"--phases {shown}: {part.strip()} is out of range; lengths are at least 8, shares above 0 and at "
                "most 1, batches at least 1"
            )
        phases.append(phase)
    if abs(sum(phase.share for phase in phases) - 1) > 1e-6:
        total = sum(phase.share for phase in phases)
        raise UserError(f"--phases {shown}: the shares add up to {total:g}; expected 1")
    if len({(phase.length, phase.mixture) for phase in phases}) < len(phases):
        same = " with the same mixture" if any(phase.mixture for phase in phases) else ""
        raise UserError(f"--phases {shown}: a length occurs twice{same}; give each length one phase")
    return phases


def _mixture(text: str, shown: str) -> tuple[float, ...]:
    """The weights of ``0.7:0.3``; ValueError with the text of the flag if they are none."""
    try:
        if not _WEIGHTS.fullmatch(text):
            raise ValueError
        return tuple(float(weight) for weight in text.split(":"))
    except ValueError:
        raise UserError(f"--phases {shown}: {text!r:.60} is not a mixture; expected weights, as in @0.7:0.3") from None


def with_steps(phases: Sequence[Phase], total_steps: int) -> list[Phase]:
    """The phases with their optimiser steps; ValueError if one of them would have no step."""
    with_bounds, start, share = [], 0, 0.0
    for phase in phases:
        share += phase.share
        stop = total_steps if phase is phases[-1] else round(share * total_steps)
        if stop <= start:
            raise UserError(
                f"--phases: a share of {phase.share:g} of {total_steps} steps leaves none of length {phase.length}; "
                "train longer or give it a larger share"
            )
        with_bounds.append(replace(phase, start=start, stop=stop))
        start = stop
    return with_bounds


def phase_at(phases: Sequence[Phase], step: int) -> Phase:
    """The phase of optimiser step ``step``, counted from 1; the last phase for any later step."""
    return next((phase for phase in phases if step <= phase.stop), phases[-1])


def phases_in_words(phases: Sequence[Phase], world_size: int) -> str:
    """The phases in words, with global batches: `900 steps of 256 x 128, 100 steps of 256 x 512`."""
    return ", ".join(
        f"{phase.stop - phase.start:,} steps of {phase.size * phase.accumulation * world_size} x {phase.length}"
        + (f" of the mixture {':'.join(f'{weight:g}' for weight in phase.mixture)}" if phase.mixture else "")
        for phase in phases
    )
