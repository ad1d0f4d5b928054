"""The data of a pre-training run: its corpora, their instances, and the batches of each optimiser step.

**Mixtures** (``--mixture``) have instances of several sources in exact shares. Which source an instance comes from is a
function of its position in the training, and which of its instances it is, a function of seed and position: every
number of processes sees the same order, and resuming is a look-up.

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
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.batches import TrainingData, step_batches, steps_for
from bert_training.engine.checkpoint import Origin
from bert_training.engine.run import Run
from bert_training.inputs.flags.phases import Phase, phase_at, phases_in_words, phases_of, whole_shares, with_steps
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.instances import PretrainingInstances, instance_settings
from bert_training.pretraining.text import Text, build_corpora

# --- mixtures --------------------------------------------------------------------------------------------------------


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
) -> Sequence[TrainingData]:
    """The training data of every phase; each length has its own stream, read from the beginning.

    Args:
        phases: with their steps.
        train: the instances of each source by length.
    """
    if phases[0].mixture:
        return _mixed_streams(phases, train, world_size)
    return [train[phase.length][0] for phase in phases]


def _mixed_streams(
    phases: Sequence[Phase], train: dict[int, list[PretrainingInstances]], world_size: int
) -> list[MixedInstances]:
    """Every source of each length has a stream, and a later phase of the same length goes on where the last stopped."""
    streams: list[MixedInstances] = []
    read: dict[int, np.ndarray] = {}
    for phase in phases:
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
    if not run.is_main:
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


# --- data ------------------------------------------------------------------------------------------------------------


ENOUGH = 0.8  # of the text's tokens; a text without ends of sentences loses most of them in silence


class PretrainingData:
    """What a run is trained and evaluated on. All processes make one; the corpora are built in the output folder.

    Attributes:
        corpora: the training corpora, one for each source of a mixture, and the held-out corpora.
        train: the training instances of each source, by length.
        held_out: the held-out instances, by length.
        phases: with their optimiser steps.
        streams: of each phase, what its steps read.

    Raises:
        ValueError: the text cannot be read or has no pairs, a phase would have no step, or a folder holds a corpus of
            another text.
    """

    def __init__(self, run: Run[PretrainingArguments], text: Text, tokenizer: PreTrainedTokenizerBase):
        flags = vars(run.args)
        self.text, self.tokenizer = text, tokenizer
        self.corpora = build_corpora(run, text, tokenizer)
        self.train = training_instances(flags, self.corpora.train, tokenizer)
        self.held_out = instances_by_length(flags, self.corpora.held_out, tokenizer, held_out=True)
        self.phases = planned_phases(run.args, self.train, run.world_size)
        self.streams = phase_streams(self.phases, self.train, run.world_size)

    @property
    def total_steps(self) -> int:
        """The optimiser steps of all phases."""
        return self.phases[-1].stop

    def length_at(self, step: int) -> int:
        """The length of the instances of an optimiser step, counted from 1; before it, that of the first phase."""
        return phase_at(self.phases, max(step, 1)).length

    def batches(self, run: Run[PretrainingArguments], done: int) -> Iterator[list[dict[str, torch.Tensor]]]:
        """This process's micro-batches of each optimiser step after step ``done``."""
        return phase_batches(run, self.phases, self.streams, done)

    def describe(
        self, run: Run[PretrainingArguments], model: PreTrainedModel, initial_weights: dict[str, str] | None
    ) -> Origin:
        """Record and print what is trained on what, and warn of text that is lost.

        Args:
            initial_weights: their file -> SHA-256, or None for new ones.

        Returns:
            What must be the same in a resumed run.
        """
        corpora, plan = self.corpora, phases_in_words(self.phases, run.world_size)
        held_out = corpora.held_out
        tokenizer = held_out.tokenizer_sha256
        run.add_facts(
            data=self.text.sources,
            tokenizer_sha256=tokenizer,
            initial_weights=initial_weights,
            corpus={"documents": corpora.num_documents, "tokens": corpora.num_tokens},
            held_out={"documents": held_out.num_documents, "tokens": held_out.num_tokens},
            parameters=model.num_parameters(),
            total_steps=self.total_steps,
        )
        if run.args.phases or run.args.mixture:
            run.add_facts(phases=plan)
        sizes = f"{corpora.num_documents:,} documents, {corpora.num_tokens:,} tokens"
        run.say(f"{sizes}; {model.num_parameters():,} parameters; {plan}")
        record_used_tokens(run, self.train)
        if self.phases[0].mixture:
            record_mixture(run, self.text, self.phases, self.train)
        return Origin(self.text.sources, tokenizer, initial_weights, plan if run.args.phases else None)


