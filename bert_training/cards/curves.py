"""Draw the curves of a run, from `metrics.jsonl` to `training_curves.png`.

    bert-repro curves RUN_FOLDER...

On the left is the loss (faint: the records; strong: their running mean; dots: held-out text), on the right are the
held-out scores. Beside them are the losses of each of several held-out files (if that of a general text rises, the
model forgets). The grey line is the unigram entropy of the training text: the loss of a model that knows only how often
each piece occurs. A masked language model has learnt from context if its held-out loss is below this line.
"""

import argparse
import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_training.cards.metrics import METRICS, held_out_files, percent_factor
from bert_training.files.atomic import whole_file
from bert_training.inputs.reading import read_events
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
DOTS: Any = {"linewidth": 1.8, "marker": "o", "markersize": 4, "clip_on": False}
TITLE: Any = {"x": 0.01, "ha": "left", "fontsize": 13, "fontweight": "bold"}

CURVES = "training_curves.png"
MARGIN = 0.25  # a loss that is less than this many nats below a line shows that little has been learnt

Curve = tuple[list[int], list[float]]  # steps, values


# --- what metrics.jsonl says ----------------------------------------------------------------------------------------


def curve_of(events: list[dict], kind: str, key: str, factor: float = 1) -> Curve:
    """(steps, values) of one key in the events of a kind, such as "eval". If a step is repeated, the last counts."""
    values = {event["step"]: event[key] for event in events if event["event"] == kind and event.get(key) is not None}
    return sorted(values), [factor * values[step] for step in sorted(values)]


def training_losses(events: list[dict]) -> Curve:
    """The steps of metrics.jsonl, and the losses of the masked or left-to-right LM at each of them."""
    return curve_of(events, "train", "mlm_loss" if any("mlm_loss" in event for event in events) else "loss")


def unigram_entropy(events: list[dict]) -> float | None:
    """That of the training text of a pre-training, in nats; None for other runs."""
    return next((event["unigram_entropy"] for event in events if event.get("unigram_entropy")), None)


def counted_start(flags: Mapping[str, Any], events: list[dict]) -> float | None:
    """The loss at the first step of a run with counted initial weights; None for other runs, or if it is unknown."""
    steps, losses = training_losses(events)
    return losses[0] if flags.get("initial_weights") == "counted" and steps[:1] == [1] else None


def panels_of(events: list[dict]) -> dict[str, dict[str, Curve]]:
    """The panels beside that of the loss, if they have curves: title -> the name of each curve -> the curve."""
    keys = list(dict.fromkeys(key for event in events for key in event))
    factor = percent_factor(keys)
    scores = {
        metric.curve_name: curve_of(events, "eval", key, factor) for key, metric in METRICS.items() if metric.curve_name
    }
    files = {name: curve_of(events, "eval", f"eval_{name}_mlm_loss") for name in held_out_files(keys)}
    titled = {"Held-out scores, per cent": scores, "Loss of each held-out file, nats": files}
    drawn = {title: {name: curve for name, curve in curves.items() if curve[0]} for title, curves in titled.items()}
    return {title: curves for title, curves in drawn.items() if curves}


def running_mean(values: list[float], width: int) -> list[float]:
    """For every value the mean of it and the values before it, `width` values or, at the beginning, fewer."""
    windows = (values[max(0, end - width) : end] for end in range(1, len(values) + 1))
    return [sum(window) / len(window) for window in windows]


# --- the picture ------------------------------------------------------------------------------------------------------


