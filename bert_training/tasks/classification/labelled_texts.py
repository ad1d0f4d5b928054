"""The examples of a text classification: their columns and labels, and their way to the model and back.

A row of MRPC's dev.tsv (official layout, tab-separated, never quoted) becomes one input of the model:

    Quality  #1 ID    #2 ID    #1 String                     #2 String
    0        2029631  2029565  He said the pie business ...  " The pie business is ...

    tokens   [CLS] he said the pie business ... [SEP] " the pie business is ... [SEP]
    type ids   0    0   0   0   0   0       ...   0   1  1   1     1     1  ...   1
    label    0, which the model folder calls "not_equivalent"

``bert_training.tasks.classification.sources`` reads the examples, ``labels`` finds out what their labels are, and
``glue`` has the table of the tasks.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from bert_training.engine.batches import Features
from bert_training.files.hashing import digest
from bert_training.inputs.flags.fine_tuning import LAST_TOKEN, GlueArguments
from bert_training.inputs.flags.parsing import refuse
from bert_training.tasks.classification import calibration, multi_label_scores
from bert_training.tasks.classification.columns import Columns
from bert_training.tasks.classification.glue import Task
from bert_training.tasks.classification.long_texts import Reading, read_texts
from bert_training.tasks.classification.scores import metric_names, metric_prefix, score_of_constant
from bert_training.tasks.cut_texts import CutTexts
from bert_training.tasks.task_data import (
    ProblemType,
    class_weights_of,
    count_labels,
    facts_of,
    summary_of,
    with_loss_weights,
)
from tokenization.bert_tokenizer import TextEncoder


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
        cut: which were longer than --max_seq_length; ``features`` fills it in.
        notes: what the user should know of the split.
        weights: the weight of each row in the training loss; None if all are alike.
        groups: which rows belong together, for ``splits``.
    """

    texts: tuple[list[str], ...]
    labels: list | None
    index: list[str]
    where: Callable[[int], str]
    facts: dict
    columns: Columns
    cut: CutTexts = CutTexts()
    notes: list[str] = field(default_factory=list)
    weights: list[float] | None = None
    groups: list[str] | None = None

    def __len__(self) -> int:
        return len(self.texts[0])

    def first(self, count: int | None) -> "Examples":
        """The first ``count`` examples; all of them for None."""
        return self if count is None or count >= len(self) else self.select(range(count))

    def select(self, rows: Sequence[int]) -> "Examples":
        """The examples with these numbers, in this order."""

        def of(column: list | None) -> Any:
            return None if column is None else [column[row] for row in rows]

        return replace(
            self,
            texts=tuple(map(of, self.texts)),
            labels=of(self.labels),
            index=of(self.index),
            where=lambda row: self.where(rows[row]),
            weights=of(self.weights),
            groups=of(self.groups),
            notes=list(self.notes),
        )

    @classmethod
    def joined(cls, parts: "Sequence[Examples]") -> "Examples":
        """Unlabelled examples of several sources as one split, with the facts of the first."""
        first, places = parts[0], [(part, row) for part in parts for row in range(len(part))]
        texts = tuple([*itertools.chain(*columns)] for columns in zip(*(part.texts for part in parts), strict=True))
        index = [part.index[row] for part, row in places]
        facts = first.facts | {"sha256": digest([part.facts for part in parts])}
        return replace(
            first, texts=texts, index=index, facts=facts, where=lambda row: places[row][0].where(places[row][1])
        )


