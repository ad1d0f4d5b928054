"""Draw the curves of a run, from `metrics.jsonl` to `training_curves.png`.

    python -m training curves RUN_FOLDER...

On the left is the loss (faint: the records; strong: their running mean; dots: held-out text), on the right are the
held-out scores.
The grey line is the unigram entropy of the training text: the loss of a model that knows how often each piece
occurs and nothing else. A masked language model has learnt about context when its held-out loss is below it.
"""

import argparse
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from training.engine.reference_curves import comparable

if TYPE_CHECKING:  # a run does without matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, whose colours colour-blind readers can distinguish.
BLUE, VERMILION, GREEN, PURPLE, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"
GREY = "#6E6E6E"
DPI = 150

# key of an event -> its name in the picture, in the order of drawing
SCORES = {
    "eval_mlm_accuracy": "masked pieces",
    "eval_nsp_accuracy": "next sentence",
    "eval_accuracy": "accuracy",
    "eval_mnli_m_accuracy": "matched",
    "eval_mnli_mm_accuracy": "mismatched",
    "eval_matthews_correlation": "Matthews",
    "eval_pearson": "Pearson",
    "eval_spearmanr": "Spearman",
    "eval_exact_match": "exact match",
    "eval_f1": "F1",
}
Series = tuple[list[int], list[float]]  # steps, values


def read_events(path: Path) -> list[dict]:
    """The events of a metrics.jsonl in order.

    Raises:
        ValueError: there is none, or a line is no JSON object with an `event`.
    """
    if not path.is_file():
        raise ValueError(f"expected the records of a run at {path}, found none: give the folder of a run")
    events = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                event = json.loads(line.decode())
                event["event"]
            except (ValueError, KeyError, TypeError):
                raise ValueError(
                    f'{path}:{number}: expected one JSON object with an "event", got {line.strip()[:60]!r}; '
                    "delete the line, which an interrupted write has left, to go on"
                ) from None
            events.append(event)
    return events


def series(events: list[dict], kind: str, key: str) -> Series:
    """(steps, values) of one number. Of a step that a resumed run repeated, the last value counts."""
    values = {event["step"]: event[key] for event in events if event["event"] == kind and event.get(key) is not None}
    return sorted(values), [values[step] for step in sorted(values)]


def scores(events: list[dict]) -> dict[str, Series]:
    """Held-out scores by label, in per cent: SQuAD's are recorded so, the others as shares or correlations."""
    percent = any("eval_exact_match" in event for event in events)
    found = {}
    for key, label in SCORES.items():
        steps, values = series(events, "eval", key)
        if steps:
            found[label] = (steps, values if percent else [100 * value for value in values])
    return found


def running_mean(values: list[float], width: int) -> list[float]:
    """The mean over the last `width` values; at the beginning, over those that there are."""
    means, total = [], 0.0
    for position, value in enumerate(values):
        total += value - (values[position - width] if position >= width else 0.0)
        means.append(total / min(position + 1, width))
    return means


def draw_curves(folder: str | Path) -> Path | None:
    """Draw `training_curves.png` into the folder of a run and return its path.

    Returns None, and says so, where matplotlib is not installed (images for GPUs often lack it).

    Raises:
        ValueError: metrics.jsonl is missing, damaged or holds neither losses nor scores.
    """
    folder = Path(folder)
    events = read_events(folder / "metrics.jsonl")
    shown = scores(events)
    part = "mlm_" if series(events, "eval", "eval_mlm_loss")[0] else ""
    train, held_out = series(events, "train", f"{part}loss"), series(events, "eval", f"eval_{part}loss")
    if not (train[0] or held_out[0] or shown):
        raise ValueError(f"{folder / 'metrics.jsonl'} holds no losses and no scores: nothing to draw")
    if importlib.util.find_spec("matplotlib") is None:
        print("no picture of the curves: pip install matplotlib")
        return None
    figure, axes = canvas(folder.resolve().name, panels=1 + bool(shown))
    entropy = next((event["unigram_entropy"] for event in events if event.get("unigram_entropy")), None)
    title = "Masked-piece loss, nats per prediction" if part else "Loss, nats per example"
    if "Pearson" in shown:  # a regression
        title = "Loss, mean squared error"
    facts = folder / "run.json"
    reference = comparable(json.loads(facts.read_text(encoding="utf-8")), entropy) if facts.is_file() else None
    draw_losses(axes[0], train, held_out, entropy if part else None, title, reference)
    if shown:
        draw_scores(axes[1], shown)
    path = folder / "training_curves.png"
    figure.savefig(path, dpi=DPI)
    return path


