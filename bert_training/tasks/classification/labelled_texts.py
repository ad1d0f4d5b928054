"""The examples of a text classification: their columns and labels, and their way to the model and back.

A row of MRPC's dev.tsv (official layout, tab-separated, never quoted) becomes one input of the model:

    Quality  #1 ID    #2 ID    #1 String                     #2 String
    0        2029631  2029565  He said the pie business ...  " The pie business is ...

    tokens   [CLS] he said the pie business ... [SEP] " the pie business is ... [SEP]
    type ids   0    0   0   0   0   0       ...   0   1  1   1     1     1  ...   1
    label    0, which the model folder calls "not_equivalent"

``bert_training.tasks.classification.sources`` reads the examples, ``columns`` and ``labels`` find out what is the text
and what the label, and ``glue`` has the table of the tasks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from bert_training.engine.batches import Features
from bert_training.files.atomic import write_text
from bert_training.tasks.classification.columns import Columns
from bert_training.tasks.classification.glue import Task, server_name
from bert_training.tasks.classification.scores import metric_prefix, score_of_constant
from bert_training.tasks.cut_texts import CutTexts, check_room, count_alike, cut_rows, refuse_alike, summarise_cut
from bert_training.tasks.task_data import ProblemType
from tokenization.errors import UserError
from tokenization.special_tokens import text_tokenizer


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
        cut: which were longer than --max_seq_length; ``features`` fills it in.
        notes: what the user should know of the split.
        weights: the weight of each row in the loss; None if all are 1.
        groups: which rows belong together, for ``splits``.
    """

    texts: tuple[list[str], ...]
    labels: list | None
    index: list[str]
    where: Callable[[int], str]
    facts: dict
    columns: Columns
    categories: dict[str, list[str]] = field(default_factory=dict)
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
            categories={name: of(cells) for name, cells in self.categories.items()},
            weights=of(self.weights),
            groups=of(self.groups),
            notes=list(self.notes),
        )


@dataclass
class ClassificationData:
    """The data of a run: the name of its task ("custom" for the user's own data), the task, and the splits."""

    name: str
    task: Task
    splits: dict[str, Examples]

    @property
    def problem_type(self) -> ProblemType:
        """The value for ``problem_type`` in the model's config."""
        return "regression" if self.task.labels is None else "single_label_classification"

    @property
    def texts_per_example(self) -> int:
        """How many texts an example has: one, or two in a pair."""
        return len(next(iter(self.splits.values())).texts)

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

    def facts(self) -> dict:
        """The facts for run.json: sources, counts, hashes and label names."""
        facts = {split: {"examples": len(examples)} | examples.facts for split, examples in self.splits.items()}
        return {"task": self.name, "labels": self.task.labels, "splits": facts}

    def stored_facts(self) -> dict:
        """What the model's config stores, so that later commands read the same columns."""
        first = next(iter(self.splits.values()))
        columns = first.columns
        ids = [examples.columns.index for examples in self.splits.values() if examples.columns.index is not None]
        return {
            "texts_per_example": self.texts_per_example,
            "text_columns": list(columns.texts),
            "label_column": columns.label,
            "id_column": ids[0] if ids else None,
            "delimiter": first.facts.get("delimiter", ","),
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
        return "\n".join([*lines, f"labels: {', '.join(self.task.labels or ['scores'])}"])

    def texts(self, split: str) -> Iterator[str]:
        """The text or the pair of every example of a split, as one text."""
        return map(" ".join, zip(*self.splits[split].texts))

    def metric_names(self) -> tuple[list[str], str]:
        """The results by which the best model may be chosen, and the one used by default."""
        splits = [metric_prefix(split) for split in self.splits if split.startswith("validation")]
        names = [split + metric for split in splits for metric in (*self.task.metrics, "loss")]
        return names, splits[0] + self.task.main_metric if splits else ""

    def baselines(self) -> dict[str, float]:
        """The results of a model that always predicts the most frequent class or the same score."""
        values: dict[str, float] = {}
        for split, examples in self.splits.items():
            if split.startswith("validation"):
                scores = score_of_constant(self.task, np.asarray(examples.labels))
                values |= {metric_prefix(split) + name: value for name, value in scores.items()}
        return values


# --- to the model, and back ------------------------------------------------------------------------------


def features(data: ClassificationData, tokenizer: PreTrainedTokenizerBase, max_length: int) -> dict[str, Features]:
    """The model's inputs for every split, with labels if there are any.

    If a pair is too long, tokens of its longer text are cut first. A "[SEP]" in a text is read as text.

    Raises:
        ValueError: the length leaves no room for text, or nothing that differs is left of the training texts.
    """
    tokenizer = text_tokenizer(tokenizer)
    check_room(max_length, tokenizer, data.texts_per_example)
    found = {split: _tokenized(examples, tokenizer, max_length) for split, examples in data.splits.items()}
    for split, examples in data.splits.items():
        refuse_alike(split, examples.cut, max_length)
        if split == "train" and not examples.cut.cut and examples.cut.alike > 1:
            raise UserError(
                f"{examples.where(0)}: this and all other training examples ({len(examples)}) are the same for the "
                f"tokenizer, so that there is nothing to learn; is {examples.columns.texts[0]!r} the text?"
            )
    return found


def _tokenized(examples: Examples, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Features:
    columns: dict[str, list] = {"input_ids": [], "token_type_ids": []}
    cut: list[int] = []
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
        cut += cut_rows(encoded, start)
    examples.cut = summarise_cut(cut, len(examples), examples.where, count_alike(columns["input_ids"]))
    if examples.labels is not None:
        columns["labels"] = examples.labels
    return Features(columns, tokenizer.pad_token_id)


def write_predictions(folder: Path, data: ClassificationData, split: str, logits: np.ndarray) -> Path:
    """Write a file for the GLUE server with columns ``index`` and ``prediction``; labels are as in the task's files.

    Scores of GLUE have three decimals, as the server's examples do; those of other data keep all digits of a float32.
    """
    task = data.task
    if task.labels is None:
        digits = ".3f" if task.files else ".9g"
        spelled = [f"{score:{digits}}" for score in np.clip(logits[:, 0], *task.score_range)]
    else:
        spelled = [(task.spellings or task.labels)[number] for number in logits.argmax(axis=1)]
    rows = [f"{name}\t{prediction}\n" for name, prediction in zip(data.splits[split].index, spelled, strict=True)]
    path = folder / server_name(task, split)
    write_text(path, "index\tprediction\n" + "".join(rows))
    return path
