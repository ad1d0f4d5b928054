"""Phases of one run: short instances for most of the steps and long ones at the end (paper, A.2).

    --phases 128:0.9:32,512:0.1:8x4      LENGTH:SHARE[:BATCH[xACCUMULATION]][@WEIGHT:WEIGHT...]

The first 90 % of the optimiser steps see instances of 128 tokens, 32 per forward pass and process; the last 10 % see
instances of 512 tokens, 8 per forward pass, with 4 forward passes accumulated. One learning-rate schedule spans all
phases, as the paper describes it; google-research/bert runs its script twice, each time with a warm-up and a decay.
Behind @ stands the mixture of a phase.

A mixture says how much of the training comes from each file of ``--train_file``:

    --train_file law.txt wiki.txt --mixture 0.7 0.3
    --train_file law.txt wiki.txt --phases 128:0.5@0.5:0.5,128:0.5@0.9:0.1

The weights are shares of the instances. They need not add up to 1: 7 and 3 are the same as 0.7 and 0.3.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from tokenization.errors import UserError

_PHASE = re.compile(r"(\d{1,9}):(\d{0,9}\.?\d{1,40}(?:e-?\d{1,9})?)(?::(\d{1,9})(?:x(\d{1,9}))?)?", re.ASCII)
_EXAMPLE = "expected LENGTH:SHARE[:BATCH[xACCUMULATION]], ... as in 128:0.9:32,512:0.1:8x4"


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
    """The phases that the flags of run_pretraining.py ask for; a single one without `--phases`, whose errors it has."""
    size, accumulation = flags["per_device_train_batch_size"], flags["gradient_accumulation_steps"]
    text, common = flags.get("phases"), tuple(flags.get("mixture") or ())
    if text is not None:
        return _phases_in(text, size, accumulation, common)
    return [Phase(flags["max_seq_length"], 1.0, size, accumulation, mixture=common)]


def _phases_in(text: str, size: int, accumulation: int, common: tuple[float, ...]) -> list[Phase]:
    """The phases of ``--phases``.

    Args:
        size, accumulation, common: the batch and the mixture of phases that do not name their own.

    Raises:
        ValueError: the text is not a list of phases, the shares do not add up to 1, a length or batch is out of range,
            or a length occurs twice with the same mixture.
    """
    shown = text if len(text) <= 200 and text.isprintable() else f"{text!r:.200}"
    phases, problem = [], None
    for part in text.split(","):
        described, at, weights = part.strip().partition("@")
        match = _PHASE.fullmatch(described)
        mixture = _mixture(weights) if at else common
        if match is None or mixture is None:
            problem = problem or f"{part.strip()!r:.60} is not a phase; {_EXAMPLE}"
            continue
        length, share, own_size, own_accumulation = match.groups()
        batch = int(own_size or size), int(own_accumulation or accumulation)
        phases.append(Phase(int(length), float(share), *batch, mixture=mixture))
    if problem := problem or _problem(phases):
        raise UserError(f"--phases {shown}: {problem}")
    return phases


def _problem(phases: Sequence[Phase]) -> str | None:
    """What is wrong with the phases together, in words that follow the flag."""
    if any(one.length < 8 or min(one.size, one.accumulation) < 1 or not 0 < one.share <= 1 for one in phases):
        return "out of range; lengths are at least 8, shares above 0 and at most 1, batches at least 1"
    if abs(sum(phase.share for phase in phases) - 1) > 1e-6:
        return f"the shares add up to {sum(phase.share for phase in phases):g}; expected 1"
    if len({(phase.length, phase.mixture) for phase in phases}) < len(phases):
        same = " with the same mixture" if any(phase.mixture for phase in phases) else ""
        return f"a length occurs twice{same}; give each length one phase"
    return None


def _mixture(text: str) -> tuple[float, ...] | None:
    """The weights of ``0.7:0.3``; None if they are none."""
    try:
        return tuple(float(weight) for weight in text.split(":"))
    except ValueError:
        return None


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


# --- mixtures --------------------------------------------------------------------------------------------------------


FINEST = 10_000  # shares are whole numbers of this, unless they are fractions with a smaller common denominator


def whole_shares(weights: Sequence[float]) -> tuple[int, ...]:
    """The weights as whole numbers; the share of a source is its number divided by their sum.

    They are exact if their common denominator is at most ``FINEST``, as that of 0.7 and 0.3 is. Others are rounded to
    ``FINEST``-ths by largest remainders.
    """
    exact = [Fraction(repr(float(weight))) for weight in weights]
    total = sum(exact)
    shares = [weight / total for weight in exact]
    denominator = math.lcm(*(share.denominator for share in shares))
    if denominator > FINEST:
        denominator = FINEST
    numbers = [math.floor(share * denominator) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda source: numbers[source] - shares[source] * denominator)
    for source in by_remainder[: denominator - sum(numbers)]:
        numbers[source] += 1
    return tuple(numbers)


def mean_shares(flags: Mapping[str, Any]) -> list[float]:
    """The share of each source in the instances of an average step of a run; one source without a mixture."""
    sums = [0.0] * len(flags["train_file"]) if is_mixed(flags) else [1.0]
    for phase in phases_of(flags) if is_mixed(flags) else ():
        numbers = whole_shares(phase.mixture)
        for source, number in enumerate(numbers):
            sums[source] += phase.share * number / sum(numbers)
    return sums


def weights_text(weights: Sequence[float]) -> str:
    """The weights as ``--phases`` takes them: 0.7:0.3."""
    return ":".join(f"{weight:g}" for weight in weights)


def is_mixed(flags: Mapping[str, Any]) -> bool:
    """Whether each file of ``--train_file`` is a source of its own."""
    return bool(flags.get("mixture")) or "@" in (flags.get("phases") or "")


def mixture_problems(flags: Mapping[str, Any], phases: Sequence[Phase]) -> Iterator[str]:
    """What is wrong with the mixtures of a run: they do not fit the files, or a phase lacks one.

    Args:
        flags: the flags of the run.
        phases: its phases, with their mixtures.
    """
    count, common = len(flags["train_file"]), flags.get("mixture")
    flag = "--mixture" if common else "--phases"
    if not count:
        yield f"{flag}: expected a file of --train_file for each weight of a mixture, got none"
        return
    for name in ("max_train_documents", "corpus_dir"):
        if flags[name] is not None:
            yield f"--{name} is for one text; with a mixture, leave it out"
    if flags["initial_weights"] == "counted":
        yield "--initial_weights counted counts one text; with a mixture, leave it out"
    for phase in phases:
        if not phase.mixture:
            yield f"--phases: the phase of length {phase.length} has no mixture; write it behind @, or give --mixture"
    for weights in dict.fromkeys([*([tuple(common)] if common else []), *(phase.mixture for phase in phases)]):
        name = "--mixture" if common and weights == tuple(common) else "--phases"
        if weights and (problem := _problem_of_weights(weights, count)):
            yield f"{name}: the mixture {weights_text(weights)} {problem}"


def _problem_of_weights(weights: Sequence[float], count: int) -> str | None:
    """What is wrong with a mixture of ``count`` files, in words that follow its name."""
    if len(weights) != count:
        return f"has {len(weights)} weights; expected {count}, one for each entry of --train_file"
    if not all(0 <= weight < math.inf for weight in weights):
        return "has a weight that is negative or not finite; expected numbers of at least 0"
    if not any(weights):
        return "has only weights of 0, so that there is nothing to train on; raise one of them"
    if any(weight and not number for weight, number in zip(weights, whole_shares(weights))):
        return f"has a share below 1 in {FINEST:,}; give that file a larger weight, or 0"
    return None
