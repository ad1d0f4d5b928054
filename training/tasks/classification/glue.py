"""GLUE and other text classification: a table of the tasks, their features for the model, scores and predictions.

A row of MRPC's dev.tsv (official layout, tab-separated, never quoted) becomes one input of the model:

    Quality  #1 ID    #2 ID    #1 String                     #2 String
    0        2029631  2029565  He said the pie business ...  " The pie business is ...

    tokens   [CLS] he said the pie business ... [SEP] " the pie business is ... [SEP]
    type ids   0    0   0   0   0   0       ...   0   1  1   1     1     1  ...   1
    label    0, which the model folder calls "not_equivalent"

`training.tasks.classification.sources` reads the examples.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from training.engine.batches import Features
from training.tasks.classification.metrics import METRICS
from training.tasks.task_data import ProblemType

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
        texts: possible names of the text columns; the first alternative that the file has is used.
        label: possible names of the label column.
        labels: names of the classes in the order of their numbers; None for regression.
        metrics: names in METRICS.
        digits: how the files spell the classes, in the order of ``labels``; empty if they use the names.
        files: the file name of each split in the official layout.
        header: the column names of official files that have no header line.
        positive: number of the class whose F1 is computed.
        ragged_share: the share of rows that may be broken in the official release; these are left out and reported.
        score_range: the lowest and the highest regression label.
        categories: columns that define categories: a row belongs to the category if its cell is not empty.
        title: the name in reports and their pictures; "" stands for the folder, such as CoLA.
    """

    folder: str
    texts: tuple[tuple[str, ...], ...]
    label: tuple[str, ...]
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    digits: tuple[str, ...] = ()
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
    texts: tuple[tuple[str, ...], ...],
    label: tuple[str, ...],
    labels: tuple[str, ...] | None,
    metrics: tuple[str, ...],
    files: dict[str, str] = PLAIN_FILES,
    digits: tuple[str, ...] = ("0", "1"),
    **more: Any,
) -> Task:
    return Task(folder, texts, label, labels, metrics, digits, files, **more)


ACCURACY, WITH_F1, CORRELATIONS = ("accuracy",), ("accuracy", "f1"), ("pearson", "spearmanr")
# Label names and their order are those of nyu-mll/glue. Old copies of QQP contain questions with line breaks.
GLUE_TASKS: dict[str, Task] = {
    "cola": _task("CoLA", (("sentence",),), ("label",), ("unacceptable", "acceptable"),
                  ("matthews_correlation",), header=COLA_HEADER),
    "sst2": _task("SST-2", (("sentence",),), ("label",), ("negative", "positive"), ACCURACY),
    "mrpc": _task("MRPC", (("#1 String", "#2 String"), PAIR), ("Quality", "label"),
                  ("not_equivalent", "equivalent"), WITH_F1),
    "stsb": _task("STS-B", (PAIR,), ("score", "label"), None, CORRELATIONS, digits=(), score_range=(0, 5)),
    "qqp": _task("QQP", (("question1", "question2"),), ("is_duplicate", "label"),
                 ("not_duplicate", "duplicate"), WITH_F1, ragged_share=1e-3),
    "mnli": _task("MNLI", (PAIR, PREMISE), ("gold_label", "label"), THREE_WAY, ACCURACY, MNLI_FILES, ()),
    "qnli": _task("QNLI", (("question", "sentence"),), ("label",), ENTAILMENT, ACCURACY, digits=()),
    "rte": _task("RTE", (PAIR,), ("label",), ENTAILMENT, ACCURACY, digits=()),
    "wnli": _task("WNLI", (PAIR,), ("label",), ("not_entailment", "entailment"), ACCURACY),
    "ax": _task("AX", (PAIR, ("Premise", "Hypothesis"), PREMISE), ("Label", "label"), THREE_WAY,
                ("matthews_correlation",), AX_FILES, (), categories=AX_CATEGORIES),
}  # fmt: skip
BUILTIN_TASKS: dict[str, Task] = {
    "builtin_pair": _task("builtin_pair", (PAIR,), ("label",), ("other_body", "own_body"), WITH_F1,
                          title="pair task"),
    "builtin_classification": _task("builtin_classification", (("sentence",),), ("label",),
                                    ("class", "function", "method"), ACCURACY, digits=(),
                                    title="class, function or method"),
}  # fmt: skip
# The former names of the built-in tasks: commands accept them, and older records contain them.
FORMER_NAMES = {"embedded_pair": "builtin_pair", "embedded_classification": "builtin_classification"}


