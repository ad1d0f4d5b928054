"""What every fine-tuning script knows of its data, whatever the task is: one protocol, and what is done with it.

The tasks differ in what an example is (texts and a class, a question about a context, words with tags, endings to
choose from). So each has its own class, such as ``SquadData``, which keeps its examples in its own form, and its own
way to the inputs of the model and back. Everything else is the same for the four scripts and goes through ``TaskData``:
what is recorded, what is printed, which results exist, and what a model without knowledge would reach.
"""

import copy
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from transformers import BertConfig, PreTrainedTokenizerBase

from bert_training.engine.batches import IGNORED, Features
from bert_training.engine.checkpoint import Origin
from bert_training.engine.run import Run
from bert_training.files.atomic import whole_file
from bert_training.files.hashing import digest
from bert_training.files.processes import say
from bert_training.inputs.flags.fine_tuning import ClassArguments, FineTuningArguments
from bert_training.inputs.flags.parsing import refuse
from bert_training.inputs.reading import read_object
from bert_training.inputs.rows import bar, nfc, own_files
from tokenization.bert_tokenizer import TextEncoder, tokenizer_sha256
from tokenization.coverage import coverage
from tokenization.errors import UserError

# What the user can do about [UNK] and about stripped accents.
OTHER_VOCABULARY = "take a model of this language"
KEEP_ACCENTS = "take a model whose tokenizer keeps them (strip_accents false in tokenizer_config.json)"
MOST_NAMES = 40  # in the error about an unknown metric; three of them for each class of a classification
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
    """Say what is tokenised next, which may take minutes, and warn of what the tokenizer loses of the splits.

    Raises:
        ValueError: practically all of the training split becomes [UNK].
    """
    counts = ", ".join(f"{split} {len(part):,}" for split, part in data.splits.items())
    say(f"tokenising the examples: {counts}")
    for split in data.splits:
        found = coverage(tokenizer, data.texts(split))
        if split == "train":
            found.check_usable(f"{data.name} train", OTHER_VOCABULARY)
        for warning in found.warnings(split, OTHER_VOCABULARY, KEEP_ACCENTS):
            say(warning)


def metric_of(args: FineTuningArguments, data: TaskData) -> str:
    """The key of the results that decides which evaluation, or which run of a series, is the best.

    Raises:
        UserError: a flag of the training is given without training data, or as in ``deciding_metric``.
    """
    training = "train" in data.splits
    idle = [name for name in ("teacher", "keep_layers", "class_weights") if getattr(args, name, None)]
    if idle and not training:
        raise UserError(f"--{', --'.join(idle)}: no effect without training data; leave out")
    names, default = data.metric_names()
    chooses = args.metric_for_best_model or args.load_best_model_at_end or args.many_runs
    return deciding_metric(args, names, default, training) if chooses else default


def deciding_metric(args: FineTuningArguments, names: list[str], default: str, trained: bool) -> str:
    """The key that the flags choose.

    Args:
        names: the keys that may be chosen; none if there is nothing to evaluate on, which the flags say.
        default: the key if --metric_for_best_model is not given.

    Raises:
        UserError: --metric_for_best_model is none of ``names``, or nothing is trained.
    """
    if not trained:
        raise UserError("there is nothing from which to choose the best, as nothing is trained: give training data")
    if (asked := args.metric_for_best_model) is None:
        return default
    name = "eval_" + asked.removeprefix("eval_")
    if name not in names:
        listed = names if len(names) <= MOST_NAMES else [*names[:MOST_NAMES], f"and {len(names) - MOST_NAMES} more"]
        raise UserError(f"--metric_for_best_model: expected one of {', '.join(listed)}; got {asked!r}")
    return name


def in_chunks(count: int, size: int) -> Iterator[slice]:
    """Yield the places of texts that are tokenised together, with a bar if it takes long (``rows.bar``)."""
    with bar(None, "tokenising", "texts", count) as shown:
        for start in range(0, count, size):
            yield slice(start, start + size)
            shown.update(min(size, count - start))


def pieces_of_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Iterator[list[int]]:
    """Yield the ids of every text, without special tokens. A "[SEP]" in a text is five ordinary characters."""
    encoder = TextEncoder(tokenizer)
    for part in in_chunks(len(texts), 1000):
        yield from (ids.tolist() for ids in encoder(texts[part]))


