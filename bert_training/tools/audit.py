"""Measure the training data of a run, and say of each measurement whether it is good.

    bert-repro audit DIR

DIR is an output folder of run_pretraining.py. The flags and phases are read from its run.json, the token ids from
DIR/corpus. For each length of instances a picture is written to DIR; with a mixture, for each length and each source,
and the shares of the sources that were asked for are compared with those that the steps see.
"""

import argparse
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from bert_training.cards.curves import BLUE, VERMILION, save_figure, style_axis
from bert_training.engine.batches import IGNORED
from bert_training.inputs.flags.mixtures import is_mixed
from bert_training.inputs.flags.objectives import PairTask
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.phases import phases_of, with_steps
from bert_training.networks.pretrained import load_tokenizer
from bert_training.pretraining.corpora import open_training_corpora
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.coverage import coverage_of_corpus
from bert_training.pretraining.deduplication import BOILERPLATE, in_words
from bert_training.pretraining.instances import PretrainingInstances
from bert_training.pretraining.masking import continuation_pieces
from bert_training.pretraining.measurements import (
    Measurement,
    boilerplate,
    repeated_documents,
    repeated_sentences,
)
from bert_training.pretraining.mixture import MixedInstances, phase_streams
from bert_training.pretraining.phased_batches import training_instances
from bert_training.pretraining.segments import EpochPlan
from bert_training.record import RUN, Record
from tokenization.coverage import Coverage
from tokenization.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OTHER_VOCABULARY = "take a tokenizer of this language, or learn a larger vocabulary"
KEEP_ACCENTS = "learn one with bert-repro vocabulary --strip_accents false, or take a tokenizer that keeps them"
MIX = ("[MASK]", "random", "unchanged")  # what became of the predicted tokens
_STEPS = 1000  # of a phase, whose instances are counted by source
_SAMPLE = 200_000  # the largest number of documents, sentences or instances that is inspected


# --- Auditing -----------------------------------------------------------------------------------------------


def audit(
    instances: PretrainingInstances, tokenizer: PreTrainedTokenizerBase
) -> tuple[list[Measurement], dict[str, np.ndarray]]:
    """(measurements, arrays for `draw_audit`) for the first epoch of `instances`."""
    corpus, plan, settings = instances.corpus, instances.plan(0), instances.settings
    specials = np.where(plan.b_length > 0, 3, 2)  # [CLS], [SEP] and, in a pair, a second [SEP]
    lengths = plan.a_length + plan.b_length + specials
    fill = float(lengths.mean() / settings.max_seq_length)
    coverage = plan.used_tokens / instances.planned_tokens
    measurements = [
        *_corpus_measurements(corpus, continuation_pieces(tokenizer)),
        *_coverage_measurements(coverage_of_corpus(corpus, tokenizer)),
        Measurement(
            "text used",
            f"{coverage:.1%} of the tokens occur in an epoch as A or as the B that follows it; fine above 80 %",
            coverage > 0.8,
        ),
        Measurement(
            "fill",
            f"{fill:.1%} of {settings.max_seq_length} positions hold tokens, not padding; fine above 70 %",
            fill > 0.7,
        ),
    ]
    arrays = {"lengths": lengths, "unigrams": np.sort(corpus.unigrams)[::-1]}
    if settings.pairs:
        measurements += _pair_measurements(corpus, plan, settings.pairs)
        arrays["label"] = plan.label
    if instances.rule is not None:
        arrays["mix"], arrays["wanted"], mask_measurements = _mask_measurements(instances)
        measurements += mask_measurements
    return measurements, arrays


def _coverage_measurements(counts: Coverage) -> list[Measurement]:
    """Measurements of what the tokenizer loses of the text."""
    unknown = f"{counts.summary()}{f', such as {counts.unknown!r}' if counts.unknown else ''}; fine below 1 %"
    if not counts.is_known:
        unknown += f"; {counts.remedies(OTHER_VOCABULARY)}"
    measurements = [
        Measurement("unknown", unknown, max(counts.token_share, counts.character_share) < 0.01),
    ]
    stripped = f"accents or vowel signs are stripped from {counts.stripped()}; fine below 1 %"
    if not counts.keeps_marks:
        stripped += f"; {KEEP_ACCENTS}"
    return [*measurements, Measurement("accents", stripped, counts.keeps_marks)]