def instances_by_length(
    flags: Mapping[str, Any],
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    held_out: bool = False,
    source: int = 0,
) -> dict[int, PretrainingInstances]:
    """The instances that the flags ask for, by the length of every phase.

    Args:
        flags: of the run, by name.
        corpus: the training corpus or the held-out corpus.
        tokenizer: the tokenizer that made its ids.
        held_out: whether it is the held-out corpus, whose instances are the same for every seed and every evaluation.
        source: the number of the source if it is one of a mixture, counted from 0.
    """
    lengths = dict.fromkeys(phase.length for phase in phases_of(flags))
    return {
        length: PretrainingInstances(corpus, tokenizer, instance_settings(flags, length, held_out, source))
        for length in lengths
    }


def training_instances(
    flags: Mapping[str, Any], corpora: Sequence[Corpus], tokenizer: PreTrainedTokenizerBase
) -> dict[int, list[PretrainingInstances]]:
    """The training instances of each source, by the length of every phase; a run without a mixture has one source."""
    by_source = [instances_by_length(flags, corpus, tokenizer, source=source) for source, corpus in enumerate(corpora)]
    return {length: [by_length[length] for by_length in by_source] for length in by_source[0]}


def planned_phases(
    args: PretrainingArguments, train: dict[int, list[PretrainingInstances]], world_size: int
) -> list[Phase]:
    """The phases with their optimiser steps: ``--max_steps`` in all, or as many as ``--num_train_epochs`` need.

    Args:
        args: the flags of the run.
        train: the training instances (``training_instances``).
        world_size: the number of processes.

    Raises:
        ValueError: a phase would have no step.
    """
    phases = phases_of(vars(args))
    epoch_fraction = 1.0
    if args.max_steps < 0:
        sizes = {phase: phase.size * phase.accumulation * world_size for phase in phases}
        epoch_fraction = sum(
            phase.share * size / epoch_size(train[phase.length], phase.mixture) for phase, size in sizes.items()
        )
    return with_steps(phases, steps_for(args, epoch_fraction))


def phase_batches(
    run: Run[PretrainingArguments], phases: Sequence[Phase], streams: Sequence[TrainingData], done: int
) -> Iterator[list[dict[str, torch.Tensor]]]:
    """Yield this process's micro-batches, one list for each optimiser step after step ``done``, through all phases.

    Args:
        streams: the data of each phase (``phase_streams``), which is read from position 0.
    """
    for phase, stream in zip(phases, streams, strict=True):
        if done < phase.stop:
            first, total = max(done, phase.start) - phase.start, phase.stop - phase.start
            yield from step_batches(stream, run, first, total, phase.size, phase.accumulation)


# --- the share of the text that an epoch uses -------------------------------------------------------------------------


def record_used_tokens(run: Run[PretrainingArguments], train: Mapping[int, Sequence[PretrainingInstances]]) -> None:
    """Print and record the share for the instances of each length, with a warning where it is low.

    Args:
        run: the run.
        train: the training instances of each source by length. The plan of the first epoch is exact and is needed for
            training anyway.
    """
    if not run.is_main:
        return
    shares = {length: used_share(*sources) for length, sources in train.items()}
    run.add_facts(used_tokens={str(length): round(share, 4) for length, share in shares.items()})
    listed = ", ".join(f"{share:.1%} (length {length})" for length, share in shares.items())
    run.say(f"tokens of the text that an epoch uses: {listed}")
    if min(shares.values()) < ENOUGH:
        run.say(
            "warning: so little of the text is used because pairs of long sentences are cut and single sentences have "
            "no pair. What helps: put each sentence on a line of its own, and blank lines between documents only; "
            "raise --max_seq_length; or use --objective mlm, which uses every token"
        )
    for instances in (instances for sources in train.values() for instances in sources):
        if left := instances.without_pairs:
            run.say(
                f"warning: {len(left):,} shards of the corpus, such as {left[0].path}, are not read: they have no two "
                "documents, or no document of two sentences. --objective mlm reads them"
            )


def used_share(*sources: PretrainingInstances) -> float:
    """The share of the tokens of all sources that their first epochs show as A or as the B that follows it."""
    tokens = sum(instances.planned_tokens for instances in sources)
    return sum(plan.used_tokens for instances in sources for plan in instances.plans(0)) / tokens
