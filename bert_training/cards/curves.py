"""Draw the curves of a run, from `metrics.jsonl` to `training_curves.png`.

    bert-repro curves RUN_FOLDER...

On the left is the loss (faint: the records; strong: their running mean; dots: held-out text), on the right are the
held-out scores. Beside them are the nats a word of the held-out text or, of several held-out files, of each (if that of
a general text rises, the model forgets), and the scores of probes, if there are any. The grey line is the unigram
entropy of the training text: the loss of a model that knows only how often each piece occurs. A masked language model
has learnt from context if its held-out loss is below this line.
"""

import argparse
import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_training.cards.metrics import METRICS, held_out_files, percent_factor
from bert_training.cards.reference_curves import comparable
from bert_training.files.atomic import whole_file
from bert_training.inputs.records import read_events
from bert_training.record import RUN, Record
from tokenization.errors import UserError

if TYPE_CHECKING:  # a run does without matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, whose colours colour-blind readers can distinguish.
BLUE, VERMILION, GREEN, PURPLE, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"
SKY = "#56B4E9"
GREY, LIGHT_GREY = "#6E6E6E", "#B5B5B5"
INK = "#333333"
# A page shows a picture of this width and resolution at about two thirds of its size: there 10 points can be read.
WIDTH, DPI = 9.0, 150
TITLE = {"x": 0.01, "ha": "left", "fontsize": 13, "fontweight": "bold"}

CURVES = "training_curves.png"
MARGIN = 0.25  # a loss that is less than this many nats below a line shows that little has been learnt

Curve = tuple[list[int], list[float]]  # steps, values


def curve_of(events: list[dict], kind: str, key: str) -> Curve:
    """(steps, values) of one key in the events of a kind, "train" or "eval". If a step is repeated, the last counts."""
    values = {event["step"]: event[key] for event in events if event["event"] == kind and event.get(key) is not None}
    return sorted(values), [values[step] for step in sorted(values)]


def training_losses(events: list[dict]) -> Curve:
    """The steps of metrics.jsonl, and the losses of the masked or left-to-right LM at each of them."""
    return curve_of(events, "train", "mlm_loss" if any("mlm_loss" in event for event in events) else "loss")


def counted_start(flags: Mapping[str, Any], events: list[dict]) -> float | None:
    """The loss at the first step of a run with counted initial weights; None for other runs, or if it is unknown."""
    steps, losses = training_losses(events)
    return losses[0] if flags.get("initial_weights") == "counted" and steps[:1] == [1] else None


def scores(events: list[dict]) -> dict[str, Curve]:
    """Held-out scores in per cent, by label; those without a name for curves in METRICS are left out."""
    factor = percent_factor({key for event in events for key in event})
    by_label = {}
    for key, metric in METRICS.items():
        steps, values = curve_of(events, "eval", key) if metric.curve_name else ([], [])
        if steps:
            by_label[metric.curve_name] = (steps, [factor * value for value in values])
    return by_label


def word_curves(events: list[dict]) -> dict[str, Curve]:
    """The nats a word of the held-out text, or of each of several held-out files, by label.

    Where the words of files are not asked for, as under ``ltr``, the losses of the files.
    """
    names = held_out_files({key for event in events if event["event"] == "eval" for key in event})
    if not names:
        curve = curve_of(events, "eval", "eval_nats_per_word")
        return {"held out": curve} if curve[0] else {}
    ends = ("nats_per_word", "mlm_loss")
    curves = {name: [curve_of(events, "eval", f"eval_{name}_{end}") for end in ends] for name in names}
    return {name: next(curve for curve in found if curve[0]) for name, found in curves.items()}


def running_mean(values: list[float], width: int) -> list[float]:
    """For every value the mean of it and the values before it, `width` values or, at the beginning, fewer."""
    means, total = [], 0.0
    for position, value in enumerate(values):
        total += value - (values[position - width] if position >= width else 0.0)
        means.append(total / min(position + 1, width))
    return means


