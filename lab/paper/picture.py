"""The picture of a table: a point with its interval for every row and task, or the curves of Figure 5."""

import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from bert_training.cards.curves import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LIGHT_GREY,
    ORANGE,
    PURPLE,
    SKY,
    TITLE,
    VERMILION,
    WIDTH,
    save_figure,
    style_axis,
)
from bert_training.tasks.statistics import mean_interval
from lab.paper.plan import Outline, steps_at
from lab.paper.verdicts import Column, Scores

if TYPE_CHECKING:  # a report does without matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY, SKY)
PANELS_ABREAST = 2
ROW_HEIGHT, CURVES_HEIGHT, FRAME_HEIGHT = 0.34, 2.7, 0.9  # in inches: a row of points, a panel of curves, its titles
SEEDS_BELOW = 0.26  # by how much the points of the seeds lie below the interval, in rows


def draw(outline: Outline, scores: Scores, path: Path) -> None:
    """Draw one panel for each task: the means over the seeds with their 95 % intervals, and the score of each seed."""
    columns_of_tasks: dict[str, list[Column]] = {}
    for column in outline.columns:
        if column.compares_rows:
            columns_of_tasks.setdefault(column.task, []).append(column)
    has_curves = any(column.checkpoint for column in outline.columns)
    height = CURVES_HEIGHT if has_curves else ROW_HEIGHT * len(outline.labels)
    figure, axes = _panels(outline, len(columns_of_tasks), FRAME_HEIGHT + height)
    for number, (axis, columns) in enumerate(zip(axes, columns_of_tasks.values(), strict=True)):
        if has_curves:
            _draw_curves(axis, outline, scores, columns)
        else:
            _draw_points(axis, outline, scores, columns[0], labels=number % PANELS_ABREAST == 0)
    save_figure(figure, path)


def _panels(outline: Outline, count: int, height: float) -> tuple["Figure", list["Axes"]]:
    """A figure with its title and ``count`` axes, each ``height`` inches high, without pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    abreast = min(PANELS_ABREAST, count)
    rows = math.ceil(count / abreast)
    figure = Figure(figsize=(WIDTH, 0.5 + rows * height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    FigureCanvasAgg(figure)
    figure.suptitle(
        f"{outline.experiment.published.title} ({len(outline.seeds)} seeds, scale {outline.scale})", **TITLE
    )
    axes = list(figure.subplots(rows, abreast, squeeze=False).flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


def _draw_points(axis: "Axes", outline: Outline, scores: Scores, column: Column, labels: bool) -> None:
    """Draw for every row a large point for the mean, a line for its interval, and below it a point for each seed.

    The grey line goes through the mean of the row from which differences are counted.
    """
    reference = statistics.fmean(scores[outline.experiment.published.reference, column.key])
    axis.axvline(reference, color=LIGHT_GREY, linewidth=1.2)
    for height, (row, colour) in enumerate(zip(outline.labels, COLOURS, strict=False)):
        values = scores[row, column.key]
        interval = mean_interval(values)
        if interval is not None:
            axis.plot(interval, [height, height], color=colour, linewidth=2.4, solid_capstyle="butt")
        axis.plot([statistics.fmean(values)], [height], "o", color=colour, markersize=7)
        axis.plot(values, [height + SEEDS_BELOW] * len(values), "o", color=colour, markersize=3, alpha=0.6)
    style_axis(axis, outline.task_titles[column.task], below="")
    axis.grid(axis="y", visible=False)
    axis.grid(axis="x", color="#E4E4E4", linewidth=0.8)
    axis.set_yticks(range(len(outline.labels)), list(outline.labels.values()) if labels else [""] * len(outline.labels))
    axis.tick_params(axis="y", labelcolor=INK, length=0)
    axis.set_ylim(len(outline.labels) - 0.4, -0.5)


def _draw_curves(axis: "Axes", outline: Outline, scores: Scores, columns: list[Column]) -> None:
    """Draw a curve for every row: the mean at each checkpoint, with its interval as a band."""
    steps = [steps_at(column, outline.steps) for column in columns]
    for (row, label), colour in zip(outline.labels.items(), COLOURS, strict=False):
        values = [scores[row, column.key] for column in columns]
        means = [statistics.fmean(of_checkpoint) for of_checkpoint in values]
        axis.plot(steps, means, color=colour, linewidth=2, marker="o", markersize=5, label=label)
        intervals = [mean_interval(of_checkpoint) or [mean] * 2 for of_checkpoint, mean in zip(values, means)]
        low, high = zip(*intervals, strict=True)
        axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    style_axis(axis, outline.task_titles[columns[0].task], below="steps of pre-training")
    axis.set_xticks(steps, [f"{step:,}" for step in steps])
    axis.legend(frameon=False, fontsize=9, loc="best")
