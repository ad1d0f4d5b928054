"""What every fine-tuning script knows of its data, whatever the task is: one protocol, and what is done with it.

The tasks differ in what an example is (texts and a class, a question about a context, words with tags, endings to
choose from). So each has its own class, such as ``SquadData``, which keeps its examples in its own form, and its own
way to the inputs of the model and back. Everything else is the same for the four scripts and goes through ``TaskData``:
what is recorded, what is printed, which results exist, and what a model without knowledge would reach.
"""

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from transformers import BertConfig, PreTrainedTokenizerBase

from bert_training.engine.best import deciding_metric
from bert_training.engine.checkpoint import Origin
from bert_training.engine.run import Run
from bert_training.files.atomic import whole_file
from bert_training.files.process import say
from bert_training.inputs.flags.fine_tuning import FineTuningArguments
from bert_training.inputs.flags.natures import refuse
from bert_training.inputs.rows import bar, own_files
from tokenization.coverage import coverage
from tokenization.errors import UserError
from tokenization.fingerprint import tokenizer_sha256
from tokenization.special_tokens import text_tokenizer

# What the user can do about [UNK] and about stripped accents.
OTHER_VOCABULARY = "take a model of this language"
KEEP_ACCENTS = "take a model whose tokenizer keeps them (strip_accents false in tokenizer_config.json)"
SPLIT_SEED = 42  # of --validation_split and --folds: the same rows are held out whatever --seed is
ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]


class TaskData(Protocol):
    """The data of a run: ``ClassificationData``, ``SquadData``, ``NerData`` or ``SwagData``."""

    @property
    def name(self) -> str:
        """The name of the task or of the data set, for summaries and the model card."""

    @property
    def splits(self) -> Mapping[str, Sized]:
        """The examples of every split.

        The names are "train", which is absent if the model is only evaluated, "validation" and "test"; those of the two
        halves of MNLI begin with "validation_" and "test_".
        """

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the model's outputs, in the order of their numbers; they become ``id2label`` of its config."""

    def facts(self) -> dict:
        """The facts for run.json, by which a resumed run recognises its data.

        "splits" has an entry for every split, with the number of "examples", their source and, where it is known, the
        "sha256" or "fingerprint" of their content.
        """

    def summary(self) -> str:
        """A few lines for the user: what was read from where."""

    def texts(self, split: str) -> Iterator[str]:
        """All that the model reads of every example of a split, as one text."""

    def metric_names(self) -> tuple[list[str], str]:
        """The keys of the results by which the best model may be chosen, and the one that is used by default."""

    def baselines(self) -> dict[str, float]:
        """The results of a model with constant predictions, for the keys that the table of a series shows."""


def check_vocabulary(data: TaskData, tokenizer: PreTrainedTokenizerBase) -> None:
    """Say what is tokenised next, which may take minutes; check that there is something to learn in the training split.

    Raises:
        ValueError: practically all of it becomes [UNK].
    """
    counts = ", ".join(f"{split} {len(part):,}" for split, part in data.splits.items())
    say(f"tokenising the examples: {counts}")
    if "train" in data.splits:
        coverage(tokenizer, data.texts("train")).check_usable(f"{data.name} train", OTHER_VOCABULARY)


def metric_of(args: FineTuningArguments, data: TaskData) -> str:
    """The key of the results that decides which evaluation, or which run of a series, is the best.

    Raises:
        UserError: as in ``deciding_metric``; or a flag of the training is given without training data.
    """
    training = "train" in data.splits
    idle = [name for name in ("teacher", "keep_layers", "class_weights") if getattr(args, name, None)]
    if idle and not training:
        raise UserError(f"--{', --'.join(idle)}: no effect without training data; leave out")
    return deciding_metric(args, *data.metric_names(), training)


def in_chunks(count: int, size: int) -> Iterator[slice]:
    """Yield the places of texts that are tokenised together, with a bar if it takes long (``rows.bar``)."""
    with bar(None, "tokenising", "texts", count) as shown:
        for start in range(0, count, size):
            yield slice(start, start + size)
            shown.update(min(size, count - start))