def draw_curves(folder: str | Path) -> Path | None:
    """Draw `training_curves.png` into the folder of a run; return its path.

    If matplotlib is not installed, as in many container images for GPUs, it prints a line and returns None.

    Raises:
        ValueError: metrics.jsonl is missing or damaged, or contains neither losses nor scores.
    """
    folder = Path(folder)
    events = read_events(folder / "metrics.jsonl")
    by_label = scores(events)
    entropy = next((event["unigram_entropy"] for event in events if event.get("unigram_entropy")), None)
    part = "mlm_" if entropy or any({"mlm_loss", "eval_mlm_loss"} & event.keys() for event in events) else ""
    train = training_losses(events) if part else curve_of(events, "train", "loss")
    held_out = curve_of(events, "eval", f"eval_{part}loss")
    if not (train[0] or held_out[0] or by_label):
        raise UserError(f"{folder / 'metrics.jsonl'} holds no losses and no scores: nothing to draw")
    if importlib.util.find_spec("matplotlib") is None:
        print("the curves are not drawn because matplotlib is missing: pip install matplotlib")
        return None
    words = word_curves(events)
    figure, axes = new_figure(folder.resolve().name, panels=1 + bool(by_label) + bool(words))
    title = "Masked-piece loss, nats per prediction" if part else "Loss, nats per example"
    if "Pearson" in by_label:  # a regression
        title = "Loss, mean squared error"
    reference = comparable(Record.read(folder).facts, entropy) if (folder / RUN).is_file() else None
    draw_losses(axes[0], train, held_out, entropy if part else None, title, reference)
    if by_label:
        draw_scores(axes[1], by_label)
    if words:
        draw_curves_of(axes[1 + bool(by_label)], words, "Held-out text, nats a word")
    save_figure(figure, folder / CURVES)
    return folder / CURVES


def save_figure(figure: "Figure", path: Path, dpi: int = DPI) -> None:
    """Write a figure as a .png file, whole or not at all. It has the same bytes if it is drawn again."""
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=dpi, format="png", metadata={"Software": None})