def title_of(name: str) -> str:
    """The title of the task of this name, as --task_name or an older record spells it; of an unknown name, itself."""
    task = (GLUE_TASKS | BUILTIN_TASKS).get(FORMER_NAMES.get(name, name))
    return (task.title or task.folder) if task else name


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
ROW_NAMES = ("", "id", "idx", "index", "guid", "uid", "row")
INTEGER = re.compile(r"[-+]?\d+")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@dataclass
class Examples:
    """One split.

    Attributes:
        texts: one list, or two for pairs, with a text for each row.
        labels: as in the source until ``encode_labels`` turns them into numbers; None if they are hidden.
        index: the index of each row in the source, or 0, 1, ... if the source has none.
        where: returns the place of a row, counted from 0, for error messages.
        facts: the split's part of run.json.
        columns: the names of the columns that were read.
        categories: the cells of each column that defines a category.
    """

    texts: tuple[list[str], ...]
    labels: list | None
    index: list[str]
    where: Callable[[int], str]
    facts: dict
    columns: "Columns"
    categories: dict[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts[0])

    def first(self, count: int | None) -> "Examples":
        """The first ``count`` examples; all of them for None."""
        cut = slice(count)
        labels = None if self.labels is None else self.labels[cut]
        texts = tuple(column[cut] for column in self.texts)
        categories = {name: cells[cut] for name, cells in self.categories.items()}
        return replace(self, texts=texts, labels=labels, index=self.index[cut], categories=categories)


@dataclass(frozen=True)
class Columns:
    """The names of the columns to read; the name of the label or the index is None if the file does not have it."""

    texts: tuple[str, ...]
    label: str | None
    index: str | None
    categories: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """All names, without None."""
        return [name for name in (*self.texts, self.label, self.index, *self.categories) if name is not None]