def canvas(title: str, panels: int) -> tuple["Figure", list["Axes"]]:
    """A figure with a title and its axes, side by side, without pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
    figure = Figure(figsize=(5.6 * panels + 0.4, 4.2), layout=layout)
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def dress(axis: "Axes", title: str, below: str | None = None) -> None:
    """Give an axis the look of all pictures of this project; ``below`` is the label of the horizontal axis."""
    axis.set_title(title, loc="left", fontsize=10.5, color="#333333", pad=9)
    axis.set_xlabel("optimiser steps" if below is None else below, color=GREY)
    if below is None:
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.locator_params(axis="x", integer=True)
    axis.tick_params(colors=GREY, length=3)
    axis.grid(axis="y", color="#E4E4E4", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color("#BBBBBB")


def label_ends(axis: "Axes", ends: Sequence[tuple[int, float, str, str]]) -> None:
    """Label the curves at the right edge, each (step, y, text, colour) at its height; labels do not overlap."""
    low, high = axis.get_ylim()
    last = max(step for step, *_ in ends)
    axis.set_xlim(0, max(last, 1))  # an evaluation without training is at step 0
    gap = (high - low) * 0.062
    below = float("-inf")
    for _, y, text, colour in sorted(ends, key=lambda end: end[1]):
        below = max(y, below + gap)
        axis.annotate(
            text,
            (last, below),
            xytext=(7, 0),
            textcoords="offset points",
            annotation_clip=False,
            va="center",
            color=colour,
            fontsize=9.5,
        )


def draw_losses(
    axis: "Axes",
    train: Series,
    held_out: Series,
    entropy: float | None,
    title: str,
    reference: tuple[str, dict] | None = None,
) -> None:
    ends = []
    if reference and train[0]:  # a run of this project with similar settings, up to the last step of this run
        name, curve = reference[0], reference[1]["train"]
        points = [(step, loss) for step, loss in zip(curve["steps"], curve["mlm_loss"]) if step <= train[0][-1]]
        if len(points) > 1:
            axis.plot(*zip(*points), color=GREY, alpha=0.45, linewidth=1.2)
            ends.append((train[0][-1], points[-1][1], f"reference {name}", GREY))
    if train[0]:
        width = max(1, len(train[0]) // 25)
        smooth = running_mean(train[1], width)
        axis.plot(*train, color=BLUE, alpha=0.28, linewidth=1)
        axis.plot(train[0], smooth, color=BLUE, linewidth=2, marker="o" if len(smooth) == 1 else "")
        ends.append((train[0][-1], smooth[-1], f"training {smooth[-1]:.2f}", BLUE))
    if held_out[0]:
        axis.plot(*held_out, color=VERMILION, linewidth=1.6, marker="o", markersize=4, clip_on=False)
        ends.append((held_out[0][-1], held_out[1][-1], f"held out {held_out[1][-1]:.2f}", VERMILION))
    if entropy:
        axis.axhline(entropy, color=GREY, linewidth=1.2, linestyle=(0, (5, 3)))
        ends.append((max(x for x, *_ in ends), entropy, f"unigram entropy {entropy:.2f}", GREY))
    dress(axis, title)
    if ends:
        label_ends(axis, ends)


def draw_scores(axis: "Axes", shown: dict[str, Series]) -> None:
    ends = []
    for (label, (steps, values)), colour in zip(shown.items(), (GREEN, PURPLE, BLUE, VERMILION, ORANGE), strict=False):
        axis.plot(steps, values, color=colour, linewidth=1.8, marker="o", markersize=4, clip_on=False)
        ends.append((steps[-1], values[-1], f"{label} {values[-1]:.1f}", colour))
    if "next sentence" in shown:
        axis.axhline(50, color=GREY, linewidth=1, linestyle=(0, (1, 2)))
        ends.append((max(x for x, *_ in ends), 50, "next sentence by chance", GREY))
    everything = [value for _, values in shown.values() for value in values]
    if min(everything) >= 0:
        axis.set_ylim(0, 100 if max(everything) > 60 or "next sentence" in shown else None)
    dress(axis, "Held-out scores, per cent")
    label_ends(axis, ends)


def main(argv: list[str] | None = None) -> None:
    """Draw `training_curves.png` into each run folder that is named."""
    parser = argparse.ArgumentParser(prog="python -m training curves", description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN_FOLDER")
    for folder in parser.parse_args(argv).runs:
        print(draw_curves(folder))
