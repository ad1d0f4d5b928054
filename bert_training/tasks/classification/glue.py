"""The tasks of GLUE, as a table: files, columns, labels and metrics of each; and the built-in tasks of the same kind.

``bert_training.tasks.classification.sources`` reads the examples of a task, ``labelled_texts`` holds them and makes the
inputs of the model, and ``scores`` computes the metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
COLA_HEADER = ("source", "label", "original_label", "sentence")
PAIR = ("sentence1", "sentence2")
PREMISE = ("premise", "hypothesis")
ENTAILMENT = ("entailment", "not_entailment")
THREE_WAY = ("entailment", "neutral", "contradiction")
NUMBERS = ("0", "1")  # how most files spell two classes
ACCURACY, WITH_F1, CORRELATIONS = ("accuracy",), ("accuracy", "f1"), ("pearson", "spearmanr")
MATTHEWS = ("matthews_correlation",)


@dataclass(frozen=True, kw_only=True)
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
        several_labels: whether a text may have any number of the labels.
        label_separator: what stands between the labels of a cell, if these are no lists.
        title: the name in reports and their pictures; "" stands for the folder, such as CoLA.
    """

    folder: str
    labels: tuple[str, ...] | None
    text_columns: tuple[tuple[str, ...], ...] = (PAIR,)
    label_columns: tuple[str, ...] = ("label",)
    metrics: tuple[str, ...] = ACCURACY
    spellings: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    header: tuple[str, ...] = ()
    positive: int = 1
    ragged_share: float = 0.0
    score_range: tuple[float, float] = (-np.inf, np.inf)
    several_labels: bool = False
    label_separator: str | None = None
    title: str = ""

    @property
    def main_metric(self) -> str:
        """The metric that the paper's Table 1 reports."""
        return self.metrics[-1]


# Label names and their order are those of nyu-mll/glue. Old copies of QQP contain questions with line breaks.
GLUE_TASKS: dict[str, Task] = {
    "cola": Task(folder="CoLA", text_columns=(("sentence",),), labels=("unacceptable", "acceptable"), spellings=NUMBERS,
                 metrics=MATTHEWS, files=PLAIN_FILES, header=COLA_HEADER),
    "sst2": Task(folder="SST-2", text_columns=(("sentence",),), labels=("negative", "positive"), spellings=NUMBERS,
                 files=PLAIN_FILES),
    "mrpc": Task(folder="MRPC", text_columns=(("#1 String", "#2 String"), PAIR), label_columns=("Quality", "label"),
                 labels=("not_equivalent", "equivalent"), spellings=NUMBERS, metrics=WITH_F1, files=PLAIN_FILES),
    "stsb": Task(folder="STS-B", label_columns=("score", "label"), labels=None, metrics=CORRELATIONS, files=PLAIN_FILES,
                 score_range=(0, 5)),
    "qqp": Task(folder="QQP", text_columns=(("question1", "question2"),), label_columns=("is_duplicate", "label"),
                labels=("not_duplicate", "duplicate"), spellings=NUMBERS, metrics=WITH_F1, files=PLAIN_FILES,
                ragged_share=1e-3),
    "mnli": Task(folder="MNLI", text_columns=(PAIR, PREMISE), label_columns=("gold_label", "label"), labels=THREE_WAY,
                 files=MNLI_FILES),
    "qnli": Task(folder="QNLI", text_columns=(("question", "sentence"),), labels=ENTAILMENT, files=PLAIN_FILES),
    "rte": Task(folder="RTE", labels=ENTAILMENT, files=PLAIN_FILES),
    "wnli": Task(folder="WNLI", labels=("not_entailment", "entailment"), spellings=NUMBERS, files=PLAIN_FILES),
    "ax": Task(folder="AX", text_columns=(PAIR, ("Premise", "Hypothesis"), PREMISE), label_columns=("Label", "label"),
               labels=THREE_WAY, metrics=MATTHEWS, files=AX_FILES),
}  # fmt: skip
BUILTIN_TASKS: dict[str, Task] = {
    "builtin_pair": Task(folder="builtin_pair", labels=("other_body", "own_body"), spellings=NUMBERS, metrics=WITH_F1,
                         files=PLAIN_FILES, title="pair task"),
    "builtin_classification": Task(folder="builtin_classification", text_columns=(("text",),), files=PLAIN_FILES,
                                   labels=("class", "function", "method"), title="class, function or method"),
}  # fmt: skip


def title_of(name: str) -> str:
    """The title of the task of this name; of an unknown name, itself."""
    task = (GLUE_TASKS | BUILTIN_TASKS).get(name)
    return (task.title or task.folder) if task else name


def positive_of(name: str | None) -> str | None:
    """The class that F1 is about in the task of this name; None for other data."""
    task = (GLUE_TASKS | BUILTIN_TASKS).get(str(name))
    return task.labels[task.positive] if task and task.labels else None


def server_name(task: Task, split: str = "test") -> str:
    """The file name that the GLUE server expects for the predictions of a split."""
    return task.folder + {"test_matched": "-m", "test_mismatched": "-mm"}.get(split, "") + ".tsv"
