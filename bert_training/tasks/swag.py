"""Multiple choice: read SWAG or other data in its layout, make inputs of the model, and write predictions.

A row of SWAG's val.csv (some columns left out) becomes one input for each ending (paper, section 4.4):

    sent1                                sent2    ending0            ending1            ...   label
    A man takes a violin from its case.  The man  begins to play it  boils it in water        0

    choice 0  [CLS] a man takes a violin from its case . [SEP] the man begins to play it [SEP]
    choice 1  [CLS] a man takes a violin from its case . [SEP] the man boils it in water [SEP]
    type ids    0   0  0    0   0   0     0    0    0  0   0    1   1    1    1   1    1   1
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.batches import Features
from bert_training.engine.run import Run
from bert_training.files.atomic import whole_file
from bert_training.files.hashing import unchanged
from bert_training.inputs.flags.fine_tuning import SwagArguments
from bert_training.inputs.hub_datasets import load_from_hub
from bert_training.inputs.rows import Column, Layout, Rows, hub_rows, read_rows
from bert_training.tasks.classification.scores import accuracy
from bert_training.tasks.cut_texts import CutTexts, check_room, encode_cut, longer_inputs, report_cut
from bert_training.tasks.fine_tuning import FineTuningTask
from bert_training.tasks.task_data import as_ids, check_ids, files_or_hub, in_chunks, sample_limit, write_rows
from tokenization.bert_tokenizer import TextEncoder
from tokenization.errors import UserError

CONTEXT, START, LABEL = "sent1", "sent2", "label"
MOST_ENDINGS = 100
COLUMNS = (
    Column(CONTEXT, (CONTEXT,)),
    Column(START, (START,), needed=False),
    *(Column(f"ending{number}", (f"ending{number}",), needed=number < 2) for number in range(MOST_ENDINGS)),
    # pandas writes its own index without a name, also beside an id.
    Column("id", ("id", "index", "ind", ""), needed=False),
)
GIVE_FILES = "give --train_file and --validation_file in SWAG's layout (a table with sent1, sent2, ending0, ..., label)"


@dataclass
class SwagExamples:
    """One split. Each row of ``endings`` has C texts; ``labels`` are the indices of the right ones, None if hidden.

    ``cut`` says which were longer than --max_seq_length; ``features`` fills it in.
    """

    contexts: list[str]
    endings: list[list[str]]
    labels: list[int] | None
    index: list[str]
    facts: dict
    where: Callable[[int], str] = str
    """The place of a row, counted from 0, for error messages."""
    index_column: str | None = None
    cut: CutTexts = CutTexts()

    def __len__(self) -> int:
        return len(self.contexts)

    def first(self, count: int | None) -> "SwagExamples":
        """The first ``count`` examples; all of them for None."""
        labels = None if self.labels is None else self.labels[:count]
        contexts, endings = self.contexts[:count], self.endings[:count]
        return replace(self, contexts=contexts, endings=endings, labels=labels, index=self.index[:count])


@dataclass
class SwagData:
    """The examples of a run by split, and the name of the data set, "custom" for files.

    Every choice gets one score, so the model has one output.
    """

    name: str
    splits: dict[str, SwagExamples]
    label_names: tuple[str, ...] = ("choice",)

    def facts(self) -> dict:
        """The facts for run.json: sources, counts and hashes."""
        return {"splits": {split: {"examples": len(part)} | part.facts for split, part in self.splits.items()}}

    def texts(self, split: str) -> Iterator[str]:
        """The context and the endings of every example of a split, as one text."""
        part = self.splits[split]
        return (" ".join([context, *endings]) for context, endings in zip(part.contexts, part.endings))

    def metric_names(self) -> tuple[list[str], str]:
        """The results by which the best model may be chosen, and the one used by default."""
        return ["eval_accuracy", "eval_loss"], "eval_accuracy"

    def baselines(self) -> dict[str, float]:
        """The results of a model that always chooses the same position: the one that is right most often."""
        labels = self.splits["validation"].labels if "validation" in self.splits else []
        return {"eval_accuracy": max(map(labels.count, labels)) / len(labels)} if labels else {}

    def summary(self) -> str:
        """One line per split for the user."""
        return "\n".join(
            f"{split}: {len(part):,} examples of {len(part.endings[0])} endings, "
            f"{'with' if part.labels else 'without'} labels, {part.facts['source']}"
            for split, part in self.splits.items()
        )


class ChoiceFeatures(Features):
    """Tokenised examples with C choices each: a row of ``input_ids`` has C sequences; ``collate`` gives (B, C, L)."""

    def __init__(self, columns: dict, pad_token_id: int, seed: int = 0):
        super().__init__(columns, pad_token_id, seed)
        self.lengths = np.array([max(map(len, choices)) for choices in columns["input_ids"]])

    def collate(self, indices: Sequence[int] | np.ndarray) -> dict[str, torch.Tensor]:
        """The examples at ``indices``, padded on the right to the longest sequence: (B, C, L) and labels (B,)."""
        names = ("input_ids", "token_type_ids")
        flat = {name: [choice for index in indices for choice in self.columns[name][index]] for name in names}
        rows = Features(flat, self.pad_token_id)
        tensors = rows.collate(range(len(rows)))
        batch = {name: tensor.view(len(indices), -1, tensor.shape[-1]) for name, tensor in tensors.items()}
        if "labels" in self.columns:
            batch["labels"] = torch.tensor([self.columns["labels"][index] for index in indices])
        return batch


# --- reading ---------------------------------------------------------------------------------------------


def load_data(args: SwagArguments) -> SwagData:
    """Read the examples that the flags ask for.

    Raises:
        UserError: data that is missing or malformed, with file and row.
    """
    files = files_or_hub(args, GIVE_FILES, "examples", needed=True)
    if files:
        with unchanged(*files.values()):
            splits = {
                split: read_swag(path, labelled=split != "test", delimiter=args.delimiter)
                for split, path in files.items()
            }
    else:
        assert args.dataset_name is not None
        from_hub = load_from_hub(args.dataset_name, args.dataset_config_name, GIVE_FILES)
        splits = {
            split: _examples(hub_rows(rows, columns(split != "test"), f"{args.dataset_name} {split}"), split != "test")
            for split, rows in from_hub.items()
        }
    splits = {split: examples.first(sample_limit(args, split)) for split, examples in splits.items()}
    for split, examples in splits.items():
        if split != "train":  # the others have a file of predictions
            check_ids(examples.index, examples.where, examples.index_column, in_columns=False)
    return SwagData(args.dataset_name or "custom", splits)


def read_swag(path: str | Path, labelled: bool = True, delimiter: str | None = None) -> SwagExamples:
    """Read a file with the columns sent1, sent2 (may be absent), ending0, ending1, ..., and label.

    Args:
        labelled: if False, the label column may be absent, or contain -1 or nothing.
        delimiter: what separates the cells of a .csv; the comma by default.
    """
    return _examples(read_rows(path, columns(labelled), Layout(delimiter or ",")), labelled)


def columns(labelled: bool) -> list[Column]:
    """The columns of SWAG's layout."""
    return [*COLUMNS, Column(LABEL, (LABEL,), needed=labelled)]


