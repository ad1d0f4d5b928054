"""Plans of the paper's tables, and finished cells with scores that a test chooses. No run is made."""

import json
from pathlib import Path
from typing import Any

from bert_training.files.atomic import write_json
from lab.paper.data import PaperArguments, find_tasks, find_text, scale_of
from lab.paper.experiments import EXPERIMENTS
from lab.paper.plan import Plan, make_plan
from lab.paper.record import claim_folder, read_cells, record_of, results_of
from lab.paper.report import write_report
from lab.paper.scales import RECORD

TABLES = tuple(EXPERIMENTS)


def plan_of(table: str, scale: str = "builtin", seeds: int = 2, **more) -> Plan:
    """The plan of a table at a scale; ``more`` are other fields of ``PaperArguments``."""
    args = PaperArguments(table=table, output_dir="out", scale=scale, seeds=seeds, **more)
    chosen = scale_of(args)
    return make_plan(EXPERIMENTS[table], chosen, find_tasks(args, chosen), find_text(args).flags, seeds)


def command(plan: Plan, name: str) -> str:
    """The flags of the cell of this name, as one string."""
    return " ".join(next(cell for cell in plan.cells if cell.name == name).command)


def write_scores(folder: Path, plan: Plan) -> None:
    """Write finished cells. A score is 60, 59, ... for the row, plus a multiple of the seed that rises with the row."""
    rows = [row.name for row in plan.experiment.published.rows]
    for cell in plan.cells:
        if cell.task is None:
            (folder / "cells" / cell.name).mkdir(parents=True)
            (folder / "cells" / cell.name / "all_results.json").write_text("{}")
    for score in plan.scores:
        place = folder / "cells" / score.cell
        place.mkdir(parents=True, exist_ok=True)
        row = rows.index(score.row)
        value = (60 - row + (1 + row / 10) * (score.seed % 10) / 10) / score.factor
        if plan.table == "6" and score.metric != "eval_perplexity":
            runs = [
                {"folder": f"seed-{seed}", "seed": seed, "results": {score.metric: value + change}}
                for seed, change in ((1, -0.25), (2, 0.25))
            ]
            metrics = {"settings": [{"metrics": {score.metric: {"mean": value}}}], "runs": runs}
            (place / "summary.json").write_text(json.dumps(metrics))
        else:
            (place / "all_results.json").write_text(json.dumps({score.metric: value}))


def write_report_of(folder: Path, plan: Plan) -> dict[str, Any]:
    """Write the report of the finished cells in a folder; return what report.json holds."""
    return write_report(folder, plan, results_of(read_cells(folder, plan)))


def write_table(folder: Path, table: str, seeds: int = 2) -> dict[str, Any]:
    """Write a finished table with its plan, its report and its record; return the record."""
    args = PaperArguments(table=table, output_dir=str(folder), seeds=seeds)
    plan = plan_of(table, seeds=seeds)
    claim_folder(folder, plan, {})
    write_scores(folder, plan)
    write_report_of(folder, plan)
    record = record_of(folder, plan, read_cells(folder, plan), args, {})
    write_json(folder / RECORD, record)
    return record
