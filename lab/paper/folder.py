"""The output folder of a table: its plan, which of its cells are finished, and their scores.

A cell is finished when its folder says so, as after any other run of its script. Finished cells may also have been
started by hand, or come from an interrupted start; they count only if they are the runs that the plan asks for.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_training.engine.finished import changed_flags, read_results
from bert_training.engine.output_folder import LOCK
from bert_training.files.atomic import is_draft, make_folder, write_json
from bert_training.files.records import read_record
from bert_training.networks.initial_weights import weights_sha256
from bert_training.networks.other_formats import WEIGHT_FILES
from bert_training.tasks.seeds import planned_runs
from lab.paper.places import CELLS, PLAN
from lab.paper.plan import Cell, Plan
from tokenization.errors import UserError


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
    detail = ", ".join(changed) or _first_other_command(earlier.get("cells"), commands)
    raise UserError(f"--output_dir {folder} holds another plan ({detail}); give another folder")


def _first_other_command(earlier: Any, now: Mapping[str, list[str]]) -> str:
    """How the command of the first cell with another one differs.

    Args:
        earlier: what the file holds, which may be anything.
    """
    for name, command in now.items():
        found = earlier.get(name) if isinstance(earlier, dict) else None
        if found != command:
            before, after = (_flags_in(words) if isinstance(words, list) else [] for words in (found, command))
            gone = " ".join(flag for flag in before if flag not in after) or "no flag"
            new = " ".join(flag for flag in after if flag not in before) or "no flag"
            return f"{name}: {gone} -> {new}"
    return "other runs"


def _flags_in(command: list[Any]) -> list[str]:
    """The flags of a command with their values: "--seed 42"."""
    return [f"--{flag}" for flag in " ".join(map(str, command)).split(" --")[1:]]


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
    return read_results(cell_folder) is not None


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
