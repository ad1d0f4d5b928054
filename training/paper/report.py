"""The report of a table: our rows beside the paper's, differences with their intervals, and a verdict on each claim.

It holds no times and no paths, so that an interrupted series gives the same report as one that was never stopped.
"""

import dataclasses
import importlib.util
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.files.atomic import write_json, write_text
from training.paper.folder import read_scores
from training.paper.picture import draw
from training.paper.plan import Plan
from training.paper.published import PUBLISHED
from training.paper.verdicts import LEARNT, Judged, Scores, judge
from training.tasks.student_t import mean_interval

SCALES_IN_WORDS = {
    "smoke": "the scale of a smoke test: a few steps of tiny networks, whose numbers and verdicts mean nothing",
    "builtin": "the built-in scale: very small networks on the documentation of one Python installation",
    "small": "the small scale: small networks, few steps, real text",
    "paper": "the paper's scale",
}
RULE = (
    "A claim *holds* if the 95 % interval (Student's t over the seeds) of each of its contrasts lies where the claim "
    "puts it. It is *contradicted* if the interval of one lies entirely on the other side, at the level 1 - 0.05/k for "
    "k contrasts. Otherwise it *cannot be told at this scale*; one seed never gives a verdict, nor do seeds that all "
    "give the same number. A claim that models are equal, or almost, holds only for models whose mean score is more "
    f"than {LEARNT:g} per cent above that of constant predictions, and is contradicted only if one of them is. "
    "`training/paper/verdicts.py` states the rule."
)


def write_report(folder: Path, plan: Plan) -> dict[str, Any]:
    """Write report.md, report.json and, if matplotlib is installed, report.png; return what report.json holds.

    Raises:
        ValueError: a cell is not finished, or its results lack a score of the table.
    """
    scores = read_scores(folder, plan)
    numbers = content(plan, scores)
    write_json(folder / "report.json", numbers)
    write_text(folder / "report.md", markdown(plan, numbers))
    if importlib.util.find_spec("matplotlib"):
        draw(plan, scores, folder / "report.png")
    return numbers


def content(plan: Plan, scores: Scores) -> dict[str, Any]:
    """All numbers of the report.

    Args:
        scores: (row, column) -> one score for each seed of the plan.
    """
    paper = PUBLISHED[plan.table]
    rows: dict[str, dict[str, Any]] = {}
    for row in paper.rows:
        rows[row.name] = {
            "label": row.label,
            "scores": {
                column.key: _statistics(scores, row.name, paper.reference, column.key) for column in plan.columns
            },
            "paper": dict(zip(paper.columns, row.scores, strict=True)),
        }
    claims = []
    for claim in paper.claims:
        verdict, judged = judge(claim, plan.columns, scores)
        contrasts = [_contrast(one) for one in judged]
        claims.append({"claim": claim.text, "place": claim.place, "verdict": verdict, "contrasts": contrasts})
    return {
        "table": plan.table,
        "scale": plan.scale,
        "seeds": list(plan.seeds),
        "columns": plan.titles,
        "reference": paper.reference,
        "rows": rows,
        "claims": claims,
    }


def _statistics(scores: Scores, row: str, reference: str, column: str) -> dict[str, Any]:
    """The scores of a row in a column and their differences to the reference row, with the same seed for both."""
    values = list(scores[row, column])
    cell: dict[str, Any] = {
        "values": values,
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
    }
    if row != reference:
        differences = [own - other for own, other in zip(values, scores[reference, column], strict=True)]
        cell |= {"difference": statistics.fmean(differences), "interval": mean_interval(differences)}
    return cell


def _contrast(judged: Judged) -> dict[str, Any]:
    return dataclasses.asdict(judged) | {"values": list(judged.values)}  # JSON has no tuples


def markdown(plan: Plan, numbers: Mapping[str, Any]) -> str:
    """The report as a page, from what ``content`` returned."""
    paper = PUBLISHED[plan.table]
    seeds = f"{len(plan.seeds)} seeds ({plan.seeds[0]} to {plan.seeds[-1]})"
    reference = numbers["rows"][paper.reference]["label"]
    parts = [
        f"# {paper.title}\n\nDevlin et al. 2018, {paper.place}, at {SCALES_IN_WORDS[plan.scale]}; {seeds}, each with "
        "its own pre-training. Mean ± standard deviation over the seeds; the paper's own numbers, where it has any, "
        "are on the right. Written by `run_paper.py`.",
        "\n".join(_score_table(plan, numbers)),
        f"Differences to the row *{reference}*, of runs with the same seed, with their 95 % interval:",
        "\n".join(_difference_table(plan, numbers)),
    ]
    if plan.table == "5":
        parts.append("The held-out loss of a left-to-right model is of all words, that of the others of masked ones.")
    parts.append(f"## What the paper concludes\n\n{RULE}")
    parts.append("\n".join(_claim_table(numbers)))
    if importlib.util.find_spec("matplotlib"):
        parts.append(f"![{paper.title}](report.png)")
    return "\n\n".join(parts) + "\n"


def _score_table(plan: Plan, numbers: Mapping[str, Any]) -> list[str]:
    published = PUBLISHED[plan.table].columns
    names = [*plan.titles.values(), *(f"paper: {name}" for name in published)]
    lines = _table_head(names)
    for row in numbers["rows"].values():
        ours = [_mean(row["scores"][column.key]) for column in plan.columns]
        theirs = [f"{row['paper'][name]:g}" for name in published]
        lines.append(f"| {row['label']} | {' | '.join(ours + theirs)} |")
    return lines


def _difference_table(plan: Plan, numbers: Mapping[str, Any]) -> list[str]:
    lines = _table_head(list(plan.titles.values()))
    for name, row in numbers["rows"].items():
        if name != numbers["reference"]:
            differences = [_difference(row["scores"][column.key]) for column in plan.columns]
            lines.append(f"| {row['label']} | {' | '.join(differences)} |")
    return lines


def _table_head(names: list[str]) -> list[str]:
    """The first two lines of a Markdown table with a column for the labels and columns of numbers."""
    return [f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]


def _claim_table(numbers: Mapping[str, Any]) -> list[str]:
    lines = ["| claim | where | our contrasts: mean (95 % interval) | verdict |", "|---|---|---|---|"]
    for claim in numbers["claims"]:
        contrasts = [
            f"{contrast['text']}: {contrast['mean']:+.2f}{_interval(contrast['interval'])}"
            for contrast in claim["contrasts"]
        ]
        text = "; ".join(contrasts) or "no column is about this"
        lines.append(f"| {claim['claim']} | {claim['place']} | {text} | *{claim['verdict']}* |")
    return lines


def _mean(cell: Mapping[str, Any]) -> str:
    deviation = "" if cell["std"] is None else f" ± {cell['std']:.2f}"
    return f"{cell['mean']:,.2f}{deviation}"


def _difference(cell: Mapping[str, Any]) -> str:
    return f"{cell['difference']:+,.2f}{_interval(cell['interval'])}"


def _interval(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f" ({interval[0]:+.2f} to {interval[1]:+.2f})"


def verdicts(numbers: Mapping[str, Any]) -> str:
    """The claims and their verdicts, for the terminal."""
    return "\n".join(f"{claim['verdict']}: {claim['claim']} ({claim['place']})" for claim in numbers["claims"])