def _examples(rows: Rows, labelled: bool) -> SwagExamples:
    """The examples of rows. UserError, with the row, for an empty text, or a label that is no ending's number."""
    cells, none = rows.data.to_pydict(), [None] * len(rows.data)
    count = 1 + max(int(name[6:]) for name in cells if name.startswith("ending"))
    texts = [cells[CONTEXT], *(cells.get(f"ending{number}", none) for number in range(count))]
    starts, labels = cells.get(START, none), cells.get(LABEL, none)
    if not labelled and {*labels} <= {None, "", "-1"}:
        labels = []
    source = rows.facts["source"]
    for row, (found, label) in enumerate(zip_longest(zip(*texts), labels, fillvalue="0"), 1):
        if not all(text and text.strip() for text in found) or label not in map(str, range(count)):
            raise UserError(
                f"{source}, row {row}: expected text in {CONTEXT} and ending0 to ending{count - 1}, and a {LABEL} "
                f"from 0 to {count - 1}; got {label!r:.20} and {str(found)[:200]}"
            )
    endings = [[f"{start or ''} {text}".strip() for text in row] for start, row in zip(starts, zip(*texts[1:]))]
    index = as_ids(cells.get("id", range(len(endings))))
    return SwagExamples(
        cells[CONTEXT],
        endings,
        [int(label) for label in labels] or None,
        index,
        rows.facts,
        lambda row: f"{source}, row {row + 1}",
        rows.names.get("id"),
    )


