"""Instances of several sources in exact shares (``--mixture``).

Which source an instance comes from is a function of its position in the training, and which of its instances it is, a
function of seed and position: every number of processes sees the same order, and resuming is a look-up.

**How exact.** With a global batch of G and a share w of a source,

- every optimiser step has floor(G w) or ceil(G w) instances of it,
- after any number s of steps it has had floor(s G w) or ceil(s G w), less than one instance away from its share.

To choose the steps that have one instance more is a known problem, the fair scheduling of periodic tasks: each source
is a task, a step a slot, and the fractional parts of G w are the weights. ``extra_instances`` is the algorithm PF of
Baruah, Cohen, Plaxton and Varvel 1996 ("Proportionate progress: a notion of fairness in resource allocation"), which
fulfils both lines for any number of sources. Shares are fractions, so that the choice is periodic and is made once.

Within a step the instances of each source are spread evenly, so that micro-batches and processes have nearly equal
shares too.

Every source reads an endless stream of epochs of its own (``PretrainingInstances``). One that runs out begins its next
epoch, in a new order and with new masks.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from bert_training.engine.batches import TrainingData
from bert_training.engine.run import Run
from bert_training.inputs.flags.mixtures import whole_shares
from bert_training.inputs.flags.phases import Phase, phase_at
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.instances import PretrainingInstances
from bert_training.pretraining.text import Text


class Shares:
    """How many instances of each of K sources the optimiser steps have.

    Args:
        weights: (K) of the sources, as ``--mixture`` takes them.
        batch: instances of a step, over all processes and micro-batches.

    Attributes:
        shares: (K) the exact shares, which add up to 1.
    """

    def __init__(self, weights: Sequence[float], batch: int):
        numbers = np.array(whole_shares(weights), np.int64)
        total = int(numbers.sum())
        self.batch, self.shares = batch, numbers / total
        self._always = batch * numbers // total  # (K) instances that every step has
        extra = extra_instances(tuple((batch * numbers % total).tolist()), total)  # (steps of a period, K)
        self._extra = np.concatenate([np.zeros((1, len(numbers)), np.int64), extra.cumsum(0)])

    def before(self, step: int) -> np.ndarray:
        """(K) the instances of each source in the first ``step`` steps."""
        periods, rest = divmod(step, len(self._extra) - 1)
        return step * self._always + periods * self._extra[-1] + self._extra[rest]

    def order(self, step: int) -> np.ndarray:
        """(G) the sources of the instances of a step, counted from 0."""
        return _spread(tuple((self.before(step + 1) - self.before(step)).tolist()))


@lru_cache(maxsize=256)
def extra_instances(parts: tuple[int, ...], total: int) -> np.ndarray:
    """(steps of a period, K) 1 where a step has one more instance of a source, otherwise 0: the algorithm PF.

    Args:
        parts: (K) of each source, the weight in ``total``-ths that its steps have on average, below 1. They add up to
            a whole number of instances, which every step has.
    """
    per_step = sum(parts) // total
    period = total // math.gcd(total, *parts)
    steps = np.arange(1, 2 * period + 2)[:, None]
    before = np.array(parts) * (steps - 1)
    # The sign of w (t + 1) - floor(w t) - 1: 2 if it is positive, 0 if negative; for t = 0, 1, 2, ...
    signs = np.sign(np.array(parts) * steps - (before // total + 1) * total) + 1
    characters = [column.astype(np.uint8).tobytes() for column in signs.T]
    chosen = np.zeros((period, len(parts)), np.int64)
    had = [0] * len(parts)
    for step in range(period):
        urgent, contending = [], []
        for source, part in enumerate(parts):
            lag = part * step - had[source] * total
            if lag > 0 and characters[source][step] > 0:
                urgent.append(source)
            elif not (lag < 0 and characters[source][step] < 2) and part:
                contending.append(source)
        # Priority has the source whose next signs, up to the first zero, come later in the alphabet.
        contending.sort(key=lambda source: (_until_zero(characters[source], step + 1), -source), reverse=True)
        for source in [*urgent, *contending][:per_step]:
            chosen[step, source] = 1
            had[source] += 1
    assert (chosen.sum(1) == per_step).all() and [one * total for one in had] == [part * period for part in parts]
    return chosen


def _until_zero(signs: bytes, start: int) -> bytes:
    return signs[start : signs.index(1, start) + 1]


@lru_cache(maxsize=256)
def _spread(counts: tuple[int, ...]) -> np.ndarray:
    """The sources of a step with these numbers of instances: each in the middle of as many equal parts of the step."""
    sources = np.repeat(np.arange(len(counts)), counts)
    places = np.concatenate([(np.arange(count) + 0.5) / max(1, count) for count in counts])
    return sources[np.argsort(places, kind="stable")]


class MixedInstances:
    """Batches of instances of several sources; an object for ``step_batches``.

    Args:
        sources: the instances of each source, all of one length.
        weights: their weights.
        batch_size: instances of an optimiser step, over all processes and micro-batches.
        first: of each source, the first position to read; the phases before may have read others.
    """

    def __init__(
        self,
        sources: Sequence[PretrainingInstances],
        weights: Sequence[float],
        batch_size: int,
        first: np.ndarray | None = None,
    ):
        self.sources, self.shares = sources, Shares(weights, batch_size)
        self.first = np.zeros(len(sources), np.int64) if first is None else first

    def read_before(self, step: int) -> np.ndarray:
        """(K) the position of each source before optimiser step ``step``, counted from 0 in the phase."""
        return self.first + self.shares.before(step)

    def places(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """(source, position in its own stream) of the positions [start, stop) of the phase."""
        sources, positions = [], []
        size = self.shares.batch
        for step in range(start // size, -(-stop // size)):
            order, before = self.shares.order(step), self.read_before(step)
            own = np.zeros(size, np.int64)
            for source in range(len(self.sources)):
                mine = order == source
                own[mine] = before[source] + np.arange(mine.sum())
            part = slice(max(start - step * size, 0), min(stop - step * size, size))
            sources.append(order[part])
            positions.append(own[part])
        return np.concatenate(sources), np.concatenate(positions)

    def batch(self, start: int, stop: int) -> dict[str, torch.Tensor]:
        """The instances at the positions [start, stop) of the phase; as ``PretrainingInstances.batch``."""
        sources, positions = self.places(start, stop)
        parts, rows = [], []
        for source in np.unique(sources).tolist():
            mine = np.flatnonzero(sources == source)  # their positions follow each other
            parts.append(self.sources[source].batch(int(positions[mine[0]]), int(positions[mine[-1]]) + 1))
            rows.append(mine)
        order = torch.from_numpy(np.argsort(np.concatenate(rows), kind="stable"))
        width = max(part["input_ids"].shape[1] for part in parts)
        pads = {"input_ids": self.sources[0].pad, "labels": -100}
        return {
            name: torch.cat([_widened(part[name], width, pads.get(name, 0)) for part in parts])[order]
            for name in parts[0]
        }


def _widened(values: torch.Tensor, width: int, pad: int) -> torch.Tensor:
    if values.dim() < 2 or values.shape[1] == width:
        return values
    return torch.nn.functional.pad(values, (0, width - values.shape[1]), value=pad)


def phase_streams(
    phases: Sequence[Phase], train: dict[int, list[PretrainingInstances]], world_size: int
) -> list[TrainingData]:
    """The training data of every phase.

    Each length has its own stream, read from the beginning; with mixtures, each source of each length, and a later
    phase of the same length goes on where the last one stopped.

    Args:
        phases: with their steps.
        train: the instances of each source by length.
    """
    streams: list[TrainingData] = []
    read: dict[int, np.ndarray] = {}
    for phase in phases:
        if not phase.mixture:
            streams.append(train[phase.length][0])
            continue
        batch = phase.size * phase.accumulation * world_size
        stream = MixedInstances(train[phase.length], phase.mixture, batch, read.get(phase.length))
        read[phase.length] = stream.read_before(phase.stop - phase.start)
        streams.append(stream)
    return streams


def epoch_size(sources: Sequence[PretrainingInstances], mixture: Sequence[float]) -> int:
    """The instances of an epoch: those of all sources together, without sources whose weight is 0."""
    used = [weight > 0 for weight in mixture] or [True]
    return sum(instances.epoch_size(0) for instances, is_used in zip(sources, used) if is_used)


def record_mixture(
    run: Run[PretrainingArguments],
    text: Text,
    phases: Sequence[Phase],
    train: dict[int, list[PretrainingInstances]],
) -> None:
    """Print and record of each source of a mixture its share of the instances and how often the run reads it.

    Phases with larger batches count for more.
    """
    if not run.is_main or not phases[0].mixture:
        return
    steps = phases[-1].stop
    counts = np.zeros(len(text.entries))  # instances
    epochs = np.zeros(len(text.entries))
    for phase in phases:
        batch = phase.size * phase.accumulation * run.world_size
        read = Shares(phase.mixture, batch).before(phase.stop - phase.start)
        counts += read
        epochs += read / [instances.epoch_size(0) for instances in train[phase.length]]
    names = [entry.name for entry in text.entries]
    listed = [
        {"name": name, "share": round(float(share), 6), "epochs": round(float(count), 4)}
        for name, share, count in zip(names, counts / counts.sum(), epochs)
    ]
    run.add_facts(mixture=listed)
    for one in listed:
        run.say(f"mixture: {one['share']:.2%} {one['name']}, read {one['epochs']:.2f} times in {steps:,} steps")


def note_new_epochs(
    run: Run[PretrainingArguments], phases: Sequence[Phase], streams: Sequence[TrainingData], step: int
) -> None:
    """Print and record which sources of a mixture have run out in optimiser step ``step``, counted from 1."""
    phase = phase_at(phases, step)
    stream = streams[phases.index(phase)]
    if not run.is_main or not isinstance(stream, MixedInstances):
        return
    before, after = (stream.read_before(step - phase.start - ago) for ago in (1, 0))
    for source, instances in enumerate(stream.sources):
        if before[source] and after[source] > before[source]:
            was, now = (instances.locate(int(position) - 1)[0] for position in (before[source], after[source]))
            if now > was:
                name = run.facts["mixture"][source]["name"]
                run.log(event="epoch", step=step, source=name, epoch=now + 1, max_seq_length=phase.length)
                run.say(
                    f"step {step}: {name} has run out and begins its epoch {now + 1} of instances of {phase.length} "
                    "tokens, in a new order and with new masks"
                )