def new_figure(title: str, panels: int) -> tuple["Figure", list["Axes"]]:
    """A figure with a title and its axes, side by side, without pyplot's global state."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    figure = Figure(figsize=(WIDTH * (panels + 0.2) / 2.2, 3.9), layout=layout)
    figure.suptitle(title, **TITLE)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def style_axis(axis: "Axes", title: str, below: str | None = None) -> None:
    """Give an axis the look of all pictures of this project; ``below`` is the label of the horizontal axis."""
    axis.set_title(title, loc="left", fontsize=11, color=INK, pad=9)
    axis.set_xlabel("optimiser steps" if below is None else below, color=GREY)
    if below is None:
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.locator_params(axis="x", integer=True, nbins=5)
    axis.tick_params(colors=GREY, length=3)
    axis.grid(axis="y", color="#E4E4E4", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color("#BBBBBB")


def label_ends(axis: "Axes", ends: Sequence[tuple[int, float, str, str]]) -> None:
    """Label the last point of each curve, given as (step, height, text, colour), at the right edge without overlap."""
    low, high = axis.get_ylim()
    last = max(step for step, *_ in ends)
    axis.set_xlim(0, max(last, 1))  # an evaluation without training is at step 0
    gap = (high - low) * 0.062
    below = float("-inf")
    by_height = sorted(((height, text, colour) for _, height, text, colour in ends), key=lambda end: end[0])
    for height, text, colour in by_height:
        below = max(height, below + gap)
        axis.annotate(
            text,
            (last, below),
            xytext=(7, 0),
            textcoords="offset points",
            annotation_clip=False,
            va="center",
            color=colour,
            fontsize=10,
        )


def draw_losses(
    axis: "Axes",
    train: Curve,
    held_out: Curve,
    entropy: float | None,
    title: str,
    reference: tuple[str, dict] | None = None,
) -> None:
    """Draw the training loss with its running mean, the held-out loss, and lines to compare them with.

    Args:
        entropy: the unigram entropy of the training text in nats, drawn as a horizontal line; None for no line.
        reference: name and training curve of a reference (``comparable``), drawn up to the last step of this run.
    """
    ends = []
    (train_steps, train_losses), (held_out_steps, held_out_losses) = train, held_out
    if reference and train_steps:
        name, curve = reference
        steps = [step for step in curve["steps"] if step <= train_steps[-1]]
        losses = curve["mlm_loss"][: len(steps)]
        if len(steps) > 1:
            axis.plot(steps, losses, color=GREY, alpha=0.45, linewidth=1.2)
            ends.append((steps[-1], losses[-1], f"reference {name}", GREY))
    if train_steps:
        width = max(1, len(train_steps) // 25)
        smooth = running_mean(train_losses, width)
        axis.plot(train_steps, train_losses, color=BLUE, alpha=0.28, linewidth=1)
        axis.plot(train_steps, smooth, color=BLUE, linewidth=2, marker="o" if len(smooth) == 1 else "")
        ends.append((train_steps[-1], smooth[-1], f"training {smooth[-1]:.2f}", BLUE))
    if held_out_steps:
        axis.plot(
            held_out_steps, held_out_losses, color=VERMILION, linewidth=1.6, marker="o", markersize=4, clip_on=False
        )
        ends.append((held_out_steps[-1], held_out_losses[-1], f"held out {held_out_losses[-1]:.2f}", VERMILION))
    if entropy:
        axis.axhline(entropy, color=GREY, linewidth=1.2, linestyle=(0, (5, 3)))
        ends.append((max(step for step, *_ in ends), entropy, f"unigram entropy {entropy:.2f}", GREY))
    style_axis(axis, title)
    if ends:
        label_ends(axis, ends)


def draw_scores(axis: "Axes", by_label: dict[str, Curve]) -> None:
    """Draw held-out scores in per cent, by label as `scores` returns them."""
    ends = []
    for (label, (steps, values)), colour in zip(
        by_label.items(), (GREEN, PURPLE, BLUE, VERMILION, ORANGE), strict=False
    ):
        axis.plot(steps, values, color=colour, linewidth=1.8, marker="o", markersize=4, clip_on=False)
        ends.append((steps[-1], values[-1], f"{label} {values[-1]:.1f}", colour))
    if "next sentence" in by_label:
        axis.axhline(50, color=GREY, linewidth=1, linestyle=(0, (1, 2)))
        ends.append((max(step for step, *_ in ends), 50, "next sentence by chance", GREY))
    everything = [value for _, values in by_label.values() for value in values]
    if min(everything) >= 0:
        axis.set_ylim(0, 100 if max(everything) > 60 or "next sentence" in by_label else None)
    style_axis(axis, "Held-out scores, per cent")
    label_ends(axis, ends)


def draw_curves_of(axis: "Axes", by_label: dict[str, Curve], title: str) -> None:
    """Draw a curve for each label, with the last value behind it."""
    ends = []
    for (label, (steps, values)), colour in zip(
        by_label.items(), itertools.cycle((VERMILION, BLUE, GREEN, PURPLE, ORANGE, SKY))
    ):
        axis.plot(steps, values, color=colour, linewidth=1.8, marker="o", markersize=4, clip_on=False)
        shown = label if len(label) <= 24 else f"{label[:23]}\N{HORIZONTAL ELLIPSIS}"
        ends.append((steps[-1], values[-1], f"{shown} {values[-1]:.2f}", colour))
    style_axis(axis, title)
    label_ends(axis, ends)


def main(argv: list[str] | None = None) -> None:
    """Draw `training_curves.png` into each run folder that is named."""
    parser = argparse.ArgumentParser(prog="bert-repro curves", description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN_FOLDER")
    for folder in parser.parse_args(argv).runs:
        if path := draw_curves(folder):
            print(path)
