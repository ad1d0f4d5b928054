"""Inspect the training data of a run: `python -m training audit DIR` and `python -m training show DIR --step N`.

DIR is an output folder of run_pretraining.py. Flags, phases and processes are read from its run.json, token ids from
DIR/corpus/train.
"""

import argparse
import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from training.engine.batches import IGNORED
from training.flags.natures import INSTANCE
from training.flags.phases import phase_at, phases_of, scheduled
from training.flags.scripts import flags_with
from training.pretraining.corpus import Corpus
from training.pretraining.instances import PretrainingInstances, instance_settings
from training.pretraining.masking import continuation_pieces
from training.pretraining.segments import IS_NEXT, NOT_NEXT, EpochPlan
from training.records.curves import BLUE, VERMILION, dress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SETTINGS = flags_with(INSTANCE)
_SAMPLE = 200_000  # the largest number of documents, sentences or instances that is inspected


# --- Drawing ------------------------------------------------------------------------------------------------


def draw_instance(tokenizer: PreTrainedTokenizerBase, instance: dict[str, Any], width: int = 110) -> str:
    """One row of a batch as text of at most `width` characters per line: columns of token, type id and label.

    A label is the token to predict; `.` means that the position is excluded from the loss. Padding is not shown.
    """
    length = int(instance["attention_mask"].sum())
    ids, types, labels = (instance[name][:length].tolist() for name in ("input_ids", "token_type_ids", "labels"))
    wanted = ["." if label == IGNORED else str(tokenizer.convert_ids_to_tokens(label)) for label in labels]
    columns = list(zip(tokenizer.convert_ids_to_tokens(ids), map(str, types), wanted))
    heads = ("input_ids", "token_type_ids", "labels")
    margin = max(map(len, heads)) + 2
    row: list[tuple[str, ...]] = []
    lines, used = [], margin
    for column in [*columns, None]:
        size = max(map(len, column)) + 1 if column else 0
        if column is None or (row and used + size > width):
            for place, head in enumerate(heads):
                cells = "".join(cell[place].ljust(max(map(len, cell)) + 1) for cell in row)
                lines.append((head.ljust(margin) + cells).rstrip())
            lines.append("")
            row, used = [], margin
        if column:
            row.append(column)
            used += size
    if "next_sentence_label" in instance:
        label = int(instance["next_sentence_label"])
        lines[-1] = f"next_sentence_label  {label} ({'IsNext' if label == IS_NEXT else 'NotNext'})"
    return "\n".join(lines).rstrip()


def step_positions(step: int, rank: int | None, world: int, size: int, accumulation: int) -> list[tuple[int, int, int]]:
    """(micro-batch, rank, position) of every instance in the optimiser step `step` of a phase, counted from 1.

    If `rank` is None, the instances of all processes are listed.
    """
    found = []
    for micro in range(accumulation):
        for place in range(world) if rank is None else [rank]:
            start = (((step - 1) * accumulation + micro) * world + place) * size
            found += [(micro, place, position) for position in range(start, start + size)]
    return found


# --- Auditing -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One finding: its name, the measurement in words, and whether the measurement is good."""

    name: str
    text: str
    good: bool


def audit(
    instances: PretrainingInstances, tokenizer: PreTrainedTokenizerBase
) -> tuple[list[Line], dict[str, np.ndarray]]:
    """(findings, arrays for `draw_audit`) for the first epoch of `instances`."""
    corpus, plan = instances.corpus, instances.plan(0)
    lengths = plan.a_length + plan.b_length + np.where(plan.b_length > 0, 3, 2)
    lines = [*_corpus_lines(corpus, continuation_pieces(tokenizer), tokenizer.unk_token_id)]
    shown = np.zeros(corpus.num_tokens + 1, np.int32)
    own = plan.label == IS_NEXT
    for start, length in ((plan.a_start, plan.a_length), (plan.b_start[own], plan.b_length[own])):
        np.add.at(shown, start, 1)
        np.add.at(shown, start + length, -1)
    coverage = float((np.cumsum(shown)[:-1] > 0).mean())
    fill = float(lengths.mean() / instances.settings.max_seq_length)
    lines += [
        Line(
            "text used",
            f"{coverage:.1%} of the tokens occur in an epoch as A or as the B that follows it; fine above 80 %",
            coverage > 0.8,
        ),
        Line(
            "fill",
            f"{fill:.1%} of {instances.settings.max_seq_length} positions hold tokens, not padding; fine above 70 %",
            fill > 0.7,
        ),
    ]
    picture = {"lengths": lengths, "unigrams": np.sort(corpus.unigrams)[::-1]}
    if instances.settings.objective == "mlm_nsp":
        lines += _pair_lines(corpus, plan)
        picture["label"] = plan.label
    if instances.settings.objective != "ltr":
        picture["mix"], picture["wanted"], mask_lines = _mask_lines(instances)
        lines += mask_lines
    return lines, picture