def pieces_of_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Iterator[list[int]]:
    """Yield the ids of every text, without special tokens. A "[SEP]" in a text is five ordinary characters."""
    tokenizer = text_tokenizer(tokenizer)
    for part in in_chunks(len(texts), 1000):
        coded = tokenizer(texts[part], add_special_tokens=False, split_special_tokens=True, verbose=False)
        yield from coded["input_ids"]


def record_origin(
    run: Run[FineTuningArguments],
    data: TaskData,
    tokenizer: PreTrainedTokenizerBase,
    initial_weights: dict[str, str] | None,
) -> Origin:
    """Record what is trained on what, and print where the data was read from, with ``same_content_warnings``.

    The shares of [UNK] and of stripped accents in every split are recorded and printed as well.

    Args:
        tokenizer: the tokenizer of the data.
        initial_weights: file -> SHA-256 of the weights; None if all are new.

    Returns:
        The part that must be the same in a resumed run.
    """
    origin = Origin(data.facts(), tokenizer_sha256(tokenizer), initial_weights)
    run.add_facts(data=origin.data, tokenizer_sha256=origin.tokenizer_sha256, initial_weights=origin.initial_weights)
    run.add_facts(baselines=data.baselines())
    for text in (data.summary(), *same_content_warnings(data)):
        run.say(text)
    covered = {split: coverage(tokenizer, data.texts(split)) for split in data.splits}
    run.add_facts(coverage={split: counts.facts() for split, counts in covered.items()})
    run.say("; ".join(f"{split}: {counts.summary()}" for split, counts in covered.items()))
    for split, counts in covered.items():
        for warning in counts.warnings(split, OTHER_VOCABULARY, KEEP_ACCENTS):
            run.say(warning)
    return origin


def same_content_warnings(data: TaskData) -> list[str]:
    """One sentence for every split whose content is that of the training split, whatever the files are called."""
    facts = data.facts()["splits"]
    names = ("sha256", "fingerprint", "content_sha256")
    content = {split: next(filter(None, map(part.get, names)), None) for split, part in facts.items()}
    return [
        f"warning: the splits train and {split} have the same content, so the results on {split} show what the model "
        "has memorised, and not how well it does on new data; give another file"
        for split in content
        if split != "train" and content[split] and content[split] == content.get("train")
    ]


def with_labels(config: BertConfig, names: tuple[str, ...], problem_type: ProblemType | None = None) -> BertConfig:
    """A copy of a checkpoint's config for a model with these outputs, whatever those of the checkpoint were."""
    config = copy.deepcopy(config)
    config.id2label = dict(enumerate(names))
    config.label2id = {name: number for number, name in enumerate(names)}
    config.problem_type = problem_type
    return config


def results_of(split: str, values: Mapping[str, float]) -> dict[str, float]:
    """The values with their keys in all_results.json: "eval_..." for the validation split, "test_..." for the test."""
    return {f"{'eval' if split == 'validation' else split}_{name}": value for name, value in values.items()}


# --- the flags that name the data --------------------------------------------------------------------------


def files_or_hub(
    args: FineTuningArguments, give_files: str, examples: str, divides: bool = False, needed: bool = False
) -> dict[str, str]:
    """The user's own files by split; {} if --dataset_name, or nothing, is given.

    Args:
        give_files: "give --train_file and --validation_file", with the form that the files must have.
        examples: what one evaluates on, such as "questions".
        divides: whether the script can hold a part of the training data out, as --validation_split says.
        needed: whether there is no built-in data.

    Raises:
        UserError: files and --dataset_name are both given, or there is nothing to evaluate on.
    """
    files = own_files(args)
    instead = ", or --validation_split 0.1" if divides else ""
    held_out = divides and asks_to_divide(args)
    problems = {
        f"{give_files}, or --dataset_name, not both": args.dataset_name and files,
        f"{give_files}, or --dataset_name": needed and not args.dataset_name and not files,
        f"--train_file needs --validation_file, the {examples} to evaluate on{instead}": "train" in files
        and "validation" not in files
        and not held_out,
    }
    refuse(problems)
    return files