# --- to the model, and back ------------------------------------------------------------------------------


def features(data: SwagData, tokenizer: PreTrainedTokenizerBase, max_length: int) -> dict[str, ChoiceFeatures]:
    """The model's inputs for every split, with labels if there are any.

    If a pair is too long, tokens of the longer of context and ending are cut first. A "[SEP]" is read as text.

    Raises:
        ValueError: the length leaves no room for text.
    """
    check_room(max_length, tokenizer, 2)
    return {split: _tokenized(part, tokenizer, max_length) for split, part in data.splits.items()}


def _tokenized(examples: SwagExamples, tokenizer: PreTrainedTokenizerBase, max_length: int) -> ChoiceFeatures:
    choices = len(examples.endings[0])
    columns: dict[str, list] = {"input_ids": [], "token_type_ids": []}
    cut: dict[int, None] = {}  # the numbers of the examples, each once
    lengths: list[int] = []  # of all pairs, uncut
    encoder = TextEncoder(tokenizer)
    for part in in_chunks(len(examples), 5_000):
        pairs = (
            [context for context in examples.contexts[part] for _ in range(choices)],
            [ending for endings in examples.endings[part] for ending in endings],
        )
        rows, found = encode_cut(encoder, pairs, max_length)
        for name, column in columns.items():
            column += [rows[name][first : first + choices] for first in range(0, len(found), choices)]
        cut |= dict.fromkeys(part.start + row // choices for row, length in enumerate(found) if length > max_length)
        lengths += found
    first = examples.where(next(iter(cut))) if cut else ""
    lost = sum(max(0, length - max_length) for length in lengths)
    longest = max(lengths, default=0)
    examples.cut = CutTexts(len(cut), len(examples), first, tokens=sum(lengths), lost=lost, longest=longest)
    if examples.labels:
        columns["labels"] = examples.labels
    return ChoiceFeatures(columns, tokenizer.pad_token_id)


class EndingChooser(FineTuningTask[np.ndarray]):
    """Multiple choice: the logits (rows, C) of the endings."""

    args: SwagArguments
    data: SwagData
    shown = ("accuracy", "loss")

    def __init__(
        self,
        args: SwagArguments,
        config: BertConfig,
        tokenizer: PreTrainedTokenizerBase,
        network: type[PreTrainedModel],
    ):
        super().__init__(args, config, tokenizer, network, load_data(args))
        self.features = features(self.data, tokenizer, args.max_seq_length)

    def describe(self, run: Run[SwagArguments], model: PreTrainedModel) -> None:
        """Record and print how long the inputs are."""
        cut = {split: part.cut for split, part in self.data.splits.items()}
        length, positions = self.args.max_seq_length, self.config.max_position_embeddings
        report_cut(run, cut, f"--max_seq_length {length}", [*longer_inputs(length, positions), "shorten the texts"])

    def judge(self, run: Run[SwagArguments], model: torch.nn.Module, split: str) -> tuple[dict[str, Any], np.ndarray]:
        """The accuracy and the loss of a split, {} if it has no labels, and the logits."""
        outputs, labels = self.predict(run, model, split), self.data.splits[split].labels
        logits = outputs["logits"]
        values = {"accuracy": accuracy(logits.argmax(axis=1), labels), "loss": outputs["loss"]} if labels else {}
        return values, logits

    def write(self, folder: Path, split: str, outcome: np.ndarray) -> None:
        """Write the chosen endings, and in a labelled split which are right."""
        examples = self.data.splits[split]
        write_predictions(folder / f"{split}_predictions.csv", examples, outcome)
        chosen = outcome.argmax(axis=1).tolist()
        if examples.labels:
            sides = zip(examples.index, examples.labels, chosen, strict=True)
            write_rows(folder, split, ({"id": id_, "true": label, "answer": one} for id_, label, one in sides))


def write_predictions(path: Path, examples: SwagExamples, logits: np.ndarray) -> None:
    """Write a .csv file: the row's index, the number of the chosen ending, and the probability of each ending."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = shifted / shifted.sum(axis=1, keepdims=True)
    with whole_file(path) as draft, open(draft, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        choices = logits.shape[-1]
        writer.writerow(["index", "prediction", *(f"probability{choice}" for choice in range(choices))])
        for name, row in zip(examples.index, probabilities, strict=True):
            writer.writerow([name, int(row.argmax()), *(f"{value:.6f}" for value in row)])
