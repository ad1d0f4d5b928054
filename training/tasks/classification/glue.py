"""The tasks of GLUE, as a table: files, columns, labels and metrics of each; and the built-in tasks of the same kind.

``training.tasks.classification.sources`` reads the examples of a task, ``labelled_texts`` holds them and makes the
inputs of the model, and ``scores`` computes the metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PLAIN_FILES = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
MNLI_FILES = {
    "train": "train.tsv",
    "validation_matched": "dev_matched.tsv",
    "validation_mismatched": "dev_mismatched.tsv",
    "test_matched": "test_matched.tsv",
    "test_mismatched": "test_mismatched.tsv",
}
AX_FILES = {"validation": "diagnostic-full.tsv", "test": "diagnostic.tsv"}
AX_CATEGORIES = ("Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge")
COLA_HEADER = ("source", "label", "original_label", "sentence")
PAIR = ("sentence1", "sentence2")
PREMISE = ("premise", "hypothesis")
ENTAILMENT = ("entailment", "not_entailment")
THREE_WAY = ("entailment", "neutral", "contradiction")


@dataclass(frozen=True)
class Task:
    """A task: one row of ``GLUE_TASKS`` or ``BUILTIN_TASKS``.

    Attributes:
        folder: the folder in the official archive; with ``.tsv`` appended, the file that the GLUE server expects.
        text_columns: possible names of the text columns; the first alternative that the file has is used.
        label_columns: possible names of the label column.
        labels: names of the classes in the order of their numbers; None for regression.
        metrics: names in METRICS.
        spellings: how the files spell the classes, in the order of ``labels``; empty if they use the names.
        files: the file name of each split in the official layout.
        header: the column names of official files that have no header line.
        positive: number of the class whose F1 is computed.
        ragged_share: the share of rows that may be broken in the official release; these are left out and reported.
        score_range: the lowest and the highest regression label.
        categories: columns that define categories: a row belongs to the category if its cell is not empty.
        title: the name in reports and their pictures; "" stands for the folder, such as CoLA.
    """

    folder: str
    text_columns: tuple[tuple[str, ...], ...]
    label_columns: tuple[str, ...]
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    spellings: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    header: tuple[str, ...] = ()
    positive: int = 1
    ragged_share: float = 0.0
    score_range: tuple[float, float] = (-np.inf, np.inf)
    categories: tuple[str, ...] = ()
    title: str = ""

    @property
    def main_metric(self) -> str:
        """The metric that the paper's Table 1 reports."""
        return self.metrics[-1]


def _task(
    folder: str,
    text_columns: tuple[tuple[str, ...], ...],
    label_columns: tuple[str, ...],
    labels: tuple[str, ...] | None,
    metrics: tuple[str, ...],
    files: dict[str, str] = PLAIN_FILES,
    spellings: tuple[str, ...] = ("0", "1"),
    **more: Any,
) -> Task:
    return Task(folder, text_columns, label_columns, labels, metrics, spellings, files, **more)


ACCURACY, WITH_F1, CORRELATIONS = ("accuracy",), ("accuracy", "f1"), ("pearson", "spearmanr")
# Label names and their order are those of nyu-mll/glue. Old copies of QQP contain questions with line breaks.
GLUE_TASKS: dict[str, Task] = {
    "cola": _task("CoLA", (("sentence",),), ("label",), ("unacceptable", "acceptable"),
                  ("matthews_correlation",), header=COLA_HEADER),
    "sst2": _task("SST-2", (("sentence",),), ("label",), ("negative", "positive"), ACCURACY),
    "mrpc": _task("MRPC", (("#1 String", "#2 String"), PAIR), ("Quality", "label"),
                  ("not_equivalent", "equivalent"), WITH_F1),
    "stsb": _task("STS-B", (PAIR,), ("score", "label"), None, CORRELATIONS, spellings=(), score_range=(0, 5)),
    "qqp": _task("QQP", (("question1", "question2"),), ("is_duplicate", "label"),
                 ("not_duplicate", "duplicate"), WITH_F1, ragged_share=1e-3),
    "mnli": _task("MNLI", (PAIR, PREMISE), ("gold_label", "label"), THREE_WAY, ACCURACY, MNLI_FILES, ()),
    "qnli": _task("QNLI", (("question", "sentence"),), ("label",), ENTAILMENT, ACCURACY, spellings=()),
    "rte": _task("RTE", (PAIR,), ("label",), ENTAILMENT, ACCURACY, spellings=()),
    "wnli": _task("WNLI", (PAIR,), ("label",), ("not_entailment", "entailment"), ACCURACY),
    "ax": _task("AX", (PAIR, ("Premise", "Hypothesis"), PREMISE), ("Label", "label"), THREE_WAY,
                ("matthews_correlation",), AX_FILES, (), categories=AX_CATEGORIES),
}  # fmt: skip
BUILTIN_TASKS: dict[str, Task] = {
    "builtin_pair": _task("builtin_pair", (PAIR,), ("label",), ("other_body", "own_body"), WITH_F1,
                          title="pair task"),
    "builtin_classification": _task("builtin_classification", (("sentence",),), ("label",),
                                    ("class", "function", "method"), ACCURACY, spellings=(),
                                    title="class, function or method"),
}  # fmt: skip
# The former names of the built-in tasks: commands accept them, and older records contain them.
FORMER_NAMES = {"embedded_pair": "builtin_pair", "embedded_classification": "builtin_classification"}


def title_of(name: str) -> str:
    """The title of the task of this name, as --task_name or an older record spells it; of an unknown name, itself."""
    task = (GLUE_TASKS | BUILTIN_TASKS).get(FORMER_NAMES.get(name, name))
    return (task.title or task.folder) if task else name


def server_name(task: Task, split: str = "test") -> str:
    """The file name that the GLUE server expects for the predictions of a split."""
    return task.folder + {"test_matched": "-m", "test_mismatched": "-mm"}.get(split, "") + ".tsv"


# For the user's own data: the first of these that a file has.
OWN_TEXTS = (
    PAIR,
    PREMISE,
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "answer"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("sentence",),
    ("text",),
)
OWN_LABELS = ("label", "labels", "gold_label", "score", "similarity_score", "target", "class", "category")