@dataclass
class Data:
    """The data of a run: the name of its task ("custom" for the user's own data), the task, and the splits."""

    name: str
    task: Task
    splits: dict[str, Examples]

    @property
    def problem_type(self) -> ProblemType:
        """The value for `problem_type` in the model's config."""
        return "regression" if self.task.labels is None else "single_label_classification"

    @property
    def to_predict(self) -> list[str]:
        """The test splits. A task without training data (AX) and without a test split predicts what it evaluates."""
        tests = [split for split in self.splits if split.startswith("test")]
        only_evaluates = self.task.files and "train" not in self.task.files
        return tests or ([*self.splits] if only_evaluates else [])

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names that a pipeline prints."""
        return self.task.labels or ("score",)

    def describe(self) -> dict:
        """The facts for run.json: sources, counts, hashes and label names."""
        facts = {split: {"examples": len(examples)} | examples.facts for split, examples in self.splits.items()}
        return {"task": self.name, "labels": self.task.labels, "splits": facts}

    def summary(self) -> str:
        """A few lines for the user: what was read from where."""
        lines = []
        for split, examples in self.splits.items():
            columns = ", ".join(map(repr, examples.columns.names()))
            lines.append(f"{self.name} {split}: {len(examples):,} examples, {examples.facts['source']} ({columns})")
            if broken := examples.facts.get("broken_lines_left_out"):
                lines.append(f"  left out {len(broken)} broken lines: {', '.join(map(str, broken[:20]))}")
        return "\n".join([*lines, f"labels: {', '.join(self.task.labels or ['scores'])}"])

    def metric_names(self) -> tuple[list[str], str]:
        """The results by which the best model may be chosen, and the one used by default."""
        splits = [prefix(split) for split in self.splits if split.startswith("validation")]
        names = [split + metric for split in splits for metric in (*self.task.metrics, "loss")]
        return names, splits[0] + self.task.main_metric if splits else ""

    def baselines(self) -> dict[str, float]:
        """The results of a model that always predicts the most frequent class or the same score."""
        values: dict[str, float] = {}
        for split, examples in self.splits.items():
            if split.startswith("validation"):
                scores = score_of_constant(self.task, np.asarray(examples.labels))
                values |= {prefix(split) + name: value for name, value in scores.items()}
        return values


# --- columns ---------------------------------------------------------------------------------------------


def find_columns(task: Task, header: list[str], labelled: bool) -> Columns:
    """The task's columns in a header. If the user's own data has none of the usual names, the one or two columns that
    are neither label nor index are the texts.

    Raises:
        ValueError: the header lacks a column.
    """
    label = next((name for name in task.label if name in header), None)
    if labelled and label is None:
        raise ValueError(f"expected a column {_or(task.label)}, got {_listed(header)}; rename the label column")
    texts = next((names for names in task.texts if set(names) <= set(header)), None)
    if texts is None and task.texts is OWN_TEXTS:
        left = tuple(name for name in header if name != label and name.lower() not in ROW_NAMES)
        texts = left if len(left) in (1, 2) else None
    if texts is None:
        raise ValueError(
            f"expected the columns {_or(' and '.join(names) for names in task.texts)}, got {_listed(header)}; "
            "is this the right file for the task?"
        )
    index = next((name for name in header if name.lower() in ("index", "id", "idx")), None)
    categories = tuple(name for name in task.categories if name in header)
    return Columns(texts, label, None if index in (*texts, label) else index, categories)


def _or(names: Iterable[str]) -> str:
    return " or ".join(repr(name) for name in names)


def _listed(header: list[str]) -> str:
    return ", ".join(repr(name if len(name) < 40 else name[:40] + "...") for name in header)


# --- labels ----------------------------------------------------------------------------------------------


def encode_labels(examples: Examples, task: Task) -> list[int] | list[float]:
    """Class numbers, or scores for regression. Raises ValueError with the row of an unknown label."""
    assert examples.labels is not None
    numbers: list = []
    if task.labels is None:
        low, high = task.score_range
        for row, value in enumerate(examples.labels):
            text = as_text(value)
            if not NUMBER.fullmatch(text) or not low <= float(text) <= high:
                bounds = f" from {low} to {high}" if np.isfinite(low) else ""
                raise ValueError(f"{examples.where(row)}: expected a number{bounds} as label, got {text!r}")
            numbers.append(float(text))
        return numbers
    known = {name: number for number, name in enumerate(task.labels)}
    known |= {digit: number for number, digit in enumerate(task.digits)}
    for row, value in enumerate(examples.labels):
        if as_text(value) not in known:
            raise ValueError(
                f"{examples.where(row)}: expected a label out of {', '.join(known)}; got {as_text(value)!r}; "
                "correct the line, or choose another task"
            )
        numbers.append(known[as_text(value)])
    return numbers


def as_text(value: object) -> str:
    """A label as text: True, from JSON, becomes 'true', and 1 becomes '1'."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- to the model, and back ------------------------------------------------------------------------------


def features(data: Data, tokenizer: PreTrainedTokenizerBase, max_length: int) -> dict[str, Features]:
    """The model's inputs for every split, with labels if there are any.

    If a pair is too long, tokens of its longer text are cut first. A "[SEP]" in a text is read as text.
    """
    return {split: _tokenized(examples, tokenizer, max_length) for split, examples in data.splits.items()}


