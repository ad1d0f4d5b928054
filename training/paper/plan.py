"""The plan of a table: one cell for every run, each a command of another script, and which cells it needs.

A cell lives in ``cells/NAME`` of the output folder, from which all its paths are counted. It is finished when that
folder says so, as after any other run of its script.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from training.engine.finished import read_results
from training.files.atomic import write_json
from training.paper.data import VOCABULARY
from training.paper.published import CHECKPOINTS, CHOICES, LADDER, MIXES
from training.paper.scales import Flags, Scale, Size, Task
from training.paper.verdicts import Column

CELLS, PLAN = "cells", "plan.json"
FIRST_SEED = 42
LABEL_AT_THE_END, BILSTM = {"label_token": "last"}, {"bilstm_on_top": ""}
OBJECTIVES = {"bert": "mlm_nsp", "no_nsp": "mlm", "ltr": "ltr"}


@dataclass(frozen=True)
class Pretraining:
    """A pre-training that rows of a table start from."""

    name: str
    size: Size
    flags: Flags = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """A row of a table: the pre-training it starts from, and what its fine-tuning adds to the flags of each script."""

    row: str
    pretraining: Pretraining
    more: dict[str, Flags] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """A run, or a series of runs.

    Attributes:
        flags: of the script; the files of a list stand on lines of their own.
        task: None for pre-training.
        size: of its network.
    """

    name: str
    script: str
    flags: Flags
    seed: int
    size: Size
    task: Task | None = None
    needs: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """The words after the name of the script."""
        return [word for name, value in self.flags.items() for word in (f"--{name}", *value.splitlines())]


@dataclass(frozen=True)
class Score:
    """Where a score of the table comes from: the cell, the key of its results, the factor to the column's unit."""

    row: str
    column: str
    seed: int
    cell: str
    metric: str
    factor: float


@dataclass(frozen=True)
class Plan:
    """All runs of a table, and the columns that they fill."""

    table: str
    scale: str
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    scores: tuple[Score, ...]
    columns: tuple[Column, ...]
    titles: dict[str, str]

    def sizes(self) -> list[Size]:
        """Every size of a network, once."""
        return list(dict.fromkeys(cell.size for cell in self.cells))


def make_plan(table: str, scale: Scale, tasks: Sequence[Task], text: Flags, number_of_seeds: int) -> Plan:
    """The plan of a table; the same arguments give the same plan."""
    seeds = tuple(range(FIRST_SEED, FIRST_SEED + number_of_seeds))
    starts = starts_of(table, scale)
    columns = columns_of(table, scale, tasks)
    steps = scale.steps[table]
    cells: dict[str, Cell] = {}
    scores = []
    for seed in seeds:
        for start in starts:
            pretraining = pretraining_cell(start.pretraining, table, scale, text, seed)
            cells.setdefault(pretraining.name, pretraining)
            for column, task in columns:
                if task is None:
                    metric = "eval_perplexity" if column.kind == "ppl" else "eval_mlm_loss"
                    scores.append(Score(start.row, column.key, seed, pretraining.name, metric, 1.0))
                    continue
                checkpoint = steps * column.checkpoint // CHECKPOINTS
                restarts = scale.restarts if table == "6" else 0
                cell = tuning_cell(start, task, pretraining, seed, checkpoint, restarts)
                cells[cell.name] = cell
                scores.append(Score(start.row, column.key, seed, cell.name, task.metric, task.factor))
    titles = {column.key: _title(column, task, steps) for column, task in columns}
    return Plan(table, scale.name, seeds, tuple(cells.values()), tuple(scores), tuple(c for c, _ in columns), titles)


def starts_of(table: str, scale: Scale) -> list[Start]:
    """The rows of a table."""
    if table == "5":
        trained = {name: Pretraining(name, scale.size, {"objective": o}) for name, o in OBJECTIVES.items()}
        ltr = trained["ltr"]
        bilstm: dict[str, Flags] = {"run_glue.py": LABEL_AT_THE_END | BILSTM, "run_squad.py": BILSTM}
        rows = [Start("bert", trained["bert"]), Start("no_nsp", trained["no_nsp"])]
        return [*rows, Start("ltr", ltr, {"run_glue.py": LABEL_AT_THE_END}), Start("ltr_bilstm", ltr, bilstm)]
    if table == "6":
        return [Start(row, Pretraining(row, scale.ladder[row])) for row in LADDER]
    if table == "7":
        bert = Pretraining("bert", scale.deep)
        choices = [Start(name, bert, {"run_ner.py": {"feature_based": name, **scale.features}}) for name in CHOICES]
        return [Start("fine_tuned", bert), *choices]
    if table == "8":
        return [Start(name, Pretraining(name, scale.deep, _mix(*shares))) for name, shares in MIXES.items()]
    mlm, ltr = Pretraining("mlm", scale.size), Pretraining("ltr", scale.size, {"objective": "ltr"})
    return [Start("mlm", mlm), Start("ltr", ltr, {"run_glue.py": LABEL_AT_THE_END})]


