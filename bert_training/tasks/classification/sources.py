"""The sources of examples for text classification.

They are read from the official files (``--task_name``, ``--data_dir``), from the user's own files (``--train_file``,
``--validation_file``, ``--test_file``; with ``--task_name``, in the layout of that task), from the Hub (``--task_name``
alone, or ``--dataset_name``), or they belong to a built-in task, which is the default.

The columns of a task of GLUE are those of its files. In the user's own data they are those that flags name, or that the
model was trained on, or ``text`` (``sentence1`` and ``sentence2`` for pairs), ``label`` (or ``labels``) and ``id``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bert_training.builtin_data import documentation
from bert_training.files.hashing import digest, unchanged
from bert_training.inputs.flags.fine_tuning import GlueArguments, names_in
from bert_training.inputs.flags.parsing import refuse
from bert_training.inputs.hub_datasets import AS_FILES, from_hub, load_dataset, usual_splits
from bert_training.inputs.rows import Column, Layout, Rows, hub_rows, nfc, own_files, read_rows
from bert_training.tasks.classification.abstention import set_apart
from bert_training.tasks.classification.columns import (
    HOT,
    NAME_THE_TEXT,
    Columns,
    name_of_task,
    own_columns,
    roles_of_texts,
    task_columns,
)
from bert_training.tasks.classification.glue import BUILTIN_TASKS, GLUE_TASKS, Task
from bert_training.tasks.classification.labelled_texts import ClassificationData, Examples
from bert_training.tasks.classification.labels import (
    NUMBER,
    class_numbers,
    encode_labels,
    encode_test_labels,
    in_known_case,
    infer_task,
    names_of_cells,
    names_of_columns,
)
from bert_training.tasks.classification.multi_label_scores import MARK
from bert_training.tasks.classification.splits import check_divided, check_labels_to_learn
from bert_training.tasks.classification.trained_for import TrainedFor
from bert_training.tasks.task_data import asks_to_divide, check_cell, check_ids, sample_limit
from tokenization.errors import UserError

HUB_NAME = "nyu-mll/glue"
GIVE_FILES = "give the official files with --data_dir FOLDER, or your own with --train_file and --validation_file"
Read = Callable[[Sequence[Column], Layout], Rows]
"""Reads some columns of the source of a split."""


def load_data(
    args: GlueArguments, model_labels: tuple[str, ...] | None = None, trained: TrainedFor | None = None
) -> ClassificationData:
    """Read the examples that the flags ask for.

    Args:
        model_labels: the label names of the model, if it has any. If they are the names of the task in another order,
            the model's order is used, so that a trained head keeps its meaning.
        trained: what else is known of the model.

    Raises:
        UserError: flags that contradict each other; a file that is missing or malformed, with file and row.
    """
    trained = trained or TrainedFor(model_labels, scores=model_labels is not None and len(model_labels) == 1)
    files, name = own_files(args), name_of_task(args)
    if name in BUILTIN_TASKS:
        builtin = {split: _builtin(name, split) for split in ("train", "validation")}
        return _check(ClassificationData(name, BUILTIN_TASKS[name], builtin), args)
    task = GLUE_TASKS[name] if name else None
    sources = _sources(args, task, name, files)
    training = "train" in sources
    _check_head(args, trained, training)
    read = {split: _examples(args, task, trained, split, one, training) for split, one in sources.items()}
    if task is None and (args.abstains or (trained.abstains and not training)):
        read = set_apart(read)
    if task is None:
        task = infer_task(_own_task(args, trained, read), read, args.problem_type, trained, training)
    elif model_labels and task.labels:
        names = tuple(in_known_case(name, task.labels) for name in model_labels)
        task = in_order(task, names) if set(names) == set(task.labels) else task
    data = ClassificationData(name or "custom", task, read)
    if not training:
        _check_task(data, trained)
    return _check(data, args)


def _own_task(args: GlueArguments, trained: TrainedFor, read: dict[str, Examples]) -> Task:
    """The task of the user's own data, before its labels are known."""
    training = "train" in read
    separator = args.label_separator or (None if training else trained.label_separator)
    several = trained.several_labels
    if training:
        train = read["train"]
        more = any(isinstance(label, tuple) and len(label) != 1 for label in train.labels or [])
        several = args.problem_type == "multi_label" or bool(args.label_separator or train.columns.hot)
        several |= more and args.problem_type is None
    none = Task(folder="custom", text_columns=(), label_columns=(), labels=None, metrics=())
    return replace(none, several_labels=several, label_separator=separator)


