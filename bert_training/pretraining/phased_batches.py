"""The instances that each optimiser step of a run sees, through all of its phases."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from bert_training.engine.batches import TrainingData, step_batches, steps_for
from bert_training.engine.run import Run
from bert_training.inputs.flags.phases import Phase, phases_of, with_steps
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.instances import PretrainingInstances, instance_settings
from bert_training.pretraining.mixture import epoch_size
from tokenization.errors import UserError


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
    steps = steps_for(args, epoch_fraction)
    try:
        return with_steps(phases, steps)
    except ValueError as error:
        if args.recipe != "fast" or args.max_steps > 0:
            raise
        raise UserError(
            f"--recipe fast: {args.num_train_epochs:g} epochs of this text are {steps} optimiser steps, too few for "
            f"--phases {args.phases}; give --max_steps, a smaller --per_device_train_batch_size, or "
            f"--phases {phases[-1].length}:1"
        ) from error


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