def _tokenized(examples: Examples, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Features:
    columns: dict[str, list] = {"input_ids": [], "token_type_ids": []}
    for start in range(0, len(examples), 10_000):
        encoded = tokenizer(
            *(column[start : start + 10_000] for column in examples.texts),
            truncation="longest_first",
            max_length=max_length,
            split_special_tokens=True,
            return_token_type_ids=True,
            return_attention_mask=False,
        )
        for name, column in columns.items():
            column += encoded[name]
    if examples.labels is not None:
        columns["labels"] = examples.labels
    return Features(columns, tokenizer.pad_token_id)


def prefix(split: str) -> str:
    """The prefix of the metrics in all_results.json, which keeps the two halves of MNLI apart."""
    return {"validation_matched": "eval_mnli_m_", "validation_mismatched": "eval_mnli_mm_"}.get(split, "eval_")


def score(task: Task, logits: np.ndarray, labels: list) -> dict[str, float | None]:
    """The task's metrics for logits (rows, classes), or (rows, 1) for regression, and as many labels.

    An undefined metric (the correlation with a constant) is None, because JSON has no NaN.
    """
    predictions = logits[:, 0] if task.labels is None else logits.argmax(axis=1)
    values = {name: metric(task, name, predictions, np.asarray(labels)) for name in task.metrics}
    return {name: None if np.isnan(value) else value for name, value in values.items()}


def metric(task: Task, name: str, predictions: np.ndarray, labels: np.ndarray) -> float:
    """One of METRICS; F1 is that of the task's positive class, whatever its number is."""
    if name == "f1":
        predictions, labels = predictions == task.positive, labels == task.positive
    return METRICS[name](predictions, labels)


def score_of_constant(task: Task, labels: np.ndarray) -> dict[str, float]:
    """The task's metrics if the most frequent class, or one score, is always predicted; 0 where they are undefined."""
    constant = np.zeros(len(labels)) if task.labels is None else np.full_like(labels, np.bincount(labels).argmax())
    values = {name: metric(task, name, constant, labels) for name in task.metrics}
    return {name: 0.0 if np.isnan(value) else value for name, value in values.items()}


def score_by_category(data: Data, split: str, logits: np.ndarray) -> dict[str, float | None]:
    """The metrics of each category's rows, such as ``matthews_correlation_logic``; {} for data without categories."""
    examples = data.splits[split]
    labels = examples.labels
    assert labels is not None
    values: dict[str, float | None] = {}
    for name, cells in examples.categories.items():
        if rows := [row for row, cell in enumerate(cells) if cell.strip()]:
            scores = score(data.task, logits[rows], [labels[row] for row in rows])
            ending = re.sub("[^a-z]+", "_", name.lower())
            values |= {f"{metric}_{ending}": value for metric, value in scores.items()}
    return values


def server_name(task: Task, split: str = "test") -> str:
    """The file name that the GLUE server expects for the predictions of a split."""
    return task.folder + {"test_matched": "-m", "test_mismatched": "-mm"}.get(split, "") + ".tsv"


def write_predictions(folder: Path, data: Data, split: str, logits: np.ndarray) -> Path:
    """Write a file for the GLUE server with columns `index` and `prediction`; labels are as in the task's files.

    Scores of GLUE have three decimals, as the server's examples do; those of other data keep all digits of a float32.
    """
    task = data.task
    if task.labels is None:
        digits = ".3f" if task.files else ".9g"
        spelled = [f"{score:{digits}}" for score in np.clip(logits[:, 0], *task.score_range)]
    else:
        spelled = [(task.digits or task.labels)[number] for number in logits.argmax(axis=1)]
    rows = [f"{name}\t{prediction}\n" for name, prediction in zip(data.splits[split].index, spelled, strict=True)]
    path = folder / server_name(task, split)
    path.write_text("index\tprediction\n" + "".join(rows), encoding="utf-8")
    return path