def _check_head(args: GlueArguments, trained: TrainedFor, training: bool) -> None:
    """Without training data, refuse a model whose head is for something else, and flags that it contradicts."""
    asked = args.problem_type
    if args.label_separator or len(names_in(args.label_column)) > 1:
        asked = "multi_label"
    if args.task_name and trained.several_labels:
        asked = "single_label"
    does = "multi_label" if trained.several_labels else "regression" if trained.scores else "single_label"
    does = trained.other_head or does
    if not training and (trained.other_head or (trained.outputs and asked not in (None, does))):
        raise UserError(
            f"the flags ask for {asked or f'labels of texts (--label_token {args.label_token})'}, and the model was "
            f"trained for {does}; leave --problem_type, --label_separator, --task_name and further columns in "
            "--label_column out, give a model that was fine-tuned with run_glue.py, or give training data"
        )


def _check_task(data: ClassificationData, trained: TrainedFor) -> None:
    """Without training data, refuse a model that was trained for other labels or for another number of texts."""
    task, names, expected = data.task, trained.class_names, {*(data.task.labels or ())}
    by_number = trained.unnamed and task.spellings and len(names) == len(task.spellings)
    others = {in_known_case(name, expected) for name in names} != expected or (task.labels is not None and not names)
    hot = {name for part in data.splits.values() for name in part.columns.hot}
    kinds = {1: "single texts", 2: "pairs of texts"}
    problems = {
        f"has the labels {', '.join(names) or ('scores' if trained.scores else 'none in id2label')}, expected "
        f"{', '.join(task.labels or ['scores'])} (name its labels in id2label of its config.json, if they are "
        "these)": others and not by_number,
        f"has the labels {', '.join(names)}, expected a column of 0 and 1 for each, got {', '.join(sorted(hot))}; name "
        "all of them with --label_column": hot and hot != set(names),
        f"was trained on {kinds.get(trained.texts or 0)}, got {kinds[data.texts_per_example]}; "
        f"{NAME_THE_TEXT}": trained.texts and trained.texts != data.texts_per_example,
    }
    if told := [problem for problem, there in problems.items() if there]:
        task_of_model = f" fine-tuned on {'MNLI' if data.name == 'ax' else data.name}" if task.files else ""
        raise UserError(
            f"without training data the model must fit this data. It {'. It '.join(told)}. Give another "
            f"model{task_of_model}, or training data"
        )


def in_order(task: Task, names: tuple[str, ...]) -> Task:
    """The task, a classification, with its classes numbered in the order of ``names``."""
    assert task.labels is not None
    spellings = tuple(task.spellings[task.labels.index(name)] for name in names) if task.spellings else ()
    return replace(task, labels=tuple(names), spellings=spellings, positive=names.index(task.labels[task.positive]))


def _check(data: ClassificationData, args: GlueArguments) -> ClassificationData:
    """Turn labels into numbers, apply ``--max_..._samples``, and refuse data that no later step could use.

    A split that ``splits.divided`` will divide keeps all samples until then.
    """
    problems = {
        "--do_predict: there is no test split; give --test_file, or leave it out": args.do_predict
        and not data.to_predict,
        f"--id_column {args.id_column}: no file has such a column; correct the name": args.id_column
        and not any(part.columns.index for part in data.splits.values()),
    }
    refuse(problems)
    check_divided(args, [*data.splits])
    for split, examples in data.splits.items():
        if examples.labels is not None:
            known = class_numbers(data.task)
            examples.labels = [in_known_case(label, known) for label in examples.labels]
            encode = encode_test_labels if split.startswith("test") else encode_labels
            examples.labels = encode(examples, data.task)
        whole = split == "train" and (args.folds or args.validation_split)
        data.splits[split] = examples.first(None if whole else sample_limit(args, split))
    for examples in (data.splits[split] for split in data.to_predict):
        check_ids(examples.index, examples.where, examples.columns.index)
    mark = (data.task.label_separator or MARK) if data.task.several_labels else ""
    for label in data.task.labels or ():
        check_cell(label, "the labels of the data, or id2label of the model", "labels", mark)
    if "train" in data.splits and not (args.folds or args.validation_split):
        check_labels_to_learn(data.splits["train"], data.task)
    return data


