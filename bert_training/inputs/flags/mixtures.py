"""Mixtures: how much of the training comes from each file of ``--train_file``.

    --train_file law.txt wiki.txt --mixture 0.7 0.3
    --train_file law.txt wiki.txt --phases 128:0.5@0.5:0.5,128:0.5@0.9:0.1

The weights are shares of the instances. They need not add up to 1: 7 and 3 are the same as 0.7 and 0.3.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from bert_training.inputs.flags.phases import Phase, phases_of

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
    if not is_mixed(flags):
        return
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
        if weights and (problem := _problem(weights, count)):
            yield f"{name}: the mixture {weights_text(weights)} {problem}"


def _problem(weights: Sequence[float], count: int) -> str | None:
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
