"""The plan of a table: one cell for every run, each a command of another script, and which cells it needs.

A cell lives in ``cells/NAME`` of the output folder, from which all its paths are counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from training.paper.data import SIZES, VOCABULARY
from training.paper.published import CHECKPOINTS, CHOICES, LADDER, MIXES
from training.paper.scales import DATA, Flags, Scale, Size, Task
from training.paper.verdicts import Column

CELLS = "cells"
FIRST_SEED = 42
LABEL_AT_THE_END = {"label_token": "last"}
BILSTM = {"bilstm_on_top": ""}
FROZEN_CHOICE = "concat_last_four"  # the features of Table 8 (appendix C.2)


@dataclass(frozen=True)
class Pretraining:
    """A pre-training that rows of a table start from; ``flags`` are those in which it differs from other rows."""

    name: str
    size: Size
    flags: Flags = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedRow:
    """A row of a table.

    Attributes:
        name: as in ``published.py``.
        pretraining: what its fine-tuning starts from.
        fine_tuning: name of a script -> the flags that this row adds to it.
    """

    name: str
    pretraining: Pretraining
    fine_tuning: dict[str, Flags] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """A run or, with the flag ``seeds``, a series of runs.

    Attributes:
        size: of its network.
        task: None for pre-training.
        needs: the names of the cells that must be finished before.
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
        words = []
        for name, value in self.flags.items():
            words += [f"--{name}", *value.splitlines()]
        return words

    @property
    def is_series(self) -> bool:
        """Whether it consists of several runs."""
        return "seeds" in self.flags


@dataclass(frozen=True)
class Score:
    """Where a score of the table comes from.

    Attributes:
        row: the name of the row.
        column: the key of the column.
        cell: the name of the cell that measures it.
        metric: its key in the results of the cell.
        factor: turns it into the unit of the column.
    """

    row: str
    column: str
    seed: int
    cell: str
    metric: str
    factor: float


@dataclass(frozen=True)
class Plan:
    """All runs of a table, and the columns that they fill.

    Attributes:
        steps: the optimiser steps of each pre-training.
        scores: for each row and column one score for every seed, in the order of the seeds.
        task_titles: ``Column.task`` -> the title of the task.
    """

    table: str
    scale: str
    seeds: tuple[int, ...]
    steps: int
    cells: tuple[Cell, ...]
    scores: tuple[Score, ...]
    columns: tuple[Column, ...]
    task_titles: dict[str, str]

    @property
    def sizes(self) -> list[Size]:
        """Every size of a network, once."""
        return list(dict.fromkeys(cell.size for cell in self.cells))

    @property
    def reads_builtin_files(self) -> bool:
        """Whether a run reads the built-in corpus or one of its tasks."""
        return any(value.startswith(f"{DATA}/") for cell in self.cells for value in cell.flags.values())

    @property
    def titles(self) -> dict[str, str]:
        """The key of a column -> its heading."""
        headings = {}
        for column in self.columns:
            steps = f", {steps_at(column, self.steps):,} steps" if column.checkpoint else ""
            headings[column.key] = self.task_titles[column.task] + steps
        return headings


