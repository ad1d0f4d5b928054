"""The output folder of a table: its plan, which of its cells are finished, and the record of their results.

A cell is finished when its folder says so, as after any other run of its script. Finished cells may also have been
started by hand, or come from an interrupted start; they count only if they are the runs that the plan asks for.

``record.json`` stands beside ``report.md``, ``report.json`` and ``report.png``; these four files are what a recorded
table consists of. The report has no times;
the record has.
"""

import dataclasses
import datetime
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bert_training.engine.launch import commit
from bert_training.engine.run import LOCK, changed_flags
from bert_training.files.atomic import is_draft, make_folder, write_json
from bert_training.files.hashing import sha256
from bert_training.inputs.models import WEIGHT_FILES
from bert_training.inputs.reading import read_events, read_record
from bert_training.networks.initial_weights import weights_sha256
from bert_training.record import is_finished as has_results
from bert_training.record import read_results, read_summary
from bert_training.tasks.seeds import planned_runs
from lab.benchmarks.provenance import processor
from lab.paper.data import PaperArguments
from lab.paper.plan import Cell, Outline, Plan, Score
from lab.paper.scales import CELLS, PLAN
from lab.paper.verdicts import Column, Scores
from tokenization.errors import UserError

REPORT = ("report.md", "report.json", "report.png")
UNIGRAM = "unigram_entropy"  # the loss of a model that knows only how often each piece occurs
ORIGIN = ("versions", "commit", "device", "processes", "mixed_precision")  # of run.json
Results = Mapping[str, Mapping[str, float | None]]  # name of the cell -> its results; of a series, their means


# --- The folder ----------------------------------------------------------------------------------------------------


def claim_folder(folder: Path, plan: Plan, checksums: dict[str, str]) -> None:
    """Record the plan in a new folder, or check that the folder holds this very plan.

    Args:
        checksums: file -> SHA-256 of the user's data.

    Raises:
        ValueError: it holds another plan, or other data than the plan began with.
    """
    commands = {cell.name: [cell.script, *cell.command] for cell in plan.cells}
    content = {
        "table": plan.table,
        "scale": plan.scale,
        "seeds": list(plan.seeds),
        "files": checksums,
        "network": plan.network,
        "cells": commands,
    }
    path = folder / PLAN
    if not path.is_file():
        # A process that was killed leaves a draft.
        if folder.is_dir() and any(one.name != LOCK and not is_draft(one.name, PLAN) for one in folder.iterdir()):
            raise UserError(f"--output_dir {folder}: expected an empty folder, or one with {PLAN}; give another")
        make_folder(folder)
        write_json(path, content)
        return
    earlier = read_record(path, f"delete it, if {folder} holds runs of this very command, or give another --output_dir")
    if earlier == content:
        return
    changed = [
        f"{name} {earlier.get(name)} -> {content[name]}"
        for name in ("table", "scale", "seeds", "network")
        if earlier.get(name) != content[name]
    ]
    if not changed:
        check_unchanged(earlier.get("files", {}), checksums)
    detail = ", ".join(changed) or f"its runs have other flags, see {PLAN}"
    raise UserError(f"--output_dir {folder} holds another plan ({detail}); give another folder")


