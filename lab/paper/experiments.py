"""The five experiments: what each table of the paper compares, and how we repeat it at every scale.

A new table is one more ``Experiment`` and its value of ``--table``; the paper's numbers and claims are in
``published.py``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from lab.paper.published import (
    CHECKPOINTS,
    CHOICES,
    FIGURE_5,
    LADDER,
    MIXES,
    TABLE_5,
    TABLE_6,
    TABLE_7,
    TABLE_8,
    Published,
)
from lab.paper.scales import Flags, Scale, Size, Task
from lab.paper.verdicts import Column

Alternatives = tuple[tuple[str, ...], ...]  # for each column the keys of tasks; the first that has data is taken
LABEL_AT_THE_END: Flags = {"label_token": "last"}
BILSTM: dict[str, Flags] = {"run_glue.py": {"label_token": "bilstm"}, "run_squad.py": {"bilstm_on_top": True}}
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
        label: what it is called in the report; "" for the paper's label.
    """

    name: str
    pretraining: Pretraining
    fine_tuning: dict[str, Flags] = field(default_factory=dict)
    label: str = ""


@dataclass(frozen=True)
class PlannedColumn:
    """A column of a table, and the result that fills it.

    Attributes:
        title: its heading, without the steps of its checkpoint.
        metric: the key of the score in the results of a run.
        factor: turns it into the unit of the column.
        task: the task of the runs; None for what pre-training measures itself.
    """

    column: Column
    title: str
    metric: str
    factor: float = 1.0
    task: Task | None = None


@dataclass(frozen=True)
class Experiment:
    """A table of the paper, or its Figure 5.

    Attributes:
        table: the value of --table.
        published: what the paper reports and claims.
        steps: ``Scale.data`` -> the optimiser steps of each pre-training.
        tasks: ``Scale.data`` -> the tasks of the columns.
        builtin_examples: how many examples of the built-in tasks are used for training and for validation, so that the
            table takes less than half an hour on two cores.
        rows: a scale -> the rows, in the order of the paper.
        columns: a scale and the tasks that have data -> the columns.
        has_restarts: whether each fine-tuning is repeated with several seeds, and the mean counts.
        keeps_checkpoints: whether pre-training keeps all of its checkpoints.
        needs_case: whether the paper's scale needs a vocabulary with upper case.
        note: a sentence for below the table, about what can and cannot be compared in it.
    """

    table: str
    published: Published
    steps: dict[str, int]
    tasks: dict[str, Alternatives]
    builtin_examples: tuple[int, int]
    rows: Callable[[Scale], list[PlannedRow]]
    columns: Callable[[Scale, Sequence[Task]], list[PlannedColumn]]
    has_restarts: bool = False
    keeps_checkpoints: bool = False
    needs_case: bool = False
    note: str = ""

    def steps_at(self, scale: Scale) -> int:
        """The optimiser steps of each pre-training."""
        return scale.steps or self.steps[scale.data]


# --- Columns ---------------------------------------------------------------------------------------------------------


def columns_of_tasks(scale: Scale, tasks: Sequence[Task]) -> list[PlannedColumn]:
    """One column for each task."""
    return [column_of(task) for task in tasks]


def column_of(task: Task, checkpoint: int = 0) -> PlannedColumn:
    """The column of a task.

    Args:
        checkpoint: the number of the checkpoint that is fine-tuned; 0 for the finished pre-training.
    """
    column = Column(task.key, task.kind, task.constant, checkpoint)
    return PlannedColumn(column, task.title, task.metric, task.factor, task)


def _tasks_and_loss(scale: Scale, tasks: Sequence[Task]) -> list[PlannedColumn]:
    loss = PlannedColumn(Column("loss", "loss"), "held-out loss, nats", "eval_mlm_loss")
    return [*columns_of_tasks(scale, tasks), loss]


def _perplexity_and_tasks(scale: Scale, tasks: Sequence[Task]) -> list[PlannedColumn]:
    perplexity = PlannedColumn(Column("ppl", "ppl"), "held-out perplexity", "eval_perplexity")
    return [perplexity, *columns_of_tasks(scale, tasks)]


def _tasks_and_features(scale: Scale, tasks: Sequence[Task]) -> list[PlannedColumn]:
    """The tasks and, for those of tagging, the same with the features of a frozen network."""
    frozen = [
        replace(
            task,
            kind="features",
            key=f"{task.key}_features",
            title=f"{task.title}, features",
            flags=task.flags | {"feature_based": FROZEN_CHOICE} | scale.features,
        )
        for task in tasks
        if task.kind == "tags"
    ]
    return columns_of_tasks(scale, [*tasks, *frozen])


def _tasks_at_checkpoints(scale: Scale, tasks: Sequence[Task]) -> list[PlannedColumn]:
    return [column_of(task, checkpoint) for task in tasks for checkpoint in range(1, CHECKPOINTS + 1)]


# --- Rows ------------------------------------------------------------------------------------------------------------


