"""The plan of a table: one cell for every run, each a command of another script, and which cells it needs.

A cell lives in ``cells/NAME`` of the output folder, from which all its paths are counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.recipes import initial_range
from bert_training.inputs.flags.scripts import SCRIPTS
from lab.paper.experiments import EXPERIMENTS, Experiment, PlannedColumn, PlannedRow, Pretraining
from lab.paper.published import CHECKPOINTS
from lab.paper.scales import CELLS, DATA, SIZES, VOCABULARY, Flags, Scale, Size, Task
from lab.paper.verdicts import Column

FIRST_SEED = 42
SMALL = 0.01  # numbers below this are written with an exponent, as in "2e-3"


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
        return words_of(self.flags)

    @property
    def is_series(self) -> bool:
        """Whether it consists of several runs."""
        return "seeds" in self.flags

    def arguments(self) -> Any:
        """The flags as the script reads them, with the defaults of those that are not given."""
        arguments_class: type[Any] = SCRIPTS[self.script].arguments
        return parse_arguments(arguments_class, self.command)


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
class Outline:
    """What a report needs to know of a plan; ``record.json`` keeps it, so that the report can be made again from there.

    Attributes:
        steps: the optimiser steps of each pre-training.
        labels: the name of a row -> what it is called in the report.
        scores: for each row and column one score for every seed, in the order of the seeds.
        pretrainings: the name of a pre-training -> the names of its cells, in the order of the seeds.
        task_titles: ``Column.task`` -> the title of the task.
    """

    table: str
    scale: str
    seeds: tuple[int, ...]
    steps: int
    labels: dict[str, str]
    columns: tuple[Column, ...]
    task_titles: dict[str, str]
    pretrainings: dict[str, tuple[str, ...]]
    scores: tuple[Score, ...]

    @property
    def experiment(self) -> Experiment:
        """What the table is about."""
        return EXPERIMENTS[self.table]

    @property
    def titles(self) -> dict[str, str]:
        """The key of a column -> its heading."""
        headings = {}
        for column in self.columns:
            steps = f", {steps_at(column, self.steps):,} steps" if column.checkpoint else ""
            headings[column.key] = self.task_titles[column.task] + steps
        return headings


@dataclass(frozen=True)
class Plan(Outline):
    """All runs of a table, and the scores that they give.

    Attributes:
        network: ``Scale.network``.
    """

    cells: tuple[Cell, ...]
    network: dict[str, Any]

    @property
    def sizes(self) -> list[Size]:
        """Every size of a network, once."""
        return list(dict.fromkeys(cell.size for cell in self.cells))

    @property
    def reads_builtin_files(self) -> bool:
        """Whether a run reads the built-in corpus or one of its tasks."""
        return any(word.startswith(f"{DATA}/") for cell in self.cells for word in cell.command)


def steps_at(column: Column, steps: int) -> int:
    """The steps of pre-training before the checkpoint of a column; 0 if the column has no checkpoint.

    Args:
        steps: those of the whole pre-training.
    """
    return column.checkpoint * steps_between_checkpoints(steps)


def steps_between_checkpoints(steps: int) -> int:
    """The steps from one checkpoint of a pre-training to the next."""
    return max(1, steps // CHECKPOINTS)


def make_plan(
    experiment: Experiment, scale: Scale, tasks: Sequence[Task], text_flags: Flags, number_of_seeds: int
) -> Plan:
    """The plan of a table; the same arguments give the same plan.

    Args:
        text_flags: the flags of pre-training that name the text.
    """
    seeds = tuple(range(FIRST_SEED, FIRST_SEED + number_of_seeds))
    rows, columns = experiment.rows(scale), experiment.columns(scale, tasks)
    cells: dict[str, Cell] = {}
    pretrainings: dict[str, list[str]] = {}
    scores = []
    for seed in seeds:
        for row in rows:
            pretraining = pretraining_cell(row.pretraining, experiment, scale, text_flags, seed)
            if pretraining.name not in cells:  # rows may share it
                cells[pretraining.name] = pretraining
                pretrainings.setdefault(row.pretraining.name, []).append(pretraining.name)
            for column in columns:
                cell = pretraining
                if column.task is not None:
                    cell = fine_tuning_cell(row, column, column.task, pretraining, experiment, scale, seed)
                    cells[cell.name] = cell
                scores.append(Score(row.name, column.column.key, seed, cell.name, column.metric, column.factor))
    return Plan(
        table=experiment.table,
        scale=scale.name,
        seeds=seeds,
        steps=experiment.steps_at(scale),
        labels={
            row.name: row.label or papers.label for row, papers in zip(rows, experiment.published.rows, strict=True)
        },
        columns=tuple(column.column for column in columns),
        task_titles={column.column.task: column.title for column in columns},
        pretrainings={name: tuple(of_seeds) for name, of_seeds in pretrainings.items()},
        scores=tuple(scores),
        cells=tuple(cells.values()),
        network=scale.network,
    )


def pretraining_cell(
    pretraining: Pretraining, experiment: Experiment, scale: Scale, text_flags: Flags, seed: int
) -> Cell:
    """A run of run_pretraining.py, which saves equally spaced checkpoints."""
    name = f"pretrain-{pretraining.name}-seed-{seed}"
    steps = experiment.steps_at(scale)
    flags: Flags = {"output_dir": f"{CELLS}/{name}", "resume_from_checkpoint": "auto", **text_flags}
    flags |= {"tokenizer_name": VOCABULARY, "config_name": f"{SIZES}/{pretraining.size.name}"}
    flags |= pretraining.flags
    phases = scale.phases if objective_of(pretraining.flags).pairs else scale.phases_without_nsp
    flags |= {"phases": phases, "max_steps": steps, "save_steps": steps_between_checkpoints(steps)}
    flags |= {"save_total_limit": 0 if experiment.keeps_checkpoints else 1}
    flags |= scale.pretraining
    if "recipe" in flags:  # It would read the width from a path that exists only in the output folder.
        flags |= {"initializer_range": initial_range(pretraining.size.hidden)}
    flags |= {"seed": seed}
    return Cell(name, "run_pretraining.py", flags, seed, pretraining.size)


def fine_tuning_cell(
    row: PlannedRow,
    column: PlannedColumn,
    task: Task,
    pretraining: Cell,
    experiment: Experiment,
    scale: Scale,
    seed: int,
) -> Cell:
    """A run of a fine-tuning script or, for a table with restarts, a series of runs.

    Args:
        task: that of the column.
    """
    checkpoint = steps_at(column.column, experiment.steps_at(scale))
    step = f"-step-{checkpoint}" if checkpoint else ""
    name = f"{task.key}-{row.name}{step}-seed-{seed}"
    model = f"{CELLS}/{pretraining.name}" + (f"/checkpoint-{checkpoint}" if checkpoint else "")
    flags: Flags = {"output_dir": f"{CELLS}/{name}", "resume_from_checkpoint": "auto", "model_name_or_path": model}
    if checkpoint:
        flags |= {"tokenizer_name": VOCABULARY}
    flags |= task.flags
    flags |= row.fine_tuning.get(task.script, {})
    flags |= {"save_total_limit": 1, "seed": seed}
    if experiment.has_restarts:
        # The restarts of one pre-training share no seed with those of another: their scores would not be independent.
        flags |= {"seed": FIRST_SEED + (seed - FIRST_SEED) * scale.restarts, "seeds": scale.restarts}
    return Cell(name, task.script, flags, seed, pretraining.size, task, (pretraining.name,))


# --- Command lines -------------------------------------------------------------------------------------------------


def words_of(flags: Flags) -> list[str]:
    """The words of a command, in the order of the flags. A switch that is off is left out."""
    words = []
    for name, value in flags.items():
        if value is False:
            continue
        words.append(f"--{name}")
        if isinstance(value, str):
            words.append(value)
        elif isinstance(value, Sequence):
            words += value
        elif value is not True:
            words.append(number_in_words(value))
    return words


def files_in(flags: Flags) -> list[str]:
    """The files and folders that the flags name."""
    named: list[str] = []
    for name, value in flags.items():
        if name.endswith(("_file", "_dir")):
            named += [value] if isinstance(value, str) else value if isinstance(value, Sequence) else []
    return named


def number_in_words(value: float) -> str:
    """A number as one writes it by hand: "1200", "0.8", "2e-3"."""
    if isinstance(value, int):
        return str(value)
    text = f"{value:g}"
    if 0 < abs(value) < SMALL:
        mantissa, exponent = f"{value:e}".split("e")
        text = f"{float(mantissa):g}e{int(exponent)}"
    assert float(text) == value, f"{value!r} has more digits than {text}"
    return text