def draw_curves(folder: str | Path) -> Path | None:
    """Draw `training_curves.png` into the folder of a run; return its path.

    If matplotlib is not installed, as in many container images for GPUs, it prints a line and returns None.

    Raises:
        UserError: metrics.jsonl is missing or damaged, or contains neither losses nor scores.
    """
    folder = Path(folder)
    events = read_events(folder / "metrics.jsonl")
    entropy, panels = unigram_entropy(events), panels_of(events)
    masked = entropy or any({"mlm_loss", "eval_mlm_loss"} & event.keys() for event in events)
    train = training_losses(events)
    held_out = curve_of(events, "eval", "eval_mlm_loss" if masked else "eval_loss")
    if not (train[0] or held_out[0] or panels):
        raise UserError(f"{folder / 'metrics.jsonl'} holds no losses and no scores: nothing to draw")
    if importlib.util.find_spec("matplotlib") is None:
        print("the curves are not drawn because matplotlib is missing: pip install matplotlib")
        return None
    title = "Masked-piece loss, nats per prediction" if masked else "Loss, nats per example"
    if any("eval_pearson" in event for event in events):  # a regression
        title = "Loss, mean squared error"
    figure, axes = new_figure(folder.resolve().name, 1 + len(panels))
    draw_losses(axes[0], train, held_out, entropy, title)
    for axis, (title, curves) in zip(axes[1:], panels.items(), strict=True):
        draw_panel(axis, curves, title)
    save_figure(figure, folder / CURVES)
    return folder / CURVES


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as a .png file, whole or not at all. It has the same bytes if it is drawn again."""
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=DPI, format="png", metadata={"Software": None})


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
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#BBBBBB")


def label_ends(axis: "Axes", ends: Sequence[tuple[int, float, str, str]]) -> None:
    """Label the last point of each curve, given as (step, height, text, colour), at the right edge without overlap."""
    low, high = axis.get_ylim()
    last = max(step for step, *_ in ends)
    axis.set_xlim(0, max(last, 1))  # an evaluation without training is at step 0
    gap, below = (high - low) * 0.062, float("-inf")
    place: Any = {"xytext": (7, 0), "textcoords": "offset points", "annotation_clip": False, "va": "center"}
    for _, height, text, colour in sorted(ends, key=lambda end: end[1]):
        below = max(height, below + gap)
        axis.annotate(text, (last, below), color=colour, fontsize=10, parse_math=False, **place)


def draw_losses(axis: "Axes", train: Curve, held_out: Curve, entropy: float | None, title: str) -> None:
    """Draw the training loss with its running mean, the held-out loss, and a line at the unigram entropy in nats."""
    ends = []
    (train_steps, train_losses), (held_out_steps, held_out_losses) = train, held_out
    if train_steps:
        smooth = running_mean(train_losses, max(1, len(train_steps) // 25))
        axis.plot(train_steps, train_losses, color=BLUE, alpha=0.28, linewidth=1)
        axis.plot(train_steps, smooth, color=BLUE, linewidth=2, marker="o" if len(smooth) == 1 else "")
        ends.append((train_steps[-1], smooth[-1], f"training {smooth[-1]:.2f}", BLUE))
    if held_out_steps:
        axis.plot(held_out_steps, held_out_losses, color=VERMILION, **DOTS)
        ends.append((held_out_steps[-1], held_out_losses[-1], f"held out {held_out_losses[-1]:.2f}", VERMILION))
    if entropy:
        axis.axhline(entropy, color=GREY, linewidth=1.2, linestyle=(0, (5, 3)))
        ends.append((max((step for step, *_ in ends), default=0), entropy, f"unigram entropy {entropy:.2f}", GREY))
    style_axis(axis, title)
    if ends:
        label_ends(axis, ends)


def draw_panel(axis: "Axes", curves: Mapping[str, Curve], title: str) -> None:
    """Draw a curve for each name, with the last value behind it."""
    ends = []
    colours = itertools.cycle((GREEN, PURPLE, BLUE, VERMILION, ORANGE, SKY))
    for (name, (steps, values)), colour in zip(curves.items(), colours):
        axis.plot(steps, values, color=colour, **DOTS)
        ends.append((steps[-1], values[-1], f"{name[:24]} {values[-1]:.4g}", colour))
    style_axis(axis, title)
    label_ends(axis, ends)


def main(argv: list[str] | None = None) -> None:
    """Draw `training_curves.png` into each run folder that is named."""
    parser = argparse.ArgumentParser(prog="bert-repro curves", description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN_FOLDER")
    for folder in parser.parse_args(argv).runs:
        if path := draw_curves(folder):
            print(path)
