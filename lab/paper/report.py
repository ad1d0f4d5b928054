"""The report of a table: our rows beside the paper's, differences with their intervals, and a verdict on each claim.

It holds no times and no paths, so that an interrupted series gives the same report as one that was never stopped.
"""

import dataclasses
import importlib.util
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_training.files.atomic import write_json, write_text
from bert_training.tasks.statistics import mean_interval
from lab.paper.picture import draw
from lab.paper.plan import Outline
from lab.paper.record import UNIGRAM, Results, scores_of
from lab.paper.verdicts import LEARNT, Column, JudgedContrast, Scores, judge, wide_level

SCALES_IN_WORDS = {
    "smoke": "the scale of a smoke test: a few steps of tiny networks, whose numbers and verdicts mean nothing",
    "builtin": "the built-in scale: very small networks on the documentation of one Python installation",
    "small": "the small scale: small networks, few steps, real text",
    "paper": "the paper's scale",
}
RULE = (
    "A claim *holds* if the 95 % interval (Student's t over the seeds) of each of its contrasts lies where the claim "
    "puts it. It is *contradicted* if the wide interval of one of them lies entirely on the other side; the level of "
    "that interval is 1 - 0.05/k for k contrasts. Otherwise it *cannot be told at this scale*; one seed never gives a "
    "verdict, nor do seeds that all give the same number. A claim that models are equal, or almost, holds only for "
    f"models whose mean score is more than {LEARNT:g} per cent above that of constant predictions, and is contradicted "
    "only if one of them is. `lab/paper/verdicts.py` states the rule."
)
POINTS_IN_WORDS = (
    "In the picture, a large point is the mean of a row, the line through it the 95 % interval of this mean, and a "
    "small point one seed. The vertical line goes through the mean of the row from which differences are counted. "
    "Verdicts follow from differences of the same seed, not from whether two lines overlap."
)
CURVES_IN_WORDS = "In the picture, a band is the 95 % interval of the mean over the seeds."
# The results of pre-training that the report shows: the key -> the heading and how a value is printed.
OF_PRETRAINING = {
    "eval_mlm_loss": ("held-out loss, nats", "{:.2f}"),
    UNIGRAM: ("loss of a model that knows only how often each piece occurs", "{:.2f}"),
    "eval_nsp_accuracy": ("next sentence prediction, accuracy (chance: 0.50)", "{:.2f}"),
}


def write_report(folder: Path, outline: Outline, results: Results) -> dict[str, Any]:
    """Write report.md, report.json and, if matplotlib is installed, report.png; return what report.json holds.

    Raises:
        ValueError: the results lack a score of the table.
    """
    scores = scores_of(outline, results)
    numbers = content(outline, results)
    write_json(folder / "report.json", numbers)
    picture = importlib.util.find_spec("matplotlib") is not None
    write_text(folder / "report.md", markdown(outline, numbers, picture))
    if picture:
        draw(outline, scores, folder / "report.png")
    return numbers


def content(outline: Outline, results: Results) -> dict[str, Any]:
    """All numbers of the report; ValueError if the results lack a score of the table."""
    paper = outline.experiment.published
    scores = scores_of(outline, results)
    rows: dict[str, dict[str, Any]] = {}
    for row in paper.rows:
        rows[row.name] = {
            "label": outline.labels[row.name],
            "papers_label": row.label,
            "scores": {
                column.key: _statistics(scores, row.name, paper.reference, column) for column in outline.columns
            },
            "paper": dict(zip(paper.columns, row.scores, strict=True)),
        }
    claims = []
    for claim in paper.claims:
        verdict, judged = judge(claim, outline.columns, scores)
        claims.append(
            {
                "claim": claim.text,
                "place": claim.place,
                "verdict": verdict,
                "wide_level": wide_level(len(judged)) if judged else None,
                "contrasts": [_contrast(one) for one in judged],
            }
        )
    return {
        "table": outline.table,
        "scale": outline.scale,
        "seeds": list(outline.seeds),
        "columns": outline.titles,
        "constant_predictions": {column.key: column.constant for column in outline.columns},
        "reference": paper.reference,
        "rows": rows,
        "pretrainings": _pretrainings(outline, results),
        "claims": claims,
    }


def _statistics(scores: Scores, row: str, reference: str, column: Column) -> dict[str, Any]:
    """The scores of a row in a column and their differences to the reference row, with the same seed for both."""
    values = list(scores[row, column.key])
    cell: dict[str, Any] = {
        "values": values,
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
    }
    if row != reference and column.compares_rows:
        differences = [own - other for own, other in zip(values, scores[reference, column.key], strict=True)]
        cell |= {"difference": statistics.fmean(differences), "interval": mean_interval(differences)}
    return cell


def _pretrainings(outline: Outline, results: Results) -> dict[str, dict[str, float]]:
    """What each pre-training has learnt: the means over the seeds of those results that all of them have."""
    found: dict[str, dict[str, float]] = {}
    for name, cells in outline.pretrainings.items():
        found[name] = {}
        for metric in OF_PRETRAINING:
            values = [value for cell in cells if (value := results[cell].get(metric)) is not None]
            if len(values) == len(cells):
                found[name][metric] = statistics.fmean(values)
    return found


def _contrast(judged: JudgedContrast) -> dict[str, Any]:
    lists = {"values": list(judged.values), "not_learnt": list(judged.not_learnt)}  # JSON has no tuples
    return dataclasses.asdict(judged) | lists