@dataclass
class ClassificationData:
    """The data of a run: the name of its task ("custom" for the user's own data), the task, and the splits.

    ``class_weights`` are those of the training loss, if it has any; ``weigh`` fills them in.
    """

    name: str
    task: Task
    splits: dict[str, Examples]
    class_weights: dict[str, float] | None = None

    @property
    def problem_type(self) -> ProblemType:
        """The value for ``problem_type`` in the model's config."""
        if self.task.several_labels:
            return "multi_label_classification"
        return "regression" if self.task.labels is None else "single_label_classification"

    @property
    def own(self) -> bool:
        """Whether this is the user's own data, and none in the layout of a task of GLUE."""
        return not self.task.files

    @property
    def texts_per_example(self) -> int:
        """How many texts an example has: one, or two in a pair."""
        return len(next(iter(self.splits.values())).texts)

    @property
    def to_predict(self) -> list[str]:
        """The test splits. A task without training data (AX) and without a test split predicts what it evaluates."""
        tests = [split for split in self.splits if split.startswith("test")]
        only_evaluates = self.task.files and "train" not in {*self.task.files, *self.splits}
        return tests or ([*self.splits] if only_evaluates else [])

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names that a pipeline prints."""
        return self.task.labels or ("score",)

    def facts(self) -> dict:
        """The facts for run.json: sources, counts, hashes and label names."""
        facts = {split: {"examples": len(examples)} | examples.facts for split, examples in self.splits.items()}
        several = {"several_labels": True} if self.task.several_labels else {}
        found = {"task": self.name, "labels": self.task.labels, **several, "splits": facts}
        return found | facts_of(self.class_weights)

    def stored_facts(self) -> dict:
        """What the model's config stores, so that later commands read the same columns."""
        first, separator = next(iter(self.splits.values())), self.task.label_separator
        columns = first.columns
        ids = [examples.columns.index for examples in self.splits.values() if examples.columns.index is not None]
        return {
            "texts_per_example": self.texts_per_example,
            "text_columns": list(columns.texts),
            "label_column": list(columns.hot) or columns.label,
            "id_column": ids[0] if ids else None,
            "delimiter": first.facts.get("delimiter", ","),
            **({"label_separator": separator} if separator else {}),
        }

    def summary(self) -> str:
        """A few lines for the user: what was read from where."""
        lines = []
        for split, examples in self.splits.items():
            columns = ", ".join(map(repr, examples.columns.names()))
            divided = f"; {examples.facts['divided']}" if "divided" in examples.facts else ""
            source = f"{examples.facts['source']} ({columns}){divided}"
            lines.append(f"{self.name} {split}: {len(examples):,} examples, {source}")
            if broken := examples.facts.get("broken_lines_left_out"):
                lines.append(f"  left out {len(broken)} broken lines: {', '.join(map(str, broken[:20]))}")
            lines += [f"  {note}" for note in examples.notes]
        several = ", several a text" if self.task.several_labels else ""
        lines.append(f"labels{several}: {', '.join(self.task.labels or ['scores'])}")
        return "\n".join([*lines, *summary_of(self.class_weights)])

    def texts(self, split: str) -> Iterator[str]:
        """The text or the pair of every example of a split, as one text."""
        return map(" ".join, zip(*self.splits[split].texts))

    def metric_names(self) -> tuple[list[str], str]:
        """The results by which the best model may be chosen, and the one used by default."""
        splits = [metric_prefix(split) for split in self.splits if split.startswith("validation")]
        metrics: Sequence[str] = self.task.metrics
        seen = metric_names(self.task.labels) if self.own and self.task.labels else []
        if self.task.several_labels:
            metrics, seen = multi_label_scores.metric_names(self.label_names), []
        names = [split + metric for split in splits for metric in (*metrics, "loss", *seen)]
        return names, splits[0] + self.task.main_metric if splits else ""

    def temperature(self, logits: dict[str, np.ndarray]) -> float:
        """The temperature of the probabilities, found on the rows of all these splits; they have labels."""
        labels = [label for split in logits for label in self.splits[split].labels or []]
        return calibration.find_temperature(np.concatenate([*logits.values()]), labels)

    def thresholds(self, config: PretrainedConfig, logits: Mapping[str, ArrayLike]) -> multi_label_scores.Thresholds:
        """In a training the thresholds found on the validation data, otherwise those of ``thresholds_of``.

        Args:
            logits: of every validation split (texts, labels).
        """
        if self.task.several_labels and "train" in self.splits:
            for split, values in logits.items():
                return multi_label_scores.find_thresholds(np.asarray(values), self.splits[split].labels or [])
        return multi_label_scores.thresholds_of(self.task, config)

    def baselines(self) -> dict[str, float]:
        """The results of a model that always predicts the most frequent class or the same score."""
        values: dict[str, float] = {}
        for split, examples in self.splits.items():
            if split.startswith("validation"):
                labels = np.asarray(examples.labels)
                if self.task.several_labels:
                    scores = multi_label_scores.score_of_constants(labels)
                else:
                    scores = score_of_constant(self.task, labels, with_macro_f1=self.own)
                values |= {metric_prefix(split) + name: value for name, value in scores.items()}
        return values


