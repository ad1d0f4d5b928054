"""Inspect a pre-training run: its data, or the instances of a step as the network saw them.

    bert-repro inspect DIR
    bert-repro inspect DIR --step N

DIR is an output folder of run_pretraining.py. The flags, phases and processes are read from its run.json, the token ids
from DIR/corpus. Without --step, the command measures the data of each length of instances, with a verdict on each line.
With a mixture, the shares of the sources that were asked for are compared with those that the steps see, and each
instance is shown with its file.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from bert_training.engine.batches import IGNORED
from bert_training.inputs.flags.objectives import PairTask
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.phases import is_mixed, phase_at, phases_of, with_steps
from bert_training.inputs.flags.scripts import SCRIPTS
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.pretraining.corpus import Corpus, Shard, unigram_entropy
from bert_training.pretraining.data import MixedInstances, phase_streams, training_instances, used_share
from bert_training.pretraining.instances import PretrainingInstances
from bert_training.pretraining.masking import continuation_pieces
from bert_training.pretraining.segments import EpochPlan
from bert_training.pretraining.text import open_training_corpora
from bert_training.record import RUN, Record
from tokenization.errors import UserError

OTHER_VOCABULARY = "take a tokenizer of this language, or learn a larger vocabulary"
MIX = ("[MASK]", "random", "unchanged")  # what became of the predicted tokens
_STEPS = 1000  # of a phase, whose instances are counted by source
_SAMPLE = 200_000  # the largest number of documents, sentences or instances that is inspected
Column = tuple[str, str, str]  # a token, its type id, its label
WIDTH = 100  # of a drawn instance
INSTANCE_ROWS = ("input_ids", "token_type_ids", "labels")  # the lines of a drawn instance


@dataclass(frozen=True)
class Measurement:
    """What was measured: its name, the measurement in words, and whether the measurement is good."""

    name: str
    text: str
    good: bool


# --- Auditing -----------------------------------------------------------------------------------------------


def audit(instances: PretrainingInstances, tokenizer: PreTrainedTokenizerBase) -> tuple[list[Measurement], np.ndarray]:
    """(measurements, lengths of the instances) for the first epoch of `instances`, of its first shard."""
    corpus, plan, settings = instances.corpus, instances.plan(0), instances.settings
    specials = np.where(plan.b_length > 0, 3, 2)  # [CLS], [SEP] and, in a pair, a second [SEP]
    lengths = plan.a_length + plan.b_length + specials
    fill = float(lengths.mean() / settings.max_seq_length)
    coverage = used_share(instances)
    measurements = [
        *_corpus_measurements(corpus, continuation_pieces(tokenizer)),
        _unknown(int(corpus.unigrams[tokenizer.unk_token_id]) / corpus.num_tokens),
        Measurement(
            "text used",
            f"{coverage:.1%} of the tokens occur in an epoch as A or as the B that follows it; fine above 80 %",
            coverage > 0.8,
        ),
        Measurement(
            "fill",
            f"{fill:.1%} of {settings.max_seq_length} positions hold tokens, not padding; fine above 70 %"
            + ("; this and the lines below are of the first shard" if len(corpus.shards) > 1 else ""),
            fill > 0.7,
        ),
    ]
    if settings.pairs:
        measurements += _pair_measurements(instances.groups[0][0], plan, settings.pairs)
    if instances.rule is not None:
        measurements += _mask_measurements(instances)
    return measurements, lengths


def _unknown(share: float) -> Measurement:
    """What the vocabulary lacks of the text."""
    good = share < 0.01
    remedy = "" if good else f"; {OTHER_VOCABULARY}"
    return Measurement("unknown", f"[UNK] is {share:.1%} of the tokens; fine below 1 %{remedy}", good)


def _corpus_measurements(corpus: Corpus, continuation: np.ndarray) -> list[Measurement]:
    """Measurements of the text.

    Args:
        continuation: (V,), True for the pieces that continue a word.
    """
    tokens = corpus.num_tokens
    pieces_per_word = tokens / max(1, int(corpus.unigrams[~continuation].sum()))
    shard = corpus.shards[0]
    documents = repeated_share(shard.tokens, shard.sentences[shard.documents], 1)
    sentences = repeated_share(shard.tokens, shard.sentences, 8)
    empty = sum(sum(facts["empty"].values()) for facts in corpus.facts)
    size = f"{corpus.num_documents:,} documents, {corpus.num_sentences:,} sentences, {tokens:,} tokens"
    entropy = unigram_entropy([corpus], [1.0])
    return [
        Measurement("corpus", f"{size}; {empty:,} empty ones left out", corpus.num_documents > 1),
        Measurement("unigram entropy", f"{entropy:.3f} nats: the loss of guessing by frequency alone", True),
        Measurement(
            "repeated documents",
            f"{documents:.2%} are copies of an earlier one; fine below 1 %"
            + ("" if documents < 0.01 else "; leave them out of the text, with datatrove for example"),
            documents < 0.01,
        ),
        Measurement(
            "repeated sentences",
            f"{sentences:.2%} of those with 8 tokens or more are copies; fine below 5 %",
            sentences < 0.05,
        ),
        Measurement(
            "pieces per word",
            f"{pieces_per_word:.3f} (punctuation marks are words); fine below 1.6",
            pieces_per_word < 1.6,
        ),
    ]


def repeated_share(tokens: np.ndarray, offsets: np.ndarray, shortest: int) -> float:
    """The share of spans that equal an earlier one, among the first `_SAMPLE` spans.

    Args:
        offsets: span i consists of the tokens offsets[i] to offsets[i + 1] - 1.
        shortest: spans of fewer tokens are ignored.
    """
    seen, count = set(), 0
    for start, stop in zip(offsets[:_SAMPLE].tolist(), offsets[1 : _SAMPLE + 1].tolist()):
        if stop - start >= shortest:
            count += 1
            seen.add(hashlib.blake2b(tokens[start:stop].tobytes(), digest_size=8).digest())
    return 1 - len(seen) / count if count else 0.0


def _pair_measurements(shard: Shard, plan: EpochPlan, pairs: PairTask) -> list[Measurement]:
    """Measurements of the pairs and their labels."""
    first_class = float((plan.label == 0).mean())
    allowed = 0.01 + 1.5 / len(plan) ** 0.5  # 1 % and three standard deviations
    first_tokens = shard.sentences[shard.documents]
    a_document, b_document = (np.searchsorted(first_tokens, s, side="right") for s in (plan.a_start, plan.b_start))
    leak = _predictable_share(plan)
    measurements = [
        Measurement(
            "label balance",
            f"{first_class:.2%} of {len(plan):,} pairs are {pairs.classes[0]}; it should be half",
            abs(first_class - 0.5) < allowed,
        ),
        Measurement(
            "label from lengths",
            f"the lengths alone predict {leak:.1%} of the labels; 50 % is chance, fine below 65 %",
            leak < 0.65,
        ),
    ]
    if not pairs.random_second:
        wrong = int((a_document != b_document).sum())
        return [
            *measurements,
            Measurement("documents", f"{wrong:,} pairs of two documents; there must be none", not wrong),
        ]
    wrong, chunks = int(((plan.label == 1) & (a_document == b_document)).sum()), len(plan) + plan.left_out
    return [
        *measurements,
        Measurement(
            "negatives", f"{wrong:,} {pairs.classes[1]} pairs from one document; there must be none", not wrong
        ),
        Measurement(
            "left out",
            f"{plan.left_out / chunks:.2%} of the chunks are left out of an epoch; fine below 5 %",
            plan.left_out < 0.05 * chunks,
        ),
    ]


def _predictable_share(plan: EpochPlan) -> float:
    """The share of the labels that the lengths alone predict; the labels should depend on the text.

    Pairs are grouped by the classes of both lengths, and the more frequent label of each group is the prediction.
    """
    edges = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    group = np.digitize(plan.a_length, edges) * 16 + np.digitize(plan.b_length, edges)
    counts = np.bincount(group * 2 + plan.label, minlength=512).reshape(-1, 2)  # (groups, labels)
    return float(counts.max(axis=1).sum() / len(plan))


@dataclass
class MaskCounts:
    """Counts over the masked instances of a sample.

    Attributes:
        mix: predicted tokens that were replaced by [MASK], replaced by a random token, left unchanged.
        maskable: tokens that may be predicted.
        due: tokens that should be predicted by the rule.
        specials: special tokens that are predicted by mistake.
    """

    mix: np.ndarray
    maskable: int = 0
    due: int = 0
    specials: int = 0


def _count_masks(instances: PretrainingInstances) -> MaskCounts:
    rule = instances.rule
    assert rule is not None  # the objective masks
    counts = MaskCounts(np.zeros(3))
    sample = min(instances.epoch_size(0), _SAMPLE // instances.settings.max_seq_length * 16)
    for start in range(0, sample, 512):
        batch = instances.batch(start, min(start + 512, sample))
        ids, labels = batch["input_ids"].numpy(), batch["labels"].numpy()
        predicted = labels != IGNORED
        original = np.where(predicted, labels, ids)
        masked = predicted & (ids == rule.mask_token_id)
        unchanged = predicted & (ids == labels)
        counts.mix += masked.sum(), (predicted & ~masked & ~unchanged).sum(), unchanged.sum()
        maskable = rule.maskable[original].sum(1)
        counts.maskable += int(maskable.sum())
        counts.due += int(rule.num_predictions(maskable).sum())
        counts.specials += int((~rule.maskable[original[predicted]]).sum())
    return counts


def _mask_measurements(instances: PretrainingInstances) -> list[Measurement]:
    """Measurements of the shares of ([MASK], random, unchanged), beside the wanted ones."""
    rule, counts = instances.rule, _count_masks(instances)
    assert rule is not None  # the objective masks
    predicted = counts.mix.sum()
    mix = counts.mix / predicted
    # One in len(rule.replacements) random tokens equals the original one, which then counts as unchanged.
    replaced = rule.random_replace_prob * (1 - 1 / len(rule.replacements))
    wanted = np.array([rule.mask_replace_prob, replaced, 1 - rule.mask_replace_prob - replaced])
    largest_difference = float(np.abs(mix - wanted).max())
    # With whole words, the number of the rule cannot always be reached exactly.
    good_rate = predicted == counts.due or (rule.whole_word_mask and 0.9 * counts.due < predicted < counts.due)
    shares = [f"{share:.2%} {name} ({asked:.1%})" for share, name, asked in zip(mix, MIX, wanted, strict=True)]
    return [
        Measurement(
            "mask rate",
            f"{predicted / counts.maskable:.2%} of the tokens that can be masked are predicted; the rule gives "
            f"{counts.due / counts.maskable:.2%}",
            bool(good_rate),
        ),
        Measurement(
            "mask mix",
            f"{', '.join(shares)}; the flags' shares are in brackets",
            largest_difference < 0.005 + 2 / predicted**0.5,
        ),
        Measurement(
            "masked specials",
            f"{counts.specials:,} special tokens are predicted; there must be none",
            counts.specials == 0,
        ),
    ]


# --- The instances of a step -------------------------------------------------------------------------------


def instance_text(tokenizer: PreTrainedTokenizerBase, instance: dict[str, Any], pairs: PairTask | None) -> str:
    """One row of a batch as text of at most ``WIDTH`` characters a line: columns of token, type id and label.

    A label is the token to predict; `.` means that the position is excluded from the loss. Padding is not shown.

    Args:
        instance: the row, by the names of the batch.
        pairs: the task of its two segments; None if it has one.
    """
    length = int(instance["attention_mask"].sum())
    ids, types, labels = (instance[name][:length].tolist() for name in INSTANCE_ROWS)
    targets = ["." if label == IGNORED else str(tokenizer.convert_ids_to_tokens(label)) for label in labels]
    columns = list(zip(tokenizer.convert_ids_to_tokens(ids), map(str, types), targets, strict=True))
    margin = max(map(len, INSTANCE_ROWS)) + 2
    lines = []
    for block in _blocks(columns, WIDTH - margin):
        for number, name in enumerate(INSTANCE_ROWS):
            cells = "".join(column[number].ljust(_width(column)) for column in block)
            lines.append((name.ljust(margin) + cells).rstrip())
        lines.append("")
    if pairs:
        label = int(instance["next_sentence_label"])
        lines[-1] = f"next_sentence_label  {label} ({pairs.classes[label]})"
    return "\n".join(lines).rstrip()


def _blocks(columns: list[Column], width: int) -> list[list[Column]]:
    """The columns, cut into blocks of at most `width` characters; a column that is wider has its own block."""
    blocks: list[list[Column]] = []
    used = 0
    for column in columns:
        if not blocks or used + _width(column) > width:
            blocks.append([])
            used = 0
        blocks[-1].append(column)
        used += _width(column)
    return blocks


def _width(column: Column) -> int:
    """The characters that a column takes, with a space behind it."""
    return max(map(len, column)) + 1


def step_positions(step: int, rank: int | None, world: int, size: int, accumulation: int) -> list[tuple[int, int, int]]:
    """(micro-batch, rank, position) of every instance in an optimiser step.

    Args:
        step: the step, counted from 1 in its phase.
        rank: the process whose instances are listed, counted from 0; None lists those of all processes.
        world: the number of processes.
        size: instances per forward pass and process.
        accumulation: forward passes per optimiser step.
    """
    positions = []
    for micro_batch in range(accumulation):
        for process in range(world) if rank is None else [rank]:
            start = (((step - 1) * accumulation + micro_batch) * world + process) * size
            positions += [(micro_batch, process, position) for position in range(start, start + size)]
    return positions


# --- Command line -------------------------------------------------------------------------------------------


def read_pretraining_facts(folder: Path) -> dict[str, Any]:
    """The content of run.json of the pre-training run in `folder`.

    Raises ValueError if there is none, it is damaged, or it belongs to another kind of run.
    """
    run = Record.read(folder)
    if not (script := SCRIPTS.get(run.script)) or not script.pretrains:
        raise UserError(f"{folder / RUN}: expected the --output_dir of run_pretraining.py, got one of {run.script}")
    return run.facts


def open_run(
    folder: Path, flags: dict[str, Any]
) -> tuple[dict[int, list[PretrainingInstances]], PreTrainedTokenizerBase]:
    """(training instances of each source by length, tokenizer) of the run in `folder`."""
    tokenizer = load_tokenizer(str(folder))
    corpora = open_training_corpora(folder, flags, tokenizer)
    return training_instances(flags, corpora, tokenizer), tokenizer


def mixture_measurements(
    facts: dict[str, Any], train: dict[int, list[PretrainingInstances]]
) -> list[tuple[str, list[Measurement]]]:
    """(title, measurement of each source) for each phase of a run with a mixture: the share asked for and that seen.

    What is seen is counted over the steps of a phase, at most the first 1,000, instance by instance.
    """
    flags, world = facts["flags"], facts["processes"]
    phases = with_steps(phases_of(flags), facts["total_steps"])
    found = []
    for phase, stream in zip(phases, phase_streams(phases, train, world)):
        if not isinstance(stream, MixedInstances):
            continue
        steps, batch = min(phase.stop - phase.start, _STEPS), stream.shares.batch
        sources = range(len(stream.sources))
        of_steps = (stream.places(step * batch, (step + 1) * batch)[0] for step in range(steps))
        counts = np.stack([np.bincount(step, minlength=len(sources)) for step in of_steps])  # (steps, K)
        seen, asked = counts.sum(0), stream.shares.shares * batch  # (K)
        off = np.maximum(np.abs(counts - asked), np.abs(counts.cumsum(0) - np.outer(np.arange(1, steps + 1), asked)))
        tokens = seen * [_mean_length(instances) for instances in stream.sources]
        lines = [
            Measurement(
                Path(flags["train_file"][source]).name,
                f"asked {stream.shares.shares[source]:.2%}, seen {seen[source] / seen.sum():.2%}, "
                f"{counts[:, source].min():,} to {counts[:, source].max():,} a step, and about "
                f"{tokens[source] / tokens.sum():.1%} of the tokens; no step may be a whole instance off",
                bool(off[:, source].max() < 1),
            )
            for source in sources
        ]
        where = f"steps {phase.start + 1:,} to {phase.start + steps:,}"
        found.append((f"mixture of {where}, each {batch:,} instances of {phase.length} tokens", lines))
    return found


def _mean_length(instances: PretrainingInstances) -> float:
    plan = instances.plan(0)
    return float(np.mean(plan.a_length + plan.b_length + np.where(plan.b_length > 0, 3, 2)))


def _print_data(facts: dict[str, Any], folder: Path) -> None:
    flags = facts["flags"]
    train, tokenizer = open_run(folder, flags)
    if is_mixed(flags):
        for title, measurements in mixture_measurements(facts, train):
            print(title)
            _print_lines(measurements)
    for length, sources in train.items():
        for number, instances in enumerate(sources):
            of = f" of {Path(flags['train_file'][number]).name}" if is_mixed(flags) else ""
            print(f"instances of {length} tokens{of}")
            _print_measurements(instances, tokenizer)


def _print_lines(measurements: list[Measurement]) -> None:
    for measurement in measurements:
        print(f"{'ok  ' if measurement.good else 'LOOK'}  {measurement.name:20} {measurement.text}")


def _print_measurements(instances: PretrainingInstances, tokenizer: PreTrainedTokenizerBase) -> None:
    measurements, lengths = audit(instances, tokenizer)
    _print_lines(measurements)
    counts, edges = np.histogram(lengths, bins=8, range=(0, instances.settings.max_seq_length))
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        bar = "#" * round(50 * count / max(counts))
        print(f"      length {low:5.0f} - {high:5.0f}  {count:9,} {bar}".rstrip())


def _print_step(facts: dict[str, Any], folder: Path, at: int, of_rank: int | None, limit: int) -> None:
    flags, world, total = facts["flags"], facts["processes"], facts["total_steps"]
    if not 1 <= at <= total or not 0 <= (of_rank or 0) < world:
        raise UserError(f"the run has optimiser steps 1 to {total}, and {world} processes, counted from 0")
    phases = with_steps(phases_of(flags), total)
    number = phases.index(phase_at(phases, at))
    phase, train, tokenizer = phases[number], *open_run(folder, flags)
    stream = phase_streams(phases, train, world)[number]
    positions = step_positions(at - phase.start, of_rank, world, phase.size, phase.accumulation)
    for micro_batch, rank, position in positions[:limit]:
        instances, own, source = train[phase.length][0], position, ""
        if isinstance(stream, MixedInstances):
            (file,), (own,) = (part.tolist() for part in stream.places(position, position + 1))
            instances, source = stream.sources[file], f" of {Path(flags['train_file'][file]).name}"
        epoch, index = instances.locate(own)
        row = {name: tensor[0] for name, tensor in stream.batch(position, position + 1).items()}
        where = f"position {position:,} of length {phase.length} = epoch {epoch}, instance {index:,}{source}"
        print(f"--- step {at}, rank {rank}, micro-batch {micro_batch}: {where}")
        print(instance_text(tokenizer, row, instances.settings.pairs) + "\n")
    if len(positions) > limit:
        print(f"({len(positions) - limit:,} more; --limit shows them)")


def main(argv: list[str] | None = None) -> None:
    """Print what was asked for; a mistake of the user's ends the command with status 2 and one line on stderr."""
    parser = command_parser("inspect", __doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="an output folder of run_pretraining.py")
    parser.add_argument("--seed", type=int, help="the seed of the masks and pairs (default: that of the run)")
    parser.add_argument("--step", type=int, help="print the instances of this optimiser step, counted from 1")
    parser.add_argument("--rank", type=int, help="of a step, only the instances of this process, counted from 0")
    parser.add_argument("--limit", type=int, default=16, help="the largest number of instances of a step (16)")
    arguments = parser.parse_args(argv)
    folder, facts = arguments.folder, read_pretraining_facts(arguments.folder)
    if arguments.seed is not None:
        facts["flags"]["seed"] = arguments.seed
    if arguments.step is not None:
        _print_step(facts, folder, arguments.step, arguments.rank, arguments.limit)
        return
    _print_data(facts, folder)
