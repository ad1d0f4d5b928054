"""The picture of a table: a point with its interval for every row and task, or the curves of Figure 5."""

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from training.paper.plan import Plan, steps_at
from training.paper.published import PUBLISHED
from training.paper.verdicts import Column, Scores
from training.records.curves import BLUE, DPI, GREEN, GREY, ORANGE, PURPLE, VERMILION, new_figure, style_axis
from training.tasks.student_t import mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY)


def draw(plan: Plan, scores: Scores, path: Path) -> None:
    """Draw one panel for each task: the mean over the seeds, and Student's 95 % interval of it."""
    columns_of_tasks: dict[str, list[Column]] = {}
    for column in plan.columns:
        columns_of_tasks.setdefault(column.task, []).append(column)
    title = f"{PUBLISHED[plan.table].title}; {len(plan.seeds)} seeds, scale {plan.scale}"
    figure, axes = new_figure(title, len(columns_of_tasks))
    for axis, columns in zip(axes, columns_of_tasks.values(), strict=True):
        if columns[0].checkpoint:
            _draw_curves(axis, plan, scores, columns)
        else:
            _draw_points(axis, plan, scores, columns[0], labels=axis is axes[0])
    figure.savefig(path, dpi=DPI, metadata={"Software": None})  # the same bytes from the same numbers


def _draw_points(axis: "Axes", plan: Plan, scores: Scores, column: Column, labels: bool) -> None:
    """Draw a line for every row: a small point for each seed, a large one for the mean, and its interval."""
    rows = PUBLISHED[plan.table].rows
    for height, row in enumerate(rows):
        colour = COLOURS[height % len(COLOURS)]
        values = scores[row.name, column.key]
        interval = mean_interval(values)
        if interval is not None:
            axis.plot(interval, [height, height], color=colour, linewidth=2.2, solid_capstyle="butt")
        axis.plot(values, [height] * len(values), "o", color=colour, markersize=3, alpha=0.45)
        axis.plot([statistics.fmean(values)], [height], "o", color=colour, markersize=7)
    style_axis(axis, plan.task_titles[column.task], below="")
    axis.set_yticks(range(len(rows)), [row.label if labels else "" for row in rows])
    axis.invert_yaxis()


def _draw_curves(axis: "Axes", plan: Plan, scores: Scores, columns: list[Column]) -> None:
    """Draw a curve for every row: the mean at each checkpoint, with its interval as a band."""
    steps = [steps_at(column, plan.steps) for column in columns]
    for row, colour in zip(PUBLISHED[plan.table].rows, COLOURS, strict=False):
        values = [scores[row.name, column.key] for column in columns]
        means = [statistics.fmean(of_checkpoint) for of_checkpoint in values]
        axis.plot(steps, means, color=colour, linewidth=2, marker="o", markersize=5, label=row.label)
        intervals = [mean_interval(of_checkpoint) or [mean] * 2 for of_checkpoint, mean in zip(values, means)]
        low, high = zip(*intervals, strict=True)
        axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    style_axis(axis, plan.task_titles[columns[0].task], below="steps of pre-training")
    axis.legend(frameon=False, fontsize=9)