def _corpus_measurements(corpus: Corpus, continuation: np.ndarray) -> list[Measurement]:
    """Measurements of the text.

    Args:
        continuation: (V,), True for the pieces that continue a word.
    """
    counts = corpus.manifest["counts"]
    tokens = corpus.num_tokens
    pieces_per_word = tokens / max(1, int(corpus.unigrams[~continuation].sum()))
    documents, sentences = repeated_documents(corpus), repeated_sentences(corpus)
    in_many = boilerplate(corpus, BOILERPLATE)
    left_out = corpus.manifest.get("deduplicated")
    mode = left_out["mode"] if left_out else ""
    empty = counts["empty_sentences"] + counts["empty_documents"]
    size = f"{corpus.num_documents:,} documents, {corpus.num_sentences:,} sentences, {tokens:,} tokens"
    entropy = corpus.unigram_entropy()
    return [
        Measurement("corpus", f"{size}; {empty:,} empty ones left out", corpus.num_documents > 1),
        Measurement("unigram entropy", f"{entropy:.3f} nats: the loss of guessing by frequency alone", True),
        Measurement(
            "repeated documents",
            f"{documents:.2%} are copies of an earlier one; fine below 1 %"
            + _remedy(documents < 0.01 or mode in ("documents", "both"), "documents"),
            documents < 0.01,
        ),
        Measurement(
            "repeated sentences",
            f"{sentences:.2%} of those with 8 tokens or more are copies; fine below 5 %",
            sentences < 0.05,
        ),
        Measurement(
            "boilerplate",
            f"{in_many:.2%} of the sentences are in {BOILERPLATE} documents or more and not the first; fine below 1 %"
            + _remedy(in_many < 0.01 or mode in ("lines", "both"), "lines"),
            in_many < 0.01,
        ),
        *([Measurement("deduplicated", in_words(left_out), True)] if left_out else []),
        Measurement(
            "pieces per word",
            f"{pieces_per_word:.3f} (punctuation marks are words); fine below 1.6",
            pieces_per_word < 1.6,
        ),
    ]


def _remedy(good: bool, mode: str) -> str:
    return "" if good else f"; --deduplicate {mode} leaves them out"


def _pair_measurements(corpus: Corpus, plan: EpochPlan, pairs: PairTask) -> list[Measurement]:
    """Measurements of the pairs and their labels."""
    first_class = float((plan.label == 0).mean())
    allowed = 0.01 + 1.5 / len(plan) ** 0.5  # 1 % and three standard deviations
    first_tokens = corpus.sentences[corpus.documents]
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


