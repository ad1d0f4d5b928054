"""The picture of a table: a point with its interval for every row and task, or the curves of Figure 5."""

from pathlib import Path
from typing import Any

from training.paper.plan import Plan
from training.paper.published import PUBLISHED
from training.paper.verdicts import Column, Scores
from training.records.curves import BLUE, DPI, GREEN, GREY, ORANGE, PURPLE, VERMILION, canvas, dress
from training.tasks.student_t import mean_interval

COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY)


def draw(plan: Plan, scores: Scores, path: Path) -> None:
    """Draw one panel for each task: the mean over the seeds, and Student's 95 % interval of it."""
    tasks: dict[str, list[Column]] = {}
    for column in plan.columns:
        tasks.setdefault(column.key.partition("@")[0], []).append(column)
    figure, axes = canvas(f"{PUBLISHED[plan.table].title}; {len(plan.seeds)} seeds, scale {plan.scale}", len(tasks))
    for number, (axis, columns) in enumerate(zip(axes, tasks.values(), strict=True)):
        title = plan.titles[columns[0].key].partition(f", {_steps(plan, columns[0])} steps")[0]
        if columns[0].checkpoint:
            _curves(axis, plan, scores, columns, title)
        else:
            _points(axis, plan, scores, columns[0], title, labels=number == 0)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})  # the same bytes from the same numbers


def _steps(plan: Plan, column: Column) -> str:
    return plan.titles[column.key].rpartition(", ")[2].removesuffix(" steps")


def _points(axis: Any, plan: Plan, scores: Scores, column: Column, title: str, labels: bool) -> None:
    rows = PUBLISHED[plan.table].rows
    for place, (row, colour) in enumerate(zip(rows, COLOURS * 2, strict=False)):
        values = scores[row.name, column.key]
        mean, interval = sum(values) / len(values), mean_interval(values)
        if interval is not None:
            axis.plot(interval, [place, place], color=colour, linewidth=2.2, solid_capstyle="butt")
        axis.plot(values, [place] * len(values), "o", color=colour, markersize=3, alpha=0.45)
        axis.plot([mean], [place], "o", color=colour, markersize=7)
    dress(axis, title, below="")
    axis.set_yticks(range(len(rows)), [row.label for row in rows] if labels else [""] * len(rows))
    axis.invert_yaxis()


def _curves(axis: Any, plan: Plan, scores: Scores, columns: list[Column], title: str) -> None:
    steps = [int(_steps(plan, column).replace(",", "")) for column in columns]
    for row, colour in zip(PUBLISHED[plan.table].rows, COLOURS, strict=False):
        values = [scores[row.name, column.key] for column in columns]
        means = [sum(of_step) / len(of_step) for of_step in values]
        axis.plot(steps, means, color=colour, linewidth=2, marker="o", markersize=5, label=row.label)
        intervals = [mean_interval(of_step) for of_step in values]
        known = [(step, *interval) for step, interval in zip(steps, intervals, strict=True) if interval is not None]
        if known:
            axis.fill_between(*zip(*known, strict=True), color=colour, alpha=0.15, linewidth=0)
    dress(axis, title, below="steps of pre-training")
    axis.legend(frameon=False, fontsize=9)