def record_origin(
    run: Run[FineTuningArguments],
    data: TaskData,
    tokenizer: PreTrainedTokenizerBase,
    initial_weights: dict[str, str] | None,
) -> Origin:
    """Record what is trained on what, and print where the data was read from, with ``same_content_warnings``.

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


def folds_of_units(units: Sequence[Any], folds: int, seed: int, what: str) -> list[list[int]]:
    """For each fold the rows that it holds out: those of a part of the units.

    Args:
        units: as for ``rows_of_units``.
        what: what they are, for the user.

    Raises:
        UserError: there are fewer units than folds.
    """
    from sklearn.model_selection import KFold  # imported here because that takes almost a second

    names = np.array([*dict.fromkeys(units)])
    if len(names) < folds:
        raise UserError(
            f"--folds {folds}: expected at least {folds} {what} to hold out in turn, got {len(names)}; give fewer"
        )
    parts = KFold(n_splits=folds, shuffle=True, random_state=seed).split(names)
    return [np.flatnonzero(np.isin(units, names[held_out])).tolist() for _, held_out in parts]


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


# --- weights of classes and rows in the training loss ----------------------------------------------------------------

# A row of class y with a weight r of its own counts r w[y] times; the loss of a step is the weighted mean over all its
# rows, on all processes (docs/classify.md, "Rare classes"). Evaluations know nothing of this: their loss is the plain
# mean, whatever a model was trained with, so that runs with different weights can be compared.

FACT = "weights_of_classes"  # in the facts of the data
LABELS_SHOWN = 10


def class_weights_of(
    args: ClassArguments,
    names: Sequence[str],
    counts: Sequence[int],
    things: str,
    may_be_absent: bool = False,
    several_of: int | None = None,
) -> dict[str, float] | None:
    """The weight of every class that ``--class_weights`` asks for; None without the flag.

    Balanced weights are n / (C n_c), with n labels, n_c of them of class c, and C classes: scikit-learn's rule. If a
    text may have several labels, the weight of a label counts where a text has it (torch's ``pos_weight``), and
    balanced is the number of texts without it divided by the number of those with it.

    Args:
        names: the classes, in the order of their numbers.
        counts: how many of the training labels are of each class.
        things: what has a label, for messages, such as "row".
        may_be_absent: classes that do not occur count for nothing, and their weight is 1; otherwise they are an error.
        several_of: the number of texts, if each may have several labels; otherwise None.

    Raises:
        ValueError: a class does not occur; or the file lacks a class, has another, or a weight that is none.
    """
    if args.class_weights is None:
        return None
    if args.class_weights != "balanced":
        return _read_weights(Path(args.class_weights), names)
    absent = [name for name, count in zip(names, counts, strict=True) if not count]
    everywhere = [name for name, count in zip(names, counts, strict=True) if count == several_of]
    if wrong := everywhere + absent * (not may_be_absent):
        raise UserError(
            f"--class_weights balanced: {'every' if wrong == everywhere else 'no'} training {things} has the label "
            f"{_list(wrong)}, so there is nothing to balance; add {things}s, or give the weights in a JSON file"
        )
    if several_of is not None:
        return {name: (several_of - n) / n for name, n in zip(names, counts, strict=True)}
    present = len(names) - len(absent)
    return {name: sum(counts) / (present * n) if n else 1.0 for name, n in zip(names, counts, strict=True)}


def _read_weights(path: Path, names: Sequence[str]) -> dict[str, float]:
    """The weights in a JSON object ``{label: weight}``, in the order of ``names``."""
    given = {nfc(name): weight for name, weight in read_object(path).items()}
    fits = {name for name, weight in given.items() if type(weight) in (int, float) and 0 < weight < math.inf}
    if wrong := [name for name in {**given, **dict.fromkeys(names)} if name not in fits & {*names}]:
        raise UserError(
            f'{path}: expected {{"label": weight}}, a number above 0 for each of {_list(names)} and no others; got '
            + ", ".join(f"{name!r}: {given.get(name, 'no weight')}" for name in wrong)[:400]
            + "; correct it"
        )
    return {name: float(given[name]) for name in names}


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - LABELS_SHOWN} more" if len(names) > LABELS_SHOWN else ""
    return ", ".join(map(repr, names[:LABELS_SHOWN])) + more


def count_labels(labels: Sequence[Any], classes: int) -> list[int]:
    """How many labels are of each class; IGNORED ones are not counted.

    Args:
        labels: one number a row, or an array of numbers for each.
    """
    found = Counter(np.concatenate([np.atleast_1d(label) for label in labels]).tolist())
    return [found[number] for number in range(classes)]


def with_loss_weights(
    rows: Features, class_weights: dict[str, float] | None, row_weights: Sequence[float] | None = None
) -> Features:
    """The same rows with the column ``loss_weights``, if there are weights.

    Args:
        class_weights: in the order of the numbers of the classes.
        row_weights: one for each row.
    """
    if class_weights is None and row_weights is None:
        return rows
    labels, weights = rows.columns["labels"], [1.0] * len(rows) if row_weights is None else [*row_weights]
    if class_weights is not None:
        of_class = np.array([*class_weights.values()])
        known = [np.not_equal(label, IGNORED) for label in labels]
        classes = [np.where(one, label, 0) for one, label in zip(known, labels)]
        weights = [(one * of_class[each] * w)[()] for one, each, w in zip(known, classes, weights, strict=True)]
    return type(rows)(rows.columns | {"loss_weights": weights}, rows.pad_token_id)


def loss_arguments(class_weights: dict[str, float] | None, several_labels: bool = False) -> dict[str, Any]:
    """The further arguments of the model in training (heads.py), besides the column ``loss_weights``."""
    if class_weights is None or not several_labels:
        return {}
    return {"class_weights": torch.tensor([*class_weights.values()])}


def facts_of(class_weights: dict[str, float] | None) -> dict[str, Any]:
    """The part of the facts of the data, by which a resumed run recognises the weights; {} without any."""
    if class_weights is None:
        return {}
    return {FACT: {"weights": class_weights, "sha256": digest(class_weights)}}


def summary_of(class_weights: dict[str, float] | None) -> list[str]:
    """A line for the user; none without weights."""
    if class_weights is None:
        return []
    return ["class weights: " + ", ".join(f"{name} {weight:.4g}" for name, weight in class_weights.items())]