def check_unchanged(earlier: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Compare the checksums of the user's files from before the runs with those of now.

    Raises:
        ValueError: a file was changed, has come or is gone.
    """
    changed = [name for name in sorted({*earlier, *now}) if earlier.get(name) != now.get(name)]
    if changed:
        raise UserError(f"{', '.join(changed)}: changed since the runs had begun; give another --output_dir")


def is_finished(folder: Path, cell: Cell) -> bool:
    """Whether the folder of a cell says that its run, or all runs of its series, have finished."""
    cell_folder = folder / CELLS / cell.name
    if cell.is_series:
        return (cell_folder / "summary.json").is_file()
    return has_results(cell_folder)


def check_finished_cells(folder: Path, plan: Plan) -> None:
    """Check that every finished cell is the run that the plan asks for.

    A fine-tuning must have begun with the weights of its pre-training, unless these have been deleted since.

    Raises:
        ValueError: a run had other flags or other initial weights, or its run.json is missing.
    """
    checksums: dict[str, dict[str, str] | None] = {}  # by folder, because many cells start from the same weights
    for cell in plan.cells:
        if not is_finished(folder, cell):
            continue
        args = cell.arguments()
        model: str | None = args.model_name_or_path
        if model is not None and model not in checksums:
            checksums[model] = _checksums_of_weights(folder / model)
        for run in planned_runs(args) if cell.is_series else [args]:
            path = folder / run.output_dir / "run.json"
            if not path.is_file():
                raise UserError(f"{path}: not found, but the run is finished; delete {path.parent} to repeat the run")
            facts = read_record(path, f"delete {path.parent} to repeat the run", needs=("flags",))
            changed = changed_flags(facts["flags"], run)
            if model is not None and checksums[model] not in (None, facts.get("initial_weights")):
                changed.append(f"the weights of {model}")
            if changed:
                raise UserError(
                    f"{path.parent} holds another run than the plan asks for ({', '.join(changed)}); delete it to "
                    "repeat the run"
                )


def _checksums_of_weights(model_folder: Path) -> dict[str, str] | None:
    """File -> SHA-256 of the weights in a folder; None if there are none."""
    if any((model_folder / name).is_file() for name in WEIGHT_FILES):
        return weights_sha256(str(model_folder))
    return None


# --- The record ----------------------------------------------------------------------------------------------------


def read_cells(folder: Path, plan: Plan) -> dict[str, dict[str, Any]]:
    """Name of the cell -> what the record keeps of it.

    Raises:
        ValueError: a cell is not finished.
    """
    return {cell.name: _read_series(folder, cell) if cell.is_series else _read_run(folder, cell) for cell in plan.cells}


def results_of(cells: Mapping[str, Mapping[str, Any]]) -> Results:
    """The results of the cells that ``read_cells`` returned or that a record holds."""
    return {name: cell["results"] for name, cell in cells.items()}


def scores_of(outline: Outline, results: Results) -> Scores:
    """(name of the row, key of the column) -> one score for each seed, in the order of the seeds.

    Raises:
        ValueError: the results of a cell lack the score.
    """
    scores: dict[tuple[str, str], list[float]] = {}
    for score in outline.scores:
        value = results[score.cell].get(score.metric)
        if value is None:
            raise UserError(f"{CELLS}/{score.cell}: expected the result {score.metric}, but it is missing or undefined")
        scores.setdefault((score.row, score.column), []).append(score.factor * value)
    return scores


def record_of(
    folder: Path, plan: Plan, cells: Mapping[str, Any], args: PaperArguments, checksums: Mapping[str, str]
) -> dict[str, Any]:
    """The content of record.json.

    Args:
        cells: what ``read_cells`` returned.
        checksums: file -> SHA-256 of the user's data.
    """
    return {
        "script": "lab/run_paper.py",
        "command": _command(args),
        "outline": plain_outline(plan),
        "data": {_short_name(name, args.data_dir): checksum for name, checksum in checksums.items()},
        "runs_made_with": _origins(folder, plan),
        "report_made_with": {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "processor": processor(),
            "cores": os.cpu_count(),
        },
        "training_seconds": sum(cell["training_seconds"] or 0.0 for cell in cells.values()),
        "sha256": {name: sha256(folder / name) for name in (PLAN, *REPORT) if (folder / name).is_file()},
        "cells": cells,
    }


def plain_outline(outline: Outline) -> dict[str, Any]:
    """An outline, such as that of a plan, in the form of JSON."""
    return {field.name: _plain(getattr(outline, field.name)) for field in dataclasses.fields(Outline)}


def outline_of(record: Mapping[str, Any]) -> Outline:
    """The outline that a record holds."""
    fields = dict(record["outline"])
    return Outline(
        table=fields["table"],
        scale=fields["scale"],
        seeds=tuple(fields["seeds"]),
        steps=fields["steps"],
        labels=fields["labels"],
        columns=tuple(Column(**column) for column in fields["columns"]),
        task_titles=fields["task_titles"],
        pretrainings={name: tuple(of_seeds) for name, of_seeds in fields["pretrainings"].items()},
        scores=tuple(Score(**score) for score in fields["scores"]),
    )


def _plain(value: Any) -> Any:
    """The value with objects as dicts and tuples as lists, as JSON has them."""
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def _read_run(folder: Path, cell: Cell) -> dict[str, Any]:
    """The results of a run; its start and its time, None where it has not recorded them."""
    _check_finished(folder, cell)
    place = folder / CELLS / cell.name
    results = read_results(place) or {}
    kept = _scores_in(results)
    if (place / "metrics.jsonl").is_file():
        first = next(iter(read_events(place / "metrics.jsonl")), {})
        if UNIGRAM in first:
            kept[UNIGRAM] = first[UNIGRAM]
    return {
        "started": (_facts(place) or {}).get("started"),
        "training_seconds": results.get("train_runtime"),
        "sha256": sha256(place / "all_results.json"),
        "results": kept,
    }


def _read_series(folder: Path, cell: Cell) -> dict[str, Any]:
    """The mean results of a series, and those of each of its runs."""
    _check_finished(folder, cell)
    place = folder / CELLS / cell.name
    summary = read_summary(place)
    runs = summary["runs"]
    places = [place / Path(run["folder"]).name for run in runs]
    started = [facts["started"] for facts in map(_facts, places) if facts]
    return {
        "started": min(started, default=None),
        "training_seconds": sum(run["results"].get("train_runtime", 0.0) for run in runs),
        "sha256": sha256(place / "summary.json"),
        "results": {name: one.get("mean") for name, one in summary["settings"][0]["metrics"].items()},
        "runs": [{"seed": run["seed"], "results": _scores_in(run["results"])} for run in runs],
    }


def _check_finished(folder: Path, cell: Cell) -> None:
    if not is_finished(folder, cell):
        raise UserError(
            f"{folder / CELLS / cell.name}: expected a finished run; the same command of lab/run_paper.py runs it"
        )


def _scores_in(results: Mapping[str, Any]) -> dict[str, Any]:
    """The results without those that depend on the machine and the moment."""
    return {name: value for name, value in results.items() if name.startswith("eval_") or name == "train_loss"}


def _facts(place: Path) -> dict[str, Any] | None:
    """The content of a run's run.json; None if there is none."""
    path = place / "run.json"
    return read_record(path, f"delete {place} to repeat the run") if path.is_file() else None


def _origins(folder: Path, plan: Plan) -> list[dict[str, Any]]:
    """What the runs were made with, once for each combination that occurs, with the number of its runs.

    A run that was resumed with other versions counts for each of them.
    """
    counts: dict[str, int] = {}
    for facts in _facts_of_runs(folder, plan.cells):
        starts = [facts, *facts.get("earlier", [])]
        for origin in {json.dumps({name: start.get(name) for name in ORIGIN}) for start in starts}:
            counts[origin] = counts.get(origin, 0) + 1
    return [json.loads(origin) | {"runs": count} for origin, count in sorted(counts.items())]


def _facts_of_runs(folder: Path, cells: Iterable[Cell]) -> Iterable[dict[str, Any]]:
    for cell in cells:
        place = folder / CELLS / cell.name
        for path in sorted(place.glob("*/run.json")) if cell.is_series else [place / "run.json"]:
            if facts := _facts(path.parent):
                yield facts


def _short_name(file: str, data_dir: str | None) -> str:
    """The path of a file below ``data_dir``: several tasks have files of one name."""
    return os.path.relpath(file, Path(data_dir).resolve()) if data_dir else Path(file).name


def _command(args: PaperArguments) -> list[str]:
    """The words of the command that decide what is in the table; names of folders say nothing elsewhere."""
    words = ["lab/run_paper.py", "--table", args.table, "--scale", args.scale, "--seeds", str(args.seeds)]
    return [*words, "--smoke"] if args.smoke else words