def _mask_measurements(instances: PretrainingInstances) -> tuple[np.ndarray, np.ndarray, list[Measurement]]:
    """The measured and the wanted shares of ([MASK], random, unchanged), and measurements about them."""
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
    measurements = [
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
    return mix, wanted, measurements


def draw_audit(arrays: dict[str, np.ndarray], path: Path, pairs: PairTask | None) -> None:
    """Draw lengths, labels, mask mix and token frequencies as one PNG.

    Args:
        arrays: as `audit` returned them.
        pairs: the task of the pairs, whose labels are drawn.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(10, 6.4), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12))
    lengths, frequencies, labels, mix = figure.subplots(2, 2).ravel()
    longest = int(arrays["lengths"].max())
    step = -(-longest // 32)
    counts, edges = np.histogram(arrays["lengths"], bins=np.arange(0, longest + step, step))
    lengths.bar(edges[:-1] + step / 2, counts / counts.sum(), width=0.9 * step, color=BLUE)
    style_axis(lengths, "Length of the instances, share", "tokens, with [CLS] and [SEP]")
    seen = arrays["unigrams"][arrays["unigrams"] > 0]
    frequencies.loglog(np.arange(1, len(seen) + 1), seen, color=BLUE, linewidth=2)
    style_axis(frequencies, "How often each piece occurs", "pieces, the most frequent first")
    for axis in (labels, mix):
        axis.set_axis_off()  # some objectives have no pairs or no masks
    if pairs:
        shares = np.bincount(arrays["label"], minlength=2) / len(arrays["label"])
        _draw_shares(labels, list(pairs.classes), shares, np.array([0.5, 0.5]))
        style_axis(labels, f"{pairs.title.capitalize()} labels (dashed: expected)", "")
    if "mix" in arrays:
        _draw_shares(mix, list(MIX), arrays["mix"], arrays["wanted"])
        style_axis(mix, "Replacement of the predicted tokens (dashed: expected)", "")
    save_figure(figure, path, dpi=110)


def _draw_shares(axis: "Axes", names: list[str], shares: np.ndarray, wanted: np.ndarray) -> None:
    """Draw a bar for each share, from 0 to 1, and a dashed line at the wanted one."""
    places = np.arange(len(names))
    axis.set_axis_on()
    axis.bar(places, shares, width=0.6, color=BLUE)
    axis.hlines(wanted, places - 0.4, places + 0.4, color=VERMILION, linewidth=1.6, linestyle=(0, (4, 2)))
    for place, share in zip(places, shares):
        axis.annotate(
            f"{share:.1%}", (place, share), xytext=(0, 4), textcoords="offset points", ha="center", fontsize=9.5
        )
    axis.set_ylim(0, 1)
    axis.set_xticks(places, names)


# --- Command line -------------------------------------------------------------------------------------------


def read_pretraining_facts(folder: Path) -> dict[str, Any]:
    """The content of run.json of the pre-training run in `folder`.

    Raises ValueError if there is none, it is damaged, or it belongs to another kind of run.
    """
    run = Record.read(folder)
    if run.script != "run_pretraining.py":
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


def _print_audit(arguments: argparse.Namespace) -> None:
    facts = read_pretraining_facts(arguments.folder)
    flags = facts["flags"]
    flags["seed"] = flags["seed"] if arguments.seed is None else arguments.seed
    train, tokenizer = open_run(arguments.folder, flags)
    if is_mixed(flags):
        for title, measurements in mixture_measurements(facts, train):
            print(title)
            _print_lines(measurements)
    for length, sources in train.items():
        for number, instances in enumerate(sources, 1):
            of = f" of {Path(flags['train_file'][number - 1]).name}" if is_mixed(flags) else ""
            print(f"instances of {length} tokens{of}")
            parts = [*([length] if len(train) > 1 else []), *([number] if is_mixed(flags) else [])]
            _print_measurements(
                instances, tokenizer, arguments.folder / f"{'_'.join(map(str, ['data_audit', *parts]))}.png"
            )


def _print_lines(measurements: list[Measurement]) -> None:
    for measurement in measurements:
        print(f"{'ok  ' if measurement.good else 'LOOK'}  {measurement.name:20} {measurement.text}")


def _print_measurements(instances: PretrainingInstances, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    measurements, arrays = audit(instances, tokenizer)
    _print_lines(measurements)
    counts, edges = np.histogram(arrays["lengths"], bins=8, range=(0, instances.settings.max_seq_length))
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        bar = "#" * round(50 * count / max(counts))
        print(f"      length {low:5.0f} - {high:5.0f}  {count:9,} {bar}".rstrip())
    if importlib.util.find_spec("matplotlib") is None:
        print("the picture is not drawn because matplotlib is missing: pip install matplotlib")
        return
    draw_audit(arrays, path, instances.settings.pairs)
    print(f"picture: {path}")


def main(argv: list[str] | None = None) -> None:
    """Print the measurements."""
    parser = command_parser("audit", __doc__)
    add_run_arguments(parser)
    _print_audit(parser.parse_args(argv))


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that audit and show have in common."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="an output folder of run_pretraining.py")
    parser.add_argument("--seed", type=int, help="the seed of the masks and pairs (default: that of the run)")