# --- from columns to examples -----------------------------------------------------------------------------


def _examples(
    args: GlueArguments, task: Task | None, trained: TrainedFor, split: str, read: Read, training: bool
) -> Examples:
    """The examples of a split; with ``training``, a training split says what the columns are."""
    labelled = not split.startswith("test")
    if task:
        columns = task_columns(task, labelled)
        official = not labelled and not own_files(args)
        columns = [column for column in columns if not official or column.role != "label"]
        return _made(task, read(columns, Layout(header=task.header, broken_share=task.ragged_share)), labelled)
    stored = TrainedFor() if training else trained
    columns = own_columns(args, stored, labelled, split == "train")
    rows = read(columns, Layout(delimiter=args.delimiter or stored.delimiter or ","))
    return _made(None, rows, labelled, args.label_separator or stored.label_separator)


def _made(task: Task | None, rows: Rows, labelled: bool, separator: str | None = None) -> Examples:
    """The examples of what was read, after the checks of all cells."""
    data, names, source = rows.data, rows.names, rows.facts["source"]
    texts = {names[role]: data[role].to_pylist() for role in roles_of_texts(names, rows.header, source)}
    hot = {role.removeprefix(HOT): data[role].to_pylist() for role in names if role.startswith(HOT)}
    labels = None
    if hot:
        labels = names_of_columns(hot, labelled, source)
    elif "label" in names:
        labels = names_of_cells(data["label"].to_pylist(), separator, labelled, source)
    columns = Columns(
        tuple(texts),
        names.get("label"),
        names.get("id"),
        names.get("weight"),
        names.get("group"),
        tuple(hot),
    )
    examples = Examples(
        tuple(texts.values()),
        labels,
        [cell or "" for cell in data["id"].to_pylist()] if "id" in names else [str(row) for row in range(len(data))],
        lambda row: f"{source}, row {row + 1}",
        rows.facts,
        columns,
        weights=_weights(data["weight"].to_pylist(), source) if "weight" in names else None,
        groups=_groups(data["group"].to_pylist(), source) if "group" in names else None,
    )
    _note_empty_texts(examples, bool(task))
    return examples


def _note_empty_texts(examples: Examples, official: bool) -> None:
    """Say how many texts are empty; some are in the official release of QQP, whose scores are those of all rows."""
    empty = [row for row, texts in enumerate(zip(*examples.texts)) if not all(map(str.strip, texts))]
    if empty:
        remedy = "they are kept, as in the official release" if official else "fill them in, or leave out the rows"
        examples.notes.append(
            f"{'' if official else 'warning: '}{len(empty):,} of {len(examples):,} rows have an empty text, of which "
            f"the model can tell nothing, the first: {examples.where(empty[0])}; {remedy}"
        )


def _weights(cells: list[str], source: str) -> list[float]:
    """The weights of rows. Raises UserError, with the row, unless they are numbers of at least 0."""
    weights = [float(cell) if NUMBER.fullmatch(cell) else math.nan for cell in cells]
    if wrong := [row for row, weight in enumerate(weights) if not 0 <= weight < math.inf]:
        raise UserError(
            f"{source}, row {wrong[0] + 1}: expected a weight of at least 0, got {cells[wrong[0]]!r:.60}; correct it"
        )
    return weights


def _groups(cells: list[str], source: str) -> list[str]:
    """The groups of rows. Raises UserError for a row without one: all such rows would be one group."""
    if wrong := [row for row, cell in enumerate(cells, 1) if not cell.strip()]:
        raise UserError(
            f"{source}, row {wrong[0]}: expected a group, got an empty cell; a row that belongs to no other needs a "
            "name of its own"
        )
    return [*map(nfc, cells)]


