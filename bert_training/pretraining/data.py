"""The data of a pre-training run: its corpora, their instances, and the batches of each optimiser step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.batches import TrainingData, step_batches, steps_for
from bert_training.engine.divergence import explain_divergence
from bert_training.engine.run import Run
from bert_training.engine.state import Origin
from bert_training.inputs.flags.phases import Phase, phase_at, phases_in_words, phases_of, with_steps
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.corpora import build_corpora
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.coverage import record_coverage
from bert_training.pretraining.instances import PretrainingInstances, instance_settings
from bert_training.pretraining.mixture import epoch_size, phase_streams, record_mixture
from bert_training.pretraining.text import Text
from bert_training.pretraining.word_borders import note_single_characters
from tokenization.errors import UserError

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

    def explain_divergence(self, run: Run[PretrainingArguments]) -> Callable[..., str]:
        """What training_steps calls to say why a loss has become infinite."""
        return partial(explain_divergence, phases=self.phases, folder=run.output_dir)

    def describe(
        self, run: Run[PretrainingArguments], model: PreTrainedModel, initial_weights: dict[str, str] | None
    ) -> Origin:
        """Record and print what is trained on what, and warn of text that is lost.

        Args:
            initial_weights: their file -> SHA-256, or None for new ones.

        Returns:
            What must be the same in a resumed run.

        Raises:
            ValueError: there is nothing to predict in the held-out text.
        """
        corpora, plan = self.corpora, phases_in_words(self.phases, run.world_size)
        record_coverage(run, self.tokenizer, corpora, self.held_out)
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
        record_mixture(run, self.text, self.phases, self.train)
        note_single_characters(run, corpora.train, self.tokenizer)
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
    for sources in train.values():
        for instances in sources:
            if (share := used_share(instances)) < ENOUGH:
                run.say(low_share(share, instances))
            if left := instances.without_pairs:
                run.say(
                    f"warning: {len(left):,} shards of the corpus, such as {left[0].path}, are not read: they have no "
                    "two documents, or no document of two sentences. --objective mlm reads them"
                )


def used_share(*sources: PretrainingInstances) -> float:
    """The share of the tokens of all sources that their first epochs show as A or as the B that follows it."""
    tokens = sum(instances.planned_tokens for instances in sources)
    return sum(plan.used_tokens for instances in sources for plan in instances.plans(0)) / tokens


def low_share(share: float, instances: PretrainingInstances) -> str:
    """A warning about a low share: why it is low, and what to do."""
    corpus, settings = instances.corpus, instances.settings
    sentence, document = corpus.num_tokens / corpus.num_sentences, corpus.num_sentences / corpus.num_documents
    lines = "put each sentence on a line of its own, and blank lines between documents only"
    remedies = ["raise --max_seq_length", "use --objective mlm, which uses every token"]
    # The sentences of ordinary prose are found without lines, but not those of a text without ends of sentences.
    remedies.insert(0 if sentence > settings.max_seq_length / 2 or document < 2 else 2, lines)
    return (
        f"warning: an epoch of instances of {settings.max_seq_length} tokens uses only {share:.1%} of the text, "
        f"because pairs of long sentences are cut and single sentences have no pair (a sentence has {sentence:.0f} "
        f"tokens on average, a document {document:.1f} sentences). What helps: {'; or '.join(remedies)}"
    )