def asks_to_divide(args: FineTuningArguments) -> bool:
    """Whether a flag says what is held out of the training data, be it nothing."""
    return any(getattr(args, name, None) is not None for name in ("validation_split", "folds"))


def sample_limit(args: FineTuningArguments, split: str) -> int | None:
    """How many examples of a split --max_train_samples and --max_eval_samples allow; None for all of them."""
    return {"train": args.max_train_samples, "validation": args.max_eval_samples}.get(split.split("_")[0])


def rows_of_units(units: Sequence[Any], share: float, seed: int) -> list[int]:
    """The rows whose units are drawn: those units, but not all of them, that bring the rows nearer to their share.

    Args:
        units: what the rows that stay together have in common, such as their document, for each row; at least two.
    """
    names, sizes = np.unique(units, return_counts=True)
    wanted, held_out, count = share * len(units), set[Any](), 0
    for number in np.random.default_rng(seed).permutation(len(names)).tolist():
        if abs(count + sizes[number] - wanted) < abs(count - wanted) and len(held_out) + 1 < len(names):
            held_out.add(names[number].item())
            count += int(sizes[number])
    held_out = held_out or {names[sizes.argmin()].item()}
    return [row for row, unit in enumerate(units) if unit in held_out]


# --- what a file of predictions can hold ---------------------------------------------------------------------
# A line has an id or a word, and what was predicted for it, separated by tabs. An id with a tab or a line end would
# change the columns or the number of lines, and two rows with one id could not be told apart.

SEPARATORS = re.compile("[\t\n\r\0]")
# What else ends a line in some readers, such as str.splitlines. An id has no use for them; a word may have one.
OTHER_LINE_ENDS = re.compile("[\v\f\x1c-\x1e\x85\u2028\u2029]")


def as_ids(values: Iterable[object]) -> list[str]:
    """The ids of a table as text; "" for null and NaN."""
    return ["" if value is None or value != value else str(value) for value in values]


def check_ids(ids: list[str], where: Callable[[int], str], column: str | None, in_columns: bool = True) -> None:
    """Refuse ids that would make a file of predictions ambiguous.

    Args:
        where: the place of a row, counted from 0.
        column: the name of the column of the ids; None if rows are numbered, so that nothing can be wrong.
        in_columns: whether the file is split at tabs and line ends. Quoted CSV and JSON are not.

    Raises:
        ValueError: with the place of the row: an id is empty, has a tab or a line end, or occurs twice; 1 and 1.0 are
            the same, because readers of tables take both for a number.
    """
    if column is None:
        return
    name = f"the column {column!r}" if column else "the column without a name"
    first: dict[str, int] = {}
    for row, id_ in enumerate(ids):
        same = re.sub(r"^(-?[0-9]+)\.0+$", r"\1", id_)
        odd = in_columns and (SEPARATORS.search(id_) or OTHER_LINE_ENDS.search(id_))
        if odd or not id_.strip() or same in first:
            too = f", which {where(first[same])} has as well" if same in first else ""
            raise UserError(
                f"{where(row)}: expected an id of its own in {name}{', without tabs and line ends' if odd else ''}, by "
                f"which predictions are told apart; got {id_[:60]!r}{too}; correct it, or remove {name}, so that "
                "predictions are numbered by row"
            )
        first[same] = row


def check_cell(text: str, where: str, what: str, mark: str = "") -> None:
    """Refuse a word or a label that would change the columns of a file. Raises UserError that names it and its place.

    U+2028 and the like are allowed, because files are read line by line at \\n, and words of real texts have them.

    Args:
        mark: what stands between the labels of a cell.
    """
    if SEPARATORS.search(text) or (mark and mark in text):
        raise UserError(
            f"{where}: expected {what} without tabs and line ends{f' and {mark!r}' if mark else ''}, because "
            f"predictions are written in columns; got {text[:60]!r}; correct it"
            + (", or name another mark with --label_separator" if mark else "")
        )


def write_rows(folder: Path, split: str, rows: Iterable[dict[str, Any]]) -> None:
    """Write the rows of a labelled split, each with what is right and what the model answers (``scored_rows.py``)."""
    with whole_file(folder / f"scored_{split}.jsonl") as draft, open(draft, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