# --- sources ---------------------------------------------------------------------------------------------


def _sources(args: GlueArguments, task: Task | None, name: str | None, files: dict[str, str]) -> dict[str, Read]:
    """What reads each split, in the order of training, validation and test."""
    if args.data_dir:
        assert task is not None
        paths = official_files(task, Path(args.data_dir), args.do_predict)
        return {split: _file(path) for split, path in paths.items()}
    if not files:
        return _from_hub(args, name)
    halves = {split: f"{split}_matched" for split in files if task and f"{split}_matched" in task.files}
    return {halves.get(split, split): _file(path) for split, path in files.items()}


def _file(path: str | Path) -> Read:
    def read(columns: Sequence[Column], layout: Layout) -> Rows:
        with unchanged(path):
            return read_rows(path, columns, layout)

    return read


def official_files(task: Task, folder: Path, with_test: bool) -> dict[str, Path]:
    """The path of every split, in ``folder`` or in its sub-folder with the official name; plain, .xz or .gz.

    Raises:
        UserError: the folder or one of its files is missing.
    """
    paths, missing = {}, []
    for split, name in task.files.items():
        if split.startswith("test") and "train" in task.files and not with_test:
            continue
        folders = (folder, folder / task.folder, *([folder / "diagnostic"] if task.folder == "AX" else []))
        places = [place / (name + end) for place in folders for end in ("", ".xz", ".gz")]
        path = next((place for place in places if place.is_file()), None)
        if path:
            paths[split] = path
        else:
            missing.append(name)
    # The diagnostics have no training set, and users often have only one of the two files.
    if missing and ("train" in task.files or not paths):
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:9]) if folder.is_dir() else "no such folder"
        raise UserError(
            f"--data_dir {folder}: expected the official {', '.join(missing)} of {task.folder} there "
            f"or in {folder / task.folder}; got {there}"
        )
    return paths


def _builtin(name: str, split: str) -> Examples:
    task = BUILTIN_TASKS[name]
    make = {
        "builtin_pair": documentation.pair_examples,
        "builtin_classification": documentation.classification_examples,
    }
    rows = make[name](split)
    columns = Columns(task.text_columns[0], "label", None)
    texts = tuple([row[column] for row in rows] for column in columns.texts)
    facts = {"source": "the documentation of this Python installation", "sha256": digest(rows)}
    index = list(map(str, range(len(rows))))
    return Examples(texts, [str(row["label"]) for row in rows], index, lambda row: f"{name} row {row}", facts, columns)


def _from_hub(args: GlueArguments, name: str | None) -> dict[str, Read]:
    """The splits of a data set; of one that has no validation split, "test" serves as it unless a flag divides."""
    dataset_name, config = (args.dataset_name, args.dataset_config_name) if args.dataset_name else (HUB_NAME, name)
    source = dataset_name if args.dataset_name else f"{dataset_name}, which --task_name {name} reads by default"
    dataset = from_hub(source, GIVE_FILES, lambda datasets: load_dataset(datasets, dataset_name, config))
    wanted = tuple(GLUE_TASKS[name].files) if name else ("train", "validation", "test")
    named = {split: split for split in dataset} | usual_splits(dataset)
    tests = args.do_predict or "train" not in wanted
    chosen = {split: named[split] for split in wanted if split in named and (tests or not split.startswith("test"))}
    validates = any(split.startswith("validation") for split in named)
    if "train" in chosen and "test" in dataset and not validates and not asks_to_divide(args):
        chosen["validation"] = "test"
    if not chosen:
        raise UserError(
            f"{dataset_name}: expected the splits {', '.join(wanted)}; got {', '.join(dataset)} (--do_predict predicts "
            f"the split test); {AS_FILES}"
        )

    def rows_of(of_hub: str) -> Read:
        return lambda columns, _: hub_rows(dataset[of_hub], columns, f"{dataset_name} {config or ''} {of_hub}")

    return {split: rows_of(of_hub) for split, of_hub in chosen.items()}