def _rows_of_table_5(scale: Scale) -> list[PlannedRow]:
    bert = Pretraining("bert", scale.size, {"objective": "mlm_nsp"})
    no_nsp = Pretraining("no_nsp", scale.size, {"objective": "mlm"})
    ltr = Pretraining("ltr", scale.size, {"objective": "ltr"})
    return [
        PlannedRow("bert", bert, label="BERT"),
        PlannedRow("no_nsp", no_nsp),
        PlannedRow("ltr", ltr, {"run_glue.py": LABEL_AT_THE_END}),
        PlannedRow("ltr_bilstm", ltr, BILSTM),
    ]


def _rows_of_table_6(scale: Scale) -> list[PlannedRow]:
    return [PlannedRow(name, Pretraining(name, scale.ladder[name]), label=scale.ladder[name].words) for name in LADDER]


def _rows_of_table_7(scale: Scale) -> list[PlannedRow]:
    bert = Pretraining("bert", scale.table_7_size)
    features: dict[str, Flags] = {choice: {"feature_based": choice} | scale.features for choice in CHOICES}
    return [
        PlannedRow("fine_tuned", bert, label="Fine-tuned"),
        *(PlannedRow(choice, bert, {"run_ner.py": flags}) for choice, flags in features.items()),
    ]


def _rows_of_table_8(scale: Scale) -> list[PlannedRow]:
    return [PlannedRow(name, Pretraining(name, scale.table_8_size, _mix(*shares))) for name, shares in MIXES.items()]


def _mix(mask: int, same: int, random: int) -> Flags:
    """The flags of a mix of masks, whose shares are in per cent."""
    assert mask + same + random == 100
    return {"mask_replace_prob": mask / 100, "random_replace_prob": random / 100}


def _rows_of_figure_5(scale: Scale) -> list[PlannedRow]:
    mlm = Pretraining("mlm", scale.size)  # the default objective, which includes next sentence prediction
    ltr = Pretraining("ltr", scale.size, {"objective": "ltr"})
    return [
        PlannedRow("mlm", mlm, label="Masked LM"),
        PlannedRow("ltr", ltr, {"run_glue.py": LABEL_AT_THE_END}, label="Left to right"),
    ]


# --- The experiments -------------------------------------------------------------------------------------------------

PAPERS_STEPS = 1_000_000
MNLI_OR_SMALLER = ("mnli", "sst2", "mrpc")
PRETRAINING_TASKS = Experiment(
    table="5",
    published=TABLE_5,
    steps={"builtin": 800, "small": 1500, "paper": PAPERS_STEPS},
    tasks={
        "builtin": (("pair",), ("kind",), ("qa",)),
        "small": (("mnli",), ("qnli",), ("mrpc",), ("sst2",), ("squad",)),
        "paper": (("mnli",), ("qnli",), ("mrpc",), ("sst2",), ("squad",)),
    },
    builtin_examples=(3000, 1000),
    rows=_rows_of_table_5,
    columns=_tasks_and_loss,
    note=(
        "The held-out losses of the rows cannot be compared: that of a left-to-right model is of all words, that of "
        "the others of masked ones; and BERT reads pairs of segments, the other rows one segment."
    ),
)
MODEL_SIZE = Experiment(
    table="6",
    published=TABLE_6,
    steps={"builtin": 500, "small": 1000, "paper": PAPERS_STEPS},
    tasks={
        "builtin": (("pair",), ("kind",)),
        "small": (("mnli",), ("mrpc",), ("sst2",)),
        "paper": (("mnli",), ("mrpc",), ("sst2",)),
    },
    builtin_examples=(1000, 500),
    rows=_rows_of_table_6,
    columns=_perplexity_and_tasks,
    has_restarts=True,
    note="All sizes have the same learning rates, which were not searched for any of them.",
)
FEATURES = Experiment(
    table="7",
    published=TABLE_7,
    steps={"builtin": 600, "small": 1500, "paper": PAPERS_STEPS},
    tasks={"builtin": (("code",),), "small": (("conll", "code"),), "paper": (("conll",),)},
    builtin_examples=(3000, 500),
    rows=_rows_of_table_7,
    columns=columns_of_tasks,
    needs_case=True,
)
MASKING = Experiment(
    table="8",
    published=TABLE_8,
    steps={"builtin": 400, "small": 1000, "paper": PAPERS_STEPS},
    tasks={
        "builtin": (("kind",), ("code",)),
        "small": (MNLI_OR_SMALLER, ("conll", "code")),
        "paper": (("mnli",), ("conll",)),
    },
    builtin_examples=(1200, 500),
    rows=_rows_of_table_8,
    columns=_tasks_and_features,
)
TRAINING_STEPS = Experiment(
    table="figure5",
    published=FIGURE_5,
    steps={"builtin": 800, "small": 1500, "paper": PAPERS_STEPS},
    tasks={"builtin": (("pair",), ("kind",)), "small": (MNLI_OR_SMALLER,), "paper": (("mnli",),)},
    builtin_examples=(3000, 1000),
    rows=_rows_of_figure_5,
    columns=_tasks_at_checkpoints,
    keeps_checkpoints=True,
    note=(
        "The masked LM is also trained on next sentence prediction, the left-to-right model is not. Only at the last "
        "checkpoint has the learning rate fallen to 0."
    ),
)
EXPERIMENTS = {
    experiment.table: experiment for experiment in (PRETRAINING_TASKS, MODEL_SIZE, FEATURES, MASKING, TRAINING_STEPS)
}