def check_flags(args: GlueArguments, data: ClassificationData) -> None:
    """Refuse flags that cannot be followed on these labels, all of them in one error."""
    task, validation = data.task, [part for split, part in data.splits.items() if split.startswith("validation")]
    kind = "several labels a text" if task.several_labels else "" if task.labels else "scores (a regression)"
    problems = {
        f"--label_token {args.label_token}: expected classes, got {kind}; leave the flag out or, if it comes from the "
        "model, give --label_token cls": args.label_token in LAST_TOKEN and kind,
        f"--calibrate is for one class a text, and these labels are {kind}; leave it out": args.calibrate and kind,
        "--calibrate needs labelled data on which the temperature is found; give --validation_file, or leave it out: a "
        "temperature that the model has is used without it": args.calibrate and not validation,
        "--class_weights is for classes, and these labels are scores; leave it out": args.class_weights
        and task.labels is None,
    }
    refuse(problems)


def weigh(args: GlueArguments, data: ClassificationData) -> None:
    """Fill in the class weights that the flags ask for. Raises UserError as ``class_weights_of`` does."""
    if args.class_weights is None or "train" not in data.splits:
        return
    labels, names = data.splits["train"].labels or [], data.label_names
    if data.problem_type == "multi_label_classification":
        having = np.asarray(labels).sum(0).astype(int).tolist()
        data.class_weights = class_weights_of(args, names, having, "row", several_of=len(labels))
    else:
        data.class_weights = class_weights_of(args, names, count_labels(labels, len(names)), "row")


# --- to the model, and back ------------------------------------------------------------------------------


def features(
    data: ClassificationData, tokenizer: PreTrainedTokenizerBase, max_length: int, reading: Reading | None = None
) -> dict[str, Features]:
    """The model's inputs for every split, with labels if there are any.

    Args:
        reading: how longer texts are read; default: they are cut.

    Raises:
        ValueError: the texts cannot be read so.
    """
    reading = reading or Reading(max_length)
    reading.check(tokenizer, data.texts_per_example)
    return {split: _tokenized(examples, tokenizer, reading) for split, examples in data.splits.items()}


def _tokenized(examples: Examples, tokenizer: PreTrainedTokenizerBase, reading: Reading) -> Features:
    read = read_texts(examples.texts, TextEncoder(tokenizer), reading)
    cut = [row for row, lost in enumerate(read.lost) if lost]
    examples.cut = CutTexts(len(cut), len(examples), examples.where(cut[0]) if cut else "", **read.counts(reading))
    labels: dict[str, Any] = {}
    if examples.labels is not None:
        several = isinstance(examples.labels[0], tuple)
        labels["labels"] = np.asarray(examples.labels, dtype=np.float32) if several else examples.labels
    return read.features(labels, tokenizer.pad_token_id, reading.in_windows)


def weighted(data: ClassificationData, train: Features) -> Features:
    """The training split with the weights of its rows and classes."""
    # Weights of labels of which a text may have several belong to no text.
    of_class = None if data.problem_type == "multi_label_classification" else data.class_weights
    return with_loss_weights(train, of_class, data.splits["train"].weights)