def columns_of(table: str, scale: Scale, tasks: Sequence[Task]) -> list[tuple[Column, Task | None]]:
    """The columns of a table with their tasks; None for what pre-training measures itself."""
    if table == "figure5":
        numbers = range(1, CHECKPOINTS + 1)
        return [(Column(f"{t.key}@{n}", t.kind, t.constant, n), t) for t in tasks for n in numbers]
    found: list[tuple[Column, Task | None]] = [(Column(t.key, t.kind, t.constant), t) for t in tasks]
    if table == "8":
        tagging = [task for task in tasks if task.kind == "tags"]
        frozen = [_with_features(task, {"feature_based": "concat_last_four", **scale.features}) for task in tagging]
        found += [(Column(task.key, task.kind, task.constant), task) for task in frozen]
    if table in ("5", "6"):
        name = "loss" if table == "5" else "ppl"
        found.insert(0 if table == "6" else len(found), (Column(name, name), None))
    return found


def pretraining_cell(start: Pretraining, table: str, scale: Scale, text: Flags, seed: int) -> Cell:
    """A run of run_pretraining.py with a checkpoint after every fifth of its steps; Figure 5 needs all of them."""
    name, steps = f"pretrain-{start.name}-seed-{seed}", scale.steps[table]
    flags = {"output_dir": f"{CELLS}/{name}", "resume_from_checkpoint": "auto", **text}
    flags |= {"tokenizer_name": VOCABULARY, "config_name": f"sizes/{start.size.name}", **start.flags}
    flags |= {"phases": scale.phases, "max_steps": str(steps), "save_steps": str(max(1, steps // CHECKPOINTS))}
    flags |= {"save_total_limit": "0" if table == "figure5" else "1", **scale.pretraining, "seed": str(seed)}
    return Cell(name, "run_pretraining.py", flags, seed, start.size)


def tuning_cell(start: Start, task: Task, pretraining: Cell, seed: int, checkpoint: int, restarts: int) -> Cell:
    """A run of a fine-tuning script from a finished pre-training, or from one of its checkpoints."""
    name = f"{task.key}-{start.row}{f'-step-{checkpoint}' if checkpoint else ''}-seed-{seed}"
    model = f"{CELLS}/{pretraining.name}" + (f"/checkpoint-{checkpoint}" if checkpoint else "")
    flags = {"output_dir": f"{CELLS}/{name}", "resume_from_checkpoint": "auto", "model_name_or_path": model}
    flags |= {"tokenizer_name": VOCABULARY} if checkpoint else {}
    flags |= {**task.flags, **start.more.get(task.script, {}), "save_total_limit": "1", "seed": str(seed)}
    flags |= {"seeds": str(restarts)} if restarts else {}
    return Cell(name, task.script, flags, seed, pretraining.size, task, (pretraining.name,))


def _mix(mask: int, same: int, random: int) -> Flags:
    assert mask + same + random == 100
    return {"mask_replace_prob": f"{mask / 100:g}", "random_replace_prob": f"{random / 100:g}"}


def _with_features(task: Task, flags: Flags) -> Task:
    own = {**task.flags, **flags}
    return replace(task, kind="features", key=f"{task.key}_features", title=f"{task.title}, features", flags=own)


def _title(column: Column, task: Task | None, steps: int) -> str:
    if task is None:
        return {"loss": "held-out loss, nats", "ppl": "held-out perplexity"}[column.kind]
    return task.title + (f", {steps * column.checkpoint // CHECKPOINTS:,} steps" if column.checkpoint else "")


# --- the folder ------------------------------------------------------------------------------------------


def claim_folder(folder: Path, plan: Plan, checksums: dict[str, str]) -> None:
    """Record the plan in a new folder, or check that the folder holds this very plan.

    Raises:
        ValueError: it holds another plan, or other data than the plan began with.
    """
    content = {
        "table": plan.table,
        "scale": plan.scale,
        "seeds": list(plan.seeds),
        "files": checksums,
        "cells": {cell.name: [cell.script, *cell.command] for cell in plan.cells},
    }
    path = folder / PLAN
    if not path.is_file():
        if folder.is_dir() and any(folder.iterdir()):
            raise ValueError(f"--output_dir {folder}: expected an empty folder, or one with {PLAN}; give another")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, content)
        return
    earlier = json.loads(path.read_text(encoding="utf-8"))
    if earlier.get("files") != content["files"] and set(earlier.get("files", ())) == set(checksums):
        changed = [name for name, value in checksums.items() if earlier["files"][name] != value]
        raise ValueError(f"{', '.join(changed)}: changed since the runs had begun; give another --output_dir")
    changed = [
        f"{n} {earlier.get(n)} -> {content[n]}" for n in ("table", "scale", "seeds") if earlier.get(n) != content[n]
    ]
    if changed or earlier != content:
        detail = ", ".join(changed) or "other commands"
        raise ValueError(f"--output_dir {folder} holds another plan ({detail}); give another folder")


def is_finished(folder: Path, cell: Cell) -> bool:
    """Whether the folder of a cell says that its run, or all runs of its series, have finished."""
    place = folder / CELLS / cell.name
    return (place / "summary.json").is_file() if "seeds" in cell.flags else read_results(place) is not None


def read_scores(folder: Path, plan: Plan) -> dict[tuple[str, str], list[float]]:
    """(row, column) -> one score for each seed, in the order of the seeds, from the folders of finished cells."""
    found: dict[tuple[str, str], list[float]] = {}
    series = {cell.name for cell in plan.cells if "seeds" in cell.flags}
    for score in plan.scores:
        place = folder / CELLS / score.cell
        if score.cell in series:
            summary = json.loads((place / "summary.json").read_text(encoding="utf-8"))
            value = summary["settings"][0]["metrics"][score.metric]["mean"]
        else:
            value = (read_results(place) or {})[score.metric]
        found.setdefault((score.row, score.column), []).append(score.factor * value)
    return found