def markdown(outline: Outline, numbers: Mapping[str, Any], picture: bool = True) -> str:
    """The report as a page, from what ``content`` returned.

    Args:
        picture: whether there is a report.png to show.
    """
    paper = outline.experiment.published
    seeds = f"{len(outline.seeds)} seeds ({outline.seeds[0]} to {outline.seeds[-1]})"
    reference = numbers["rows"][paper.reference]["label"]
    parts = [
        f"# {paper.title}\n\nDevlin et al. 2018, {paper.place}, at {SCALES_IN_WORDS[outline.scale]}; {seeds}, each "
        "with its own pre-training. Mean ± standard deviation over the seeds; the paper's own numbers, where it has "
        "any, are on the right. Written by `lab/run_paper.py`.",
        "\n".join(_score_table(outline, numbers)),
        f"Differences to the row *{reference}*, of runs with the same seed, with their 95 % interval:",
        "\n".join(_difference_table(outline, numbers)),
    ]
    if outline.experiment.note:
        parts.append(outline.experiment.note)
    if any(numbers["pretrainings"].values()):
        parts.append("What the pre-trainings have learnt (mean over the seeds):")
        parts.append("\n".join(_pretraining_table(numbers)))
    if picture:
        parts.append(f"![{paper.title}](report.png)")
        parts.append(CURVES_IN_WORDS if outline.experiment.keeps_checkpoints else POINTS_IN_WORDS)
    parts.append(f"## What the paper concludes\n\n{RULE}")
    parts.append("\n".join(_claim_table(numbers)))
    parts.append("## The contrasts behind the verdicts")
    parts.append("\n".join(_contrast_table(numbers)))
    return "\n\n".join(parts) + "\n"


def _score_table(outline: Outline, numbers: Mapping[str, Any]) -> list[str]:
    """Our rows, and on the right the paper's; under which label the paper has them, if that is another one."""
    published = outline.experiment.published.columns
    rows = numbers["rows"].values()
    renamed = any(row["label"] != row["papers_label"] for row in rows) and bool(published)
    papers_columns = [*(["paper: row"] if renamed else []), *(f"paper: {name}" for name in published)]
    lines = _table_head([*outline.titles.values(), *papers_columns])
    for row in rows:
        ours = [_mean(row["scores"][column.key]) for column in outline.columns]
        theirs = [*([row["papers_label"]] if renamed else []), *(f"{row['paper'][name]:g}" for name in published)]
        lines.append(f"| {row['label']} | {' | '.join(ours + theirs)} |")
    constants = numbers["constant_predictions"].values()
    ours = ["" if constant is None else f"{constant:.2f}" for constant in constants]
    lines.append(f"| *constant predictions* | {' | '.join([*ours, *[''] * len(papers_columns)])} |")
    return lines


def _difference_table(outline: Outline, numbers: Mapping[str, Any]) -> list[str]:
    compared = [column.key for column in outline.columns if column.compares_rows]
    lines = _table_head([outline.titles[key] for key in compared])
    for name, row in numbers["rows"].items():
        if name != numbers["reference"]:
            differences = [_difference(row["scores"][key]) for key in compared]
            lines.append(f"| {row['label']} | {' | '.join(differences)} |")
    return lines


def _pretraining_table(numbers: Mapping[str, Any]) -> list[str]:
    shown = [metric for metric in OF_PRETRAINING if any(metric in one for one in numbers["pretrainings"].values())]
    lines = _table_head([OF_PRETRAINING[metric][0] for metric in shown])
    for name, results in numbers["pretrainings"].items():
        values = [OF_PRETRAINING[metric][1].format(results[metric]) if metric in results else "" for metric in shown]
        lines.append(f"| `{name}` | {' | '.join(values)} |")
    return lines


def _table_head(names: list[str]) -> list[str]:
    """The first two lines of a Markdown table with a column for the labels and columns of numbers."""
    return [f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]


def _claim_table(numbers: Mapping[str, Any]) -> list[str]:
    lines = ["| | claim | where | verdict |", "|---|---|---|---|"]
    for number, claim in enumerate(numbers["claims"], 1):
        lines.append(f"| ({number}) | {claim['claim']} | {claim['place']} | *{claim['verdict']}* |")
    return lines


def _contrast_table(numbers: Mapping[str, Any]) -> list[str]:
    """A line for each contrast, with both intervals by which it is judged."""
    lines = ["| claim | contrast | mean | 95 % interval | wide interval | |", "|---|---|---:|---:|---:|---|"]
    for number, claim in enumerate(numbers["claims"], 1):
        if not claim["contrasts"]:
            lines.append(f"| ({number}) | no column is about this | | | | |")
        for one in claim["contrasts"]:
            wide = f"{_interval(one['wide_interval'])}, {100 * claim['wide_level']:.4g} %"
            verdict = one["verdict"]
            if one["not_learnt"]:
                verdict += f"; not learnt: {', '.join(one['not_learnt'])}"
            numbers_shown = f"{one['mean']:+.2f} | {_interval(one['interval'])} | {wide}"
            lines.append(f"| ({number}) | {one['text']} | {numbers_shown} | {verdict} |")
    return lines


def _mean(cell: Mapping[str, Any]) -> str:
    deviation = "" if cell["std"] is None else f" ± {cell['std']:.2f}"
    return f"{cell['mean']:,.2f}{deviation}"


def _difference(cell: Mapping[str, Any]) -> str:
    return f"{cell['difference']:+,.2f} ({_interval(cell['interval'])})"


def _interval(interval: Sequence[float] | None) -> str:
    return "none" if interval is None else f"{interval[0]:+,.2f} to {interval[1]:+,.2f}"


def verdicts(numbers: Mapping[str, Any]) -> str:
    """The claims and their verdicts, for the terminal."""
    return "\n".join(f"{claim['verdict']}: {claim['claim']} ({claim['place']})" for claim in numbers["claims"])