def _corpus_lines(corpus: Corpus, continuation: np.ndarray, unknown: int) -> list[Line]:
    counts = corpus.manifest["counts"]
    tokens = corpus.num_tokens
    unknown_share = corpus.unigrams[unknown] / tokens
    pieces = tokens / max(1, int(corpus.unigrams[~continuation].sum()))
    documents = repeated_share(corpus.tokens, corpus.sentences[corpus.documents], 1)
    sentences = repeated_share(corpus.tokens, corpus.sentences, 8)
    empty = counts["empty_sentences"] + counts["empty_documents"]
    size = f"{corpus.num_documents:,} documents, {corpus.num_sentences:,} sentences, {tokens:,} tokens"
    return [
        Line("corpus", f"{size}; {empty:,} empty ones left out", corpus.num_documents > 1),
        Line("unigram entropy", f"{corpus.unigram_entropy():.3f} nats: the loss of guessing by frequency alone", True),
        Line("repeated documents", f"{documents:.2%} are copies of an earlier one; fine below 1 %", documents < 0.01),
        Line(
            "repeated sentences",
            f"{sentences:.2%} of those with 8 tokens or more are copies; fine below 5 %",
            sentences < 0.05,
        ),
        Line("unknown", f"{unknown_share:.3%} of the tokens are [UNK]; fine below 1 %", unknown_share < 0.01),
        Line("pieces per word", f"{pieces:.3f} (punctuation marks are words); fine below 1.6", pieces < 1.6),
    ]


def repeated_share(tokens: np.ndarray, offsets: np.ndarray, shortest: int) -> float:
    """The share of spans that equal an earlier one, among those of at least `shortest` tokens in the first `_SAMPLE`.

    Span i consists of the tokens offsets[i] to offsets[i + 1] - 1.
    """
    seen, count = set(), 0
    for start, stop in zip(offsets[:_SAMPLE].tolist(), offsets[1 : _SAMPLE + 1].tolist()):
        if stop - start >= shortest:
            count += 1
            seen.add(hashlib.blake2b(tokens[start:stop].tobytes(), digest_size=8).digest())
    return 1 - len(seen) / count if count else 0.0


def _pair_lines(corpus: Corpus, plan: EpochPlan) -> list[Line]:
    following = float((plan.label == IS_NEXT).mean())
    starts = corpus.sentences[corpus.documents]
    drawn = plan.label == NOT_NEXT
    a_document, b_document = (np.searchsorted(starts, at[drawn], side="right") for at in (plan.a_start, plan.b_start))
    same = int((a_document == b_document).sum())
    # How well the lengths alone predict the label, which should depend on the text.
    edges = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    cell = np.digitize(plan.a_length, edges) * 16 + np.digitize(plan.b_length, edges)
    table = np.bincount(cell * 2 + plan.label, minlength=512).reshape(-1, 2)
    leak = float(table.max(1).sum() / len(plan))
    total = len(plan) + plan.left_out
    allowed = 0.01 + 1.5 / len(plan) ** 0.5  # 1 % and three standard deviations
    return [
        Line(
            "label balance",
            f"{following:.2%} of {len(plan):,} pairs are IsNext; it should be half",
            abs(following - 0.5) < allowed,
        ),
        Line("negatives", f"{same:,} NotNext pairs from one document; there must be none", same == 0),
        Line(
            "label from lengths",
            f"the lengths alone predict {leak:.1%} of the labels; 50 % is chance, fine below 65 %",
            leak < 0.65,
        ),
        Line(
            "left out",
            f"{plan.left_out / total:.2%} of the chunks are left out of an epoch; fine below 5 %",
            plan.left_out < 0.05 * total,
        ),
    ]


