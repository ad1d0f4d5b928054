"""The sources of examples for text classification.

They are read from the official files (``--task_name``, ``--data_dir``), from the user's own files (``--train_file``,
``--validation_file``, ``--test_file``; with ``--task_name``, in the layout of that task), from the Hub (``--task_name``
alone, or ``--dataset_name``), or they belong to a built-in task, which is the default.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bert_training.builtin_data import documentation
from bert_training.files.compressed_files import kind_of
from bert_training.files.hashing import digest, sha256
from bert_training.files.hub_datasets import AS_FILES, from_hub, load_dataset, usual_splits
from bert_training.files.tables import check_delimiter, read_table
from bert_training.files.unchanged import unchanged
from bert_training.inputs.flags.fine_tuning import GlueArguments, names_in
from bert_training.tasks.classification import multi_label
from bert_training.tasks.classification.columns import NAME_THE_TEXT, Columns, find_columns, not_texts, text_problem
from bert_training.tasks.classification.glue import (
    BUILTIN_TASKS,
    FORMER_NAMES,
    GLUE_TASKS,
    OWN_LABELS,
    OWN_TEXTS,
    Named,
    Task,
)
from bert_training.tasks.classification.labelled_texts import ClassificationData, Examples
from bert_training.tasks.classification.labels import (
    FILL_IN,
    NUMBER,
    check_cells,
    encode_labels,
    infer_task,
    known_test_labels,
)
from bert_training.tasks.classification.splits import check_divided, check_labels_to_learn
from bert_training.tasks.classification.trained_for import TrainedFor, recorded_texts
from bert_training.tasks.prediction_files import as_ids, check_cell, check_ids
from bert_training.tasks.task_data import own_files, sample_limit
from tokenization.errors import UserError

HUB_NAME = "nyu-mll/glue"
GIVE_FILES = "give the official files with --data_dir FOLDER, or your own with --train_file and --validation_file"


def load_data(
    args: GlueArguments, model_labels: tuple[str, ...] | None = None, trained: TrainedFor | None = None
) -> ClassificationData:
    """Read the examples that the flags ask for.

    Args:
        model_labels: the label names of the model, if it has any. If they are the names of the task in another order,
            the model's order is used, so that a trained head keeps its meaning.
        trained: what else is known of the model.

    Raises:
        ValueError: flags that contradict each other; a file that is missing or malformed, with file and line.
    """
    trained = trained or TrainedFor(model_labels, scores=model_labels is not None and len(model_labels) == 1)
    files = own_files(args)
    given = [flag for flag, there in (("--data_dir", args.data_dir), ("--dataset_name", args.dataset_name),
                                      ("--train_file, --validation_file or --test_file", files))
             if there]  # fmt: skip
    if len(given) > 1:
        raise UserError(f"give only one of {' and '.join(given)}")
    tasks = GLUE_TASKS | BUILTIN_TASKS
    name = args.task_name or (None if given else "builtin_pair")
    name = FORMER_NAMES.get(name, name) if name else None
    if name and name not in tasks:
        raise UserError(f"--task_name: expected one of {', '.join(tasks)}; got {name!r}")
    if name in BUILTIN_TASKS and given:
        raise UserError(f"--task_name {name} takes no data; drop {given[0]}")
    if args.data_dir and not name:
        raise UserError("--data_dir needs --task_name: official files differ from task to task")
    task = tasks[name] if name else None
    if name in BUILTIN_TASKS:
        read = {split: _builtin(name, split) for split in ("train", "validation")}
    elif files:
        read = _read_own_files(task or _own_task(args, trained, "train" in files), files)
    elif task and args.data_dir:
        read = _read_files(task, official_files(task, Path(args.data_dir), args.do_predict))
    else:
        read = _read_hub(name, args, trained)
    training = "train" in read
    _check_head(args, trained, training)
    if task is None:
        task = _own_task(args, trained, training)
        several = task.several_labels or any(multi_label.has_several(part.labels) for part in read.values())
        infer = multi_label.infer_several if several else infer_task
        task = infer(task, read, args.problem_type, trained, training)
    elif model_labels and task.labels and set(model_labels) == set(task.labels):
        task = in_order(task, model_labels)
    data = ClassificationData(name or "custom", task, read)
    if not training:
        _check_task(data, trained)
    return _check(data, args)


def _own_task(args: GlueArguments, trained: TrainedFor, training: bool) -> Task:
    """The task of the user's own data, with the columns that the flags name, or those that the model was trained on.

    With training data, these are not the first choice: a new table may have its own.
    """
    texts: tuple[tuple[str, ...], ...] = OWN_TEXTS
    labels: tuple[str, ...] = OWN_LABELS
    if trained.text_columns and not training:
        texts = (trained.text_columns, *OWN_TEXTS)
    if trained.label_column:
        first = ("label", trained.label_column) if training else (trained.label_column,)
        labels = tuple(dict.fromkeys((*first, *OWN_LABELS)))
    # Versions that did not store the columns took the two that remained as a pair.
    began = recorded_texts(Path(args.output_dir)) if training and args.resume_from_checkpoint else None
    two = began == 2 if training else trained.texts == 2 and not trained.text_columns
    if args.text_column:
        texts = (tuple(args.text_column),)
    named = names_in(args.label_column)
    if len(named) == 1:
        labels = named
    hot = named if len(named) > 1 else ()
    # Training data says how it spells its labels; without it, the model does, unless a flag says otherwise.
    as_trained = not training and not named
    trained_hot = trained.hot_columns if as_trained and not args.label_separator else ()
    separator = args.label_separator or (trained.label_separator if not training and not hot else None)
    flagged = bool(hot or separator) or args.problem_type == "multi_label"
    several = flagged if training else trained.several_labels
    lists = args.problem_type in (None, "multi_label") and (training or trained.several_labels)
    return Task(
        folder="custom",
        text_columns=texts,
        label_columns=labels,
        labels=None,
        metrics=(),
        trained_on=trained.text_columns,
        trained_on_two=two,
        trained_label=trained.label_column,
        several_labels=several,
        may_have_lists=several or lists,
        label_separator=separator,
        separator_of_training=bool(separator and not args.label_separator),
        hot_columns=hot,
        trained_hot=trained_hot,
        named=Named(
            args.id_column, args.weight_column, args.group_column, args.delimiter, trained.id_column, trained.delimiter
        ),
    )


def _check_head(args: GlueArguments, trained: TrainedFor, training: bool) -> None:
    """Refuse a model whose head cannot be used: without training data, it must be for texts and for such labels."""
    if not training and trained.outputs:
        _check_several(args, trained)
    if trained.other_head and not training:
        raise UserError(
            f"{args.model_name_or_path}: the model is a {trained.other_head}, which has no trained head for texts "
            f"(--label_token {args.label_token}); give a model that was fine-tuned with run_glue.py, or training data"
        )


def _check_several(args: GlueArguments, trained: TrainedFor) -> None:
    """Without training data, refuse flags and tasks of several labels a text for other models, and the reverse."""
    columns = "several columns in --label_column" if len(names_in(args.label_column)) > 1 else ""
    asked = "--label_separator" if args.label_separator else columns
    if args.problem_type == "multi_label":
        asked = "--problem_type multi_label"
    if asked and not trained.several_labels:
        raise UserError(
            f"{asked}: the model gives a text {'a score' if trained.scores else 'one label'}, and not several; leave "
            "the flag out, or give training data"
        )
    one = f"--task_name {args.task_name}" if args.task_name else f"--problem_type {args.problem_type}"
    if trained.several_labels and (args.task_name or args.problem_type in ("single_label", "regression")):
        raise UserError(
            f"{one}: the model gives a text several labels (problem_type multi_label_classification in its "
            "config.json); leave the flag out, or give training data"
        )


def _check_task(data: ClassificationData, trained: TrainedFor) -> None:
    """Without training data, refuse a model that was trained for other labels or for another number of texts."""
    task, names = data.task, trained.class_names
    by_number = trained.unnamed and task.spellings and len(names) == len(task.spellings)
    if task.labels is not None and (set(task.labels) != set(names) or not names) and not by_number:
        advice = f"Give a model fine-tuned on {'MNLI' if data.name == 'ax' else 'this task'}, or training data"
        if trained.unnamed:
            advice = f"Name them there, in the order of the model's outputs. {advice}"
        raise UserError(
            "without training data the model's config must name the labels "
            f"({', '.join(task.labels) or 'in id2label'}); it names {', '.join(names or ['none'])}. {advice}"
        )
    if task.labels is None and names:
        raise UserError(
            f"without training data the model must predict scores; its classes are {', '.join(names)}. Give a model "
            "fine-tuned on this task, or training data"
        )
    if trained.texts and trained.texts != data.texts_per_example:
        kinds = {1: "single texts", 2: "pairs of texts"}
        columns = ", ".join(map(repr, next(iter(data.splits.values())).columns.texts))
        raise UserError(
            f"the model was trained on {kinds[trained.texts]}, expected {kinds[trained.texts]}, got "
            f"{kinds[data.texts_per_example]} ({columns}); name the text with --text_column (two names for a pair), or "
            "give another model"
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
    if args.do_predict and not data.to_predict:
        raise UserError("--do_predict: there is no test split; give --test_file, or drop the flag")
    check_divided(args, [*data.splits], "")
    if args.id_column is not None and not any(part.columns.index == args.id_column for part in data.splits.values()):
        raise UserError(f"--id_column {args.id_column}: no file has such a column; correct the name")
    for split, examples in data.splits.items():
        if examples.labels is not None:
            to_predict = split.startswith("test")
            one = known_test_labels if to_predict else encode_labels
            several = multi_label.known_several if to_predict else multi_label.encode
            examples.labels = (several if data.task.several_labels else one)(examples, data.task)
        whole = split == "train" and (args.folds or args.validation_split)
        data.splits[split] = examples.first(None if whole else sample_limit(args, split))
    for examples in (data.splits[split] for split in data.to_predict):
        check_ids(examples.index, examples.where, examples.columns.index)
        for label in data.task.labels or ():
            check_cell(label, f"{examples.facts['source']}, or the model's id2label", "labels")
    if data.task.several_labels and data.splits:
        multi_label.refuse_mark(data.task, next(iter(data.splits.values())).facts["source"])
    if "train" in data.splits and not (args.folds or args.validation_split):
        check_labels_to_learn(data.splits["train"], data.task)
    return data


# --- sources ---------------------------------------------------------------------------------------------


def read_examples(
    task: Task, path: str | Path, labelled: bool, may_be_labelled: bool = False, training: bool = False
) -> Examples:
    """Read one file in the layout of ``task``.

    Unless ``labelled``, a label column is ignored: in the official files to predict it contains placeholders.

    Args:
        may_be_labelled: whether the labels are read where they are there, with null for a hidden one.
        training: whether weights and groups are read, if flags name their columns.

    Raises:
        ValueError: with file and line: a column is missing, or a cell holds no text or label.
    """
    read, named = labelled or may_be_labelled, task.named
    columns = Columns((), None, None)

    def chosen(header: list[str]) -> list[str]:
        nonlocal columns
        columns = find_columns(task, header, labelled, training)
        return [name for name in columns.names() if read or name != columns.label]

    hot = task.hot_columns or task.trained_hot

    with unchanged(path):
        hidden = () if labelled else (*task.label_columns, *hot)
        table = read_table(
            path,
            chosen,
            task.header,
            task.ragged_share,
            may_be_null=hidden,
            delimiter=named.delimiter,
            usual_delimiter=named.trained_delimiter or ",",
        )
        facts: dict = {"source": str(path), "sha256": sha256(table.path)}
    if columns.label not in table.columns:
        columns = replace(columns, label=None)
    if kind_of(path).lower() == ".csv" and table.delimiter != ",":
        facts["delimiter"] = table.delimiter
    if table.skipped:
        facts["broken_lines_left_out"] = table.skipped
    may_be_empty = bool(task.files) and kind_of(Path(path)).lower() == ".tsv"
    return _examples(task, table.columns, columns, table.where, facts, labelled, may_be_empty)


def _examples(
    task: Task,
    table: dict[str, list],
    columns: Columns,
    where: Callable[[int], str],
    facts: dict,
    labelled: bool,
    may_be_empty: bool,
) -> Examples:
    """The examples of a table, from a file or the Hub, after the checks of all cells.

    Args:
        table: the columns that were read.
        labelled: whether every row must have a label.
        may_be_empty: whether a text may be empty. Some are in the official release of QQP, whose scores are those of
            all rows.
    """
    texts = tuple(table[name] for name in columns.texts)
    empty = set()
    for name, column in zip(columns.texts, texts):
        problems = {row: problem for row, text in enumerate(column) if (problem := text_problem(text))}
        blank = {row for row in problems if isinstance(column[row], str)}
        for row, problem in problems.items():
            if row not in blank:
                raise UserError(f"{where(row)}: expected text in {name!r}, {problem}; {FILL_IN}")
            if len(blank) == len(column) and not may_be_empty:
                raise UserError(f"{where(row)}: expected text in {name!r}, {problem}, as in all rows; {NAME_THE_TEXT}")
        empty |= blank
    if columns.guessed and (value := not_texts(texts[0])):
        raise UserError(
            f"{where(texts[0].index(value))}: expected text in {columns.texts[0]!r}, which has no usual name, got only "
            f"numbers, dates, prices, codes, or yes and no, such as {value!r:.60}; {NAME_THE_TEXT}"
        )
    labels = _labels(task, table, columns, where, labelled)
    index = as_ids(table[columns.index] if columns.index else range(len(texts[0])))
    categories = {name: table[name] for name in columns.categories}
    weights = _weights(table[columns.weight], columns.weight, where) if columns.weight is not None else None
    groups = _groups(table[columns.group], columns.group, where) if columns.group is not None else None
    notes = []
    if empty and may_be_empty:
        notes = [f"empty texts are kept, as in the official release: {len(empty)}, first {where(min(empty))}"]
    elif empty:
        facts["empty_texts"] = len(empty)
        notes = [
            f"warning: {len(empty)} of {len(texts[0])} rows have an empty text, of which the model can tell nothing, "
            f"the first: {where(min(empty))}; they are kept: fill them in, or leave out the rows"
        ]
    return Examples(
        texts, labels, index, where, facts, columns, categories, notes=notes, weights=weights, groups=groups
    )


def _weights(cells: list, column: str, where: Callable[[int], str]) -> list[float]:
    """The weights of rows. Raises ValueError, with the row, unless they are numbers of at least 0."""
    weights = []
    for row, cell in enumerate(cells):
        text = str(cell).strip()
        value = float(text) if NUMBER.fullmatch(text) and not isinstance(cell, bool) else math.nan
        if not 0 <= value < math.inf:
            raise UserError(
                f"{where(row)}: expected a weight of at least 0 in {column!r}, got {text[:60]!r}; correct it"
            )
        weights.append(value)
    return weights


def _groups(cells: list, column: str, where: Callable[[int], str]) -> list[str]:
    """The groups of rows. Raises ValueError, with the row, if one has none."""
    groups = as_ids(cells)
    for row, group in enumerate(groups):
        if not group.strip():
            raise UserError(f"{where(row)}: expected a group in {column!r}, got an empty field; {FILL_IN}")
    return groups


def _labels(
    task: Task, table: dict[str, list], columns: Columns, where: Callable[[int], str], labelled: bool
) -> list | None:
    """The labels of all rows as the table spells them: a word or a number each, or a tuple of any number of words."""
    if columns.hot:
        return multi_label.from_columns({name: table[name] for name in columns.hot}, where, labelled)
    cells = table.get(columns.label) if columns.label else None
    if cells is None or columns.label is None:
        return None
    if task.several_labels or (task.may_have_lists and any(map(multi_label.is_list, cells))):
        lists = task.separator_of_training and any(map(multi_label.is_list, cells))
        return multi_label.from_cells(cells, columns.label, None if lists else task.label_separator, where, labelled)
    check_cells(cells, columns.label, where, may_be_null=not labelled)
    return cells


def official_files(task: Task, folder: Path, with_test: bool) -> dict[str, Path]:
    """The path of every split, in ``folder`` or in its sub-folder with the official name; plain, .xz or .gz.

    Raises:
        ValueError: the folder or one of its files is missing.
    """
    if not folder.is_dir():
        raise UserError(f"--data_dir {folder}: no such folder")
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
        raise UserError(
            f"--data_dir {folder}: expected the official {', '.join(missing)} of {task.folder} there "
            f"or in {folder / task.folder}; it holds {', '.join(sorted(path.name for path in folder.iterdir())[:9])}"
        )
    return paths


def _read_files(task: Task, files: dict[str, Path]) -> dict[str, Examples]:
    return {split: read_examples(task, path, not split.startswith("test")) for split, path in files.items()}


def _read_own_files(task: Task, files: dict[str, str]) -> dict[str, Examples]:
    """Read the user's own files, whose column names are those of the first file; files for MNLI are its matched half.

    ``task`` need not be in the table; see ``load_data``.
    """
    if task.files and "train" not in task.files and "train" in files:
        raise UserError(f"{task.folder} has no training data; train on MNLI and drop --train_file")
    check_delimiter(task.named.delimiter, files.values())
    splits: dict[str, Examples] = {}
    for split, path in files.items():
        examples = read_examples(task, path, split != "test", split == "test", training=split == "train")
        task = _with_columns(task, examples)
        matched = split + "_matched"
        splits[matched if task.files and matched in task.files else split] = examples
    return splits


def _with_columns(task: Task, first: Examples) -> Task:
    """The task of the user's own data with the columns, and the kind of labels, that the first split has.

    All of its splits must have these; GLUE's tasks stay as they are.

    In the official files of a task, the columns may differ from split to split.
    """
    if task.files:
        return task
    columns = first.columns
    label_columns = (columns.label,) if columns.label else task.label_columns
    several = task.several_labels or multi_label.has_several(first.labels)
    lists = several or (task.may_have_lists and first.labels is None)
    return replace(
        task,
        text_columns=(columns.texts,),
        label_columns=label_columns,
        several_labels=several,
        may_have_lists=lists,
    )


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
    return Examples(texts, [row["label"] for row in rows], index, lambda row: f"{name} row {row}", facts, columns)


def _read_hub(name: str | None, args: GlueArguments, trained: TrainedFor) -> dict[str, Examples]:
    if args.dataset_name:
        dataset_name, config = args.dataset_name, args.dataset_config_name
    else:
        dataset_name, config = HUB_NAME, name
    source = dataset_name if args.dataset_name else f"{dataset_name}, which --task_name {name} reads by default"
    dataset = from_hub(source, GIVE_FILES, lambda datasets: load_dataset(datasets, dataset_name, config))
    task = GLUE_TASKS[name] if name else _own_task(args, trained, "train" in dataset)
    wanted = tuple(task.files) if name else ("train", "validation", "test")
    named = {split: split for split in dataset} | _usual_splits(dataset_name, dataset)
    chosen = {
        split: named[split]
        for split in wanted
        if split in named and (not split.startswith("test") or args.do_predict or "train" not in wanted)
    }
    divides = args.folds is not None or args.validation_split is not None
    validates = any(split.startswith("validation") for split in named)
    if "train" in chosen and "test" in dataset and not validates and not divides:
        chosen["validation"] = "test"
    splits = {}
    for split, of_hub in chosen.items():
        source = f"{dataset_name} {config or ''} {of_hub}"
        labelled, training = not split.startswith("test"), split == "train"
        splits[split] = _hub_examples(task, dataset[of_hub], source, labelled, training)
        task = _with_columns(task, splits[split])
    if not splits:
        predict = "; --do_predict predicts the split test" if "test" in named and not args.do_predict else ""
        raise UserError(f"{dataset_name}: expected the splits {', '.join(wanted)}; got {', '.join(dataset)}{predict}")
    if (
        args.dataset_name
        and "train" in splits
        and not divides
        and not any(split.startswith("validation") for split in splits)
    ):
        raise UserError(
            f"--dataset_name {dataset_name}: there is training data but nothing to evaluate on, only the splits "
            f"{', '.join(dataset)}; hold some of it out with --validation_split 0.1, or {AS_FILES}"
        )
    return splits


def _usual_splits(dataset_name: str, dataset: Any) -> dict[str, str]:
    try:
        return usual_splits(dataset)
    except ValueError as error:
        raise UserError(f"--dataset_name {dataset_name}: {error}; {AS_FILES}") from None


def _hub_examples(task: Task, rows: Any, source: str, labelled: bool, training: bool) -> Examples:
    try:
        columns = find_columns(task, rows.column_names, labelled, training)
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    read = [name for name in columns.names() if labelled or not task.files or name != columns.label]
    table = {name: rows[name][:] for name in read}
    content = digest({name: [*map(str, cells)] for name, cells in table.items()})
    facts: dict = {"source": source, "fingerprint": rows._fingerprint, "content_sha256": content}
    if columns.label in table:
        feature = rows.features[columns.label]
        of_list = getattr(getattr(feature, "feature", None), "names", None)
        if names := getattr(feature, "names", None) or of_list:
            table[columns.label] = [_named(cell, names) for cell in table[columns.label]]
            facts["class_names"] = list(names)
    return _examples(task, table, columns, lambda row: f"{source} row {row}", facts, labelled, bool(task.files))


def _named(cell: Any, names: list[str]) -> Any:
    """The names for the numbers of a cell, which has one or a list; a hidden number such as -1 as it is."""
    if isinstance(cell, list):
        return [_named(number, names) for number in cell]
    return names[cell] if cell is not None and cell >= 0 else cell