def steps_at(column: Column, steps: int) -> int:
    """The steps of pre-training before the checkpoint of a column; 0 if the column has no checkpoint.

    Args:
        steps: those of the whole pre-training.
    """
    return column.checkpoint * max(1, steps // CHECKPOINTS)


def make_plan(table: str, scale: Scale, tasks: Sequence[Task], text: Flags, number_of_seeds: int) -> Plan:
    """The plan of a table; the same arguments give the same plan.

    Args:
        text: the flags of pre-training that name the text.
    """
    seeds = tuple(range(FIRST_SEED, FIRST_SEED + number_of_seeds))
    columns = columns_of(table, scale, tasks)
    cells: dict[str, Cell] = {}
    scores = []
    for seed in seeds:
        for row in rows_of(table, scale):
            pretraining = pretraining_cell(row.pretraining, table, scale, text, seed)
            cells[pretraining.name] = pretraining  # the same for all rows that share it
            for column, task in columns:
                if task is None:
                    metric = "eval_perplexity" if column.kind == "ppl" else "eval_mlm_loss"
                    scores.append(Score(row.name, column.key, seed, pretraining.name, metric, 1.0))
                    continue
                checkpoint = steps_at(column, scale.steps[table])
                restarts = scale.restarts if table == "6" else 0
                cell = fine_tuning_cell(row, task, pretraining, seed, checkpoint, restarts)
                cells[cell.name] = cell
                scores.append(Score(row.name, column.key, seed, cell.name, task.metric, task.factor))
    return Plan(
        table=table,
        scale=scale.name,
        seeds=seeds,
        steps=scale.steps[table],
        cells=tuple(cells.values()),
        scores=tuple(scores),
        columns=tuple(column for column, _ in columns),
        task_titles={column.task: _title(column, task) for column, task in columns},
    )


def rows_of(table: str, scale: Scale) -> list[PlannedRow]:
    """The rows of a table, in the order of the paper."""
    if table == "5":
        return _rows_of_table_5(scale)
    if table == "6":
        return [PlannedRow(name, Pretraining(name, scale.ladder[name])) for name in LADDER]
    if table == "7":
        bert = Pretraining("bert", scale.deep)
        rows = [PlannedRow("fine_tuned", bert)]
        for choice in CHOICES:
            rows.append(PlannedRow(choice, bert, {"run_ner.py": {"feature_based": choice} | scale.features}))
        return rows
    if table == "8":
        return [PlannedRow(name, Pretraining(name, scale.deep, _mix(*shares))) for name, shares in MIXES.items()]
    mlm = Pretraining("mlm", scale.size)  # Figure 5; the default objective, which includes next sentence prediction
    ltr = Pretraining("ltr", scale.size, {"objective": "ltr"})
    return [PlannedRow("mlm", mlm), PlannedRow("ltr", ltr, {"run_glue.py": LABEL_AT_THE_END})]


def _rows_of_table_5(scale: Scale) -> list[PlannedRow]:
    bert = Pretraining("bert", scale.size, {"objective": "mlm_nsp"})
    no_nsp = Pretraining("no_nsp", scale.size, {"objective": "mlm"})
    ltr = Pretraining("ltr", scale.size, {"objective": "ltr"})
    bilstm = {"run_glue.py": LABEL_AT_THE_END | BILSTM, "run_squad.py": BILSTM}
    return [
        PlannedRow("bert", bert),
        PlannedRow("no_nsp", no_nsp),
        PlannedRow("ltr", ltr, {"run_glue.py": LABEL_AT_THE_END}),
        PlannedRow("ltr_bilstm", ltr, bilstm),
    ]


def columns_of(table: str, scale: Scale, tasks: Sequence[Task]) -> list[tuple[Column, Task | None]]:
    """The columns of a table with their tasks; None for what pre-training measures itself."""
    columns: list[tuple[Column, Task | None]] = []
    if table == "6":
        columns.append((Column("ppl", "ppl"), None))
    for task in tasks:
        for checkpoint in range(1, CHECKPOINTS + 1) if table == "figure5" else (0,):
            columns.append((Column(task.key, task.kind, task.constant, checkpoint), task))
    if table == "8":
        for task in (task for task in tasks if task.kind == "tags"):
            frozen = _with_features(task, scale)
            columns.append((Column(frozen.key, frozen.kind, frozen.constant), frozen))
    if table == "5":
        columns.append((Column("loss", "loss"), None))
    return columns


def pretraining_cell(pretraining: Pretraining, table: str, scale: Scale, text: Flags, seed: int) -> Cell:
    """A run of run_pretraining.py, which saves equally spaced checkpoints; only Figure 5 keeps them all."""
    name = f"pretrain-{pretraining.name}-seed-{seed}"
    steps = scale.steps[table]
    flags = {"output_dir": f"{CELLS}/{name}", "resume_from_checkpoint": "auto", **text}
    flags |= {"tokenizer_name": VOCABULARY, "config_name": f"{SIZES}/{pretraining.size.name}"}
    flags |= pretraining.flags
    flags |= {"phases": scale.phases, "max_steps": str(steps), "save_steps": str(max(1, steps // CHECKPOINTS))}
    flags |= {"save_total_limit": "0" if table == "figure5" else "1"}
    flags |= scale.pretraining
    flags |= {"seed": str(seed)}
    return Cell(name, "run_pretraining.py", flags, seed, pretraining.size)


def fine_tuning_cell(row: PlannedRow, task: Task, pretraining: Cell, seed: int, checkpoint: int, restarts: int) -> Cell:
    """A run of a fine-tuning script.

    Args:
        checkpoint: the step of the checkpoint that it starts from; 0 for the finished pre-training.
        restarts: the number of runs of a series; 0 for a single run.
    """
    step = f"-step-{checkpoint}" if checkpoint else ""
    name = f"{task.key}-{row.name}{step}-seed-{seed}"
    model = f"{CELLS}/{pretraining.name}" + (f"/checkpoint-{checkpoint}" if checkpoint else "")
    flags = {"output_dir": f"{CELLS}/{name}", "resume_from_checkpoint": "auto", "model_name_or_path": model}
    if checkpoint:
        flags |= {"tokenizer_name": VOCABULARY}
    flags |= task.flags
    flags |= row.fine_tuning.get(task.script, {})
    # The restarts of one pre-training share no seed with those of another: their scores would not be independent.
    first_seed = FIRST_SEED + (seed - FIRST_SEED) * restarts if restarts else seed
    flags |= {"save_total_limit": "1", "seed": str(first_seed)}
    if restarts:
        flags |= {"seeds": str(restarts)}
    return Cell(name, task.script, flags, seed, pretraining.size, task, (pretraining.name,))


def _mix(mask: int, same: int, random: int) -> Flags:
    """The flags of a mix of masks, whose shares are in per cent."""
    assert mask + same + random == 100
    return {"mask_replace_prob": f"{mask / 100:g}", "random_replace_prob": f"{random / 100:g}"}


def _with_features(task: Task, scale: Scale) -> Task:
    """A tagging task with the features of a frozen network."""
    return replace(
        task,
        kind="features",
        key=f"{task.key}_features",
        title=f"{task.title}, features",
        flags=task.flags | {"feature_based": FROZEN_CHOICE} | scale.features,
    )


def _title(column: Column, task: Task | None) -> str:
    if task is None:
        return {"loss": "held-out loss, nats", "ppl": "held-out perplexity"}[column.kind]
    return task.title