def _mask_lines(instances: PretrainingInstances) -> tuple[np.ndarray, np.ndarray, list[Line]]:
    """The measured and the wanted shares of ([MASK], random, unchanged), and findings about them."""
    rule = instances.rule
    assert rule is not None  # the objective masks
    count = min(instances.epoch_size(0), _SAMPLE // instances.settings.max_seq_length * 16)
    mix, real, due, specials = np.zeros(3), 0, 0, 0
    for start in range(0, count, 512):
        batch = instances.batch(start, min(start + 512, count))
        ids, labels = batch["input_ids"].numpy(), batch["labels"].numpy()
        chosen = labels != IGNORED
        original = np.where(chosen, labels, ids)
        masked = chosen & (ids == rule.mask_token_id)
        kept = chosen & (ids == labels)
        mix += masked.sum(), (chosen & ~masked & ~kept).sum(), kept.sum()
        maskable = rule.maskable[original].sum(1)
        real, due = real + int(maskable.sum()), due + int(rule.count(maskable).sum())
        specials += int((~rule.maskable[original[chosen]]).sum())
    predicted = mix.sum()
    rate, mix = float(predicted / real), mix / predicted
    # One in len(rule.replacements) random tokens equals the original one, which then counts as unchanged.
    replaced = rule.random_replace_prob * (1 - 1 / len(rule.replacements))
    wanted = np.array([rule.mask_replace_prob, replaced, 1 - rule.mask_replace_prob - replaced])
    off = float(np.abs(mix - wanted).max())
    # With whole words, the number of the rule cannot always be reached exactly.
    good_rate = predicted == due or (rule.whole_word_mask and 0.9 * due < predicted < due)
    names = ("[MASK]", "random", "unchanged")
    shares = ", ".join(f"{share:.2%} {name} ({asked:.1%})" for share, name, asked in zip(mix, names, wanted))
    return (
        mix,
        wanted,
        [
            Line(
                "mask rate",
                f"{rate:.2%} of the tokens that can be masked are predicted; the rule gives {due / real:.2%}",
                bool(good_rate),
            ),
            Line("mask mix", f"{shares}; the flags' shares are in brackets", off < 0.005 + 2 / predicted**0.5),
            Line("masked specials", f"{specials:,} special tokens are predicted; there must be none", specials == 0),
        ],
    )


def draw_audit(picture: dict[str, np.ndarray], path: Path) -> None:
    """Draw lengths, labels, mask mix and token frequencies as one PNG. Raises ValueError if matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("the picture needs the package matplotlib: pip install matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(10, 6.4), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12))
    FigureCanvasAgg(figure)
    lengths, frequencies, labels, mix = figure.subplots(2, 2).ravel()
    longest = int(picture["lengths"].max())
    step = -(-longest // 32)
    counts, edges = np.histogram(picture["lengths"], bins=np.arange(0, longest + step, step))
    lengths.bar(edges[:-1] + step / 2, counts / counts.sum(), width=0.9 * step, color=BLUE)
    dress(lengths, "Length of the instances, share", "tokens, with [CLS] and [SEP]")
    seen = picture["unigrams"][picture["unigrams"] > 0]
    frequencies.loglog(np.arange(1, len(seen) + 1), seen, color=BLUE, linewidth=2)
    dress(frequencies, "How often each piece occurs", "pieces, the most frequent first")
    for axis in (labels, mix):
        axis.set_axis_off()  # some objectives have no pairs or no masks
    if "label" in picture:
        shares = np.bincount(picture["label"], minlength=2) / len(picture["label"])
        _draw_shares(labels, ["IsNext", "NotNext"], shares, np.array([0.5, 0.5]))
        dress(labels, "Next-sentence labels (dashed: expected)", "")
    if "mix" in picture:
        _draw_shares(mix, ["[MASK]", "random", "unchanged"], picture["mix"], picture["wanted"])
        dress(mix, "Replacement of the predicted tokens (dashed: expected)", "")
    figure.savefig(path, dpi=110)


def _draw_shares(axis: "Axes", names: list[str], shares: np.ndarray, wanted: np.ndarray) -> None:
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


def read_run(folder: Path) -> dict[str, Any]:
    """The content of run.json of the pre-training run in `folder`.

    Raises ValueError if there is none, it is damaged, or it belongs to another kind of run.
    """
    file = folder / "run.json"
    if not file.is_file():
        raise ValueError(f"{folder}: no run.json; give an --output_dir of run_pretraining.py")
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: damaged ({error}); resume the run, which writes it again") from error
    flags = facts.get("flags") if isinstance(facts, dict) else None
    missing = [name for name in (*SETTINGS, "seed") if name not in (flags if isinstance(flags, dict) else {})]
    if missing:
        raise ValueError(f"{file}: expected a pre-training run, but its flags lack {', '.join(missing)}")
    return facts


def open_run(folder: Path, flags: dict[str, Any], length: int) -> tuple[PretrainingInstances, PreTrainedTokenizerBase]:
    """(training instances of `length` tokens, tokenizer) of the run in `folder`."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    corpus = Corpus.open(folder / "corpus" / "train", tokenizer, verify=False)
    return PretrainingInstances(corpus, tokenizer, instance_settings(flags, length)), tokenizer


def _print_audit(arguments: argparse.Namespace) -> None:
    flags = read_run(arguments.folder)["flags"]
    flags["seed"] = flags["seed"] if arguments.seed is None else arguments.seed
    phases = phases_of(flags)
    for phase in phases:
        print(f"instances of {phase.length} tokens")
        name = "data_audit.png" if len(phases) == 1 else f"data_audit_{phase.length}.png"
        _print_findings(*open_run(arguments.folder, flags, phase.length), arguments.folder / name)


def _print_findings(instances: PretrainingInstances, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    lines, picture = audit(instances, tokenizer)
    for line in lines:
        print(f"{'ok  ' if line.good else 'LOOK'}  {line.name:20} {line.text}")
    counts, edges = np.histogram(picture["lengths"], bins=8, range=(0, instances.settings.max_seq_length))
    for count, low, high in zip(counts, edges[:-1], edges[1:]):
        bar = "#" * round(50 * count / max(counts))
        print(f"      length {low:5.0f} - {high:5.0f}  {count:9,} {bar}".rstrip())
    draw_audit(picture, path)
    print(f"picture: {path}")


def _print_step(arguments: argparse.Namespace) -> None:
    facts = read_run(arguments.folder)
    flags, world, total = facts["flags"], facts["processes"], facts["total_steps"]
    flags["seed"] = flags["seed"] if arguments.seed is None else arguments.seed
    if not 1 <= arguments.step <= total:
        raise ValueError(f"--step is {arguments.step}; the run has optimiser steps 1 to {total}")
    if arguments.rank is not None and not 0 <= arguments.rank < world:
        raise ValueError(f"--rank is {arguments.rank}; the run has {world} processes, counted from 0")
    phase = phase_at(scheduled(phases_of(flags), total), arguments.step)
    instances, tokenizer = open_run(arguments.folder, flags, phase.length)
    step = arguments.step - phase.start
    positions = step_positions(step, arguments.rank, world, phase.size, phase.accumulation)
    for micro, rank, position in positions[: arguments.limit]:
        epoch, index = instances.locate(position)
        row = {name: tensor[0] for name, tensor in instances.batch(position, position + 1).items()}
        where = f"position {position:,} of length {phase.length} = epoch {epoch}, instance {index:,}"
        print(f"--- step {arguments.step}, rank {rank}, micro-batch {micro}: {where}")
        print(draw_instance(tokenizer, row) + "\n")
    if len(positions) > arguments.limit:
        print(f"({len(positions) - arguments.limit:,} more; --limit shows them)")


def main(argv: list[str] | None = None) -> None:
    """The commands audit and show; a mistake of the user's ends them with status 2 and one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m training", allow_abbrev=False, description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, command, help_text in (
        ("audit", _print_audit, "measure the training data, print a verdict for each measurement, and draw a picture"),
        ("show", _print_step, "print the instances of an optimiser step"),
    ):
        sub = commands.add_parser(name, help=help_text, allow_abbrev=False)
        sub.set_defaults(command=command)
        sub.add_argument("folder", type=Path, metavar="DIR")
        sub.add_argument("--seed", type=int, help="default: the seed of the run")
        if name == "show":
            sub.add_argument("--step", type=int, required=True, help="optimiser step, counted from 1")
            sub.add_argument("--rank", type=int, help="only the instances of this process")
            sub.add_argument("--limit", type=int, default=16, help="the largest number of instances to print")
    arguments = parser.parse_args(argv)
    try:
        arguments.command(arguments)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
