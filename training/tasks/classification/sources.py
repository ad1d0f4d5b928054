"""The sources of examples for text classification.

They are read from the official files (``--task_name``, ``--data_dir``), from the user's own files (``--train_file``,
``--validation_file``, ``--test_file``; with ``--task_name``, in the layout of that task), from the Hub (``--task_name``
alone, or ``--dataset_name``), or they belong to a built-in task, which is the default.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from training.builtin_data import documentation
from training.files.hashing import digest, sha256
from training.files.hub_datasets import from_hub, load_dataset
from training.files.tables import read_table
from training.files.unchanged import unchanged
from training.flags.fine_tuning import GlueArguments
from training.tasks.classification.glue import (
    ACCURACY,
    BUILTIN_TASKS,
    CORRELATIONS,
    FORMER_NAMES,
    GLUE_TASKS,
    OWN_LABELS,
    OWN_TEXTS,
    Task,
)
from training.tasks.classification.labelled_texts import (
    INTEGER,
    NUMBER,
    ClassificationData,
    Columns,
    Examples,
    as_text,
    encode_labels,
    find_columns,
)
from training.tasks.prediction_files import as_ids, check_cell, check_ids
from training.tasks.task_data import own_files, sample_limit

HUB_NAME = "nyu-mll/glue"
GIVE_FILES = "give the official files with --data_dir FOLDER, or your own with --train_file and --validation_file"


def load_data(args: GlueArguments, model_labels: tuple[str, ...] | None = None) -> ClassificationData:
    """Read the examples that the flags ask for.

    Args:
        model_labels: the label names of the model, if it has any. If they are the names of the task in another order,
            the model's order is used, so that a trained head keeps its meaning.

    Raises:
        ValueError: flags that contradict each other; a file that is missing or malformed, with file and line.
    """
    files = own_files(args)
    given = [flag for flag, there in (("--data_dir", args.data_dir), ("--dataset_name", args.dataset_name),
                                      ("--train_file, --validation_file or --test_file", files))
             if there]  # fmt: skip
    if len(given) > 1:
        raise ValueError(f"give only one of {' and '.join(given)}")
    tasks = GLUE_TASKS | BUILTIN_TASKS
    name = args.task_name or (None if given else "builtin_pair")
    name = FORMER_NAMES.get(name, name) if name else None
    if name and name not in tasks:
        raise ValueError(f"--task_name: expected one of {', '.join(tasks)}; got {name!r}")
    if name in BUILTIN_TASKS and given:
        raise ValueError(f"--task_name {name} takes no data; drop {given[0]}")
    if args.data_dir and not name:
        raise ValueError("--data_dir needs --task_name: official files differ from task to task")
    task = (
        tasks[name]
        if name
        else Task(folder="custom", text_columns=OWN_TEXTS, label_columns=OWN_LABELS, labels=None, metrics=())
    )
    if name in BUILTIN_TASKS:
        read = {split: _builtin(name, split) for split in ("train", "validation")}
    elif files:
        read = _read_own_files(task, files)
    elif args.data_dir:
        read = _read_files(task, official_files(task, Path(args.data_dir), args.do_predict))
    else:
        read = _read_hub(name, task, args)
    if not name:
        task = _infer_task(task, read, model_labels)
    elif model_labels and task.labels and set(model_labels) == set(task.labels):
        task = in_order(task, model_labels)
    if "train" not in read and task.labels is not None and set(task.labels) != set(model_labels or (None,)):
        raise ValueError(
            "without training data the model's config must name the labels "
            f"({', '.join(task.labels) or 'in id2label'}); it names {', '.join(model_labels or ['none'])}. "
            f"Give a model fine-tuned on {'MNLI' if name == 'ax' else 'this task'}, or training data"
        )
    return _check(ClassificationData(name or "custom", task, read), args)


def in_order(task: Task, names: tuple[str, ...]) -> Task:
    """The task, a classification, with its classes numbered in the order of ``names``."""
    assert task.labels is not None
    spellings = tuple(task.spellings[task.labels.index(name)] for name in names) if task.spellings else ()
    return replace(task, labels=tuple(names), spellings=spellings, positive=names.index(task.labels[task.positive]))


def _check(data: ClassificationData, args: GlueArguments) -> ClassificationData:
    """Turn labels into numbers, apply ``--max_..._samples``, and refuse data that no later step could use."""
    if args.do_predict and not data.to_predict:
        raise ValueError("--do_predict: there is no test split; give --test_file, or drop the flag")
    if "train" in data.splits and not any(split.startswith("validation") for split in data.splits):
        raise ValueError("there is training data but nothing to evaluate on; give --validation_file")
    for split, examples in data.splits.items():
        if examples.labels is not None:
            examples.labels = encode_labels(examples, data.task)
        data.splits[split] = examples.first(sample_limit(args, split))
    for examples in (data.splits[split] for split in data.to_predict):
        check_ids(examples.index, examples.where, examples.columns.index)
        for label in data.task.labels or ():
            check_cell(label, f"{examples.facts['source']}, or the model's id2label", "labels")
    train = data.splits.get("train")
    if train and train.labels and data.task.labels and len(set(train.labels)) == 1:
        raise ValueError(
            f"{train.where(0)}: this and all other training examples ({len(train)}) have the label "
            f"{data.task.labels[train.labels[0]]!r}; shuffle the file, or raise --max_train_samples"
        )
    return data


def _infer_task(task: Task, splits: dict[str, Examples], model_labels: tuple[str, ...] | None) -> Task:
    """Decide from the labels of the user's own data between classes and scores, and find the names of the classes."""
    split = next((name for name in splits if splits[name].labels is not None), None)
    if split is None:  # there are only texts to predict
        scores = model_labels and len(model_labels) == 1
        return replace(task, labels=None if scores else model_labels or (), metrics=ACCURACY)
    examples = splits[split]
    assert examples.labels is not None
    kinds = {text: (bool(NUMBER.fullmatch(text)), bool(INTEGER.fullmatch(text)))
             for text in {as_text(value) for value in examples.labels}}  # fmt: skip
    if any(number and not integer for number, integer in kinds.values()):
        return replace(task, labels=None, metrics=CORRELATIONS)
    if "" in kinds:
        row = examples.labels.index("")
        raise ValueError(f"{examples.where(row)}: expected a label, got an empty field")
    whole = all(integer for _, integer in kinds.values())
    names = examples.facts.get("class_names") or sorted(kinds, key=int if whole else None)
    if model_labels and (split != "train" or set(names) == set(model_labels)):
        names = model_labels
    if len(names) < 2:
        raise ValueError(f"expected at least two labels, got only {names[0]!r} in {examples.facts['source']}")
    return replace(task, labels=tuple(names), metrics=ACCURACY)


# --- sources ---------------------------------------------------------------------------------------------


def read_examples(task: Task, path: str | Path, labelled: bool) -> Examples:
    """Read one file in the layout of ``task``.

    Unless ``labelled``, a label column is ignored: in files to predict it contains placeholders.

    Raises:
        ValueError: with file and line: a column is missing, or a cell holds no text or label.
    """

    def chosen(header: list[str]) -> list[str]:
        columns = find_columns(task, header, labelled)
        return [name for name in columns.names() if labelled or name != columns.label]

    with unchanged(path):
        table = read_table(path, chosen, task.header, task.ragged_share)
        facts: dict = {"source": str(path), "sha256": sha256(table.path)}
    columns = find_columns(task, list(table.columns), labelled)
    texts = tuple(table.columns[name] for name in columns.texts)
    for name, column in zip(columns.texts, texts):
        for row, text in enumerate(column):
            if not isinstance(text, str):
                raise ValueError(f"{table.where(row)}: expected text in {name!r}, got {text!r}")
    if table.skipped:
        facts["broken_lines_left_out"] = table.skipped
    labels = table.columns[columns.label] if labelled and columns.label else None
    for row, label in enumerate(labels or []):
        if not isinstance(label, str | int | float) or as_text(label) != as_text(label).strip():
            raise ValueError(
                f"{table.where(row)}: expected a word or a number in {columns.label!r}, without spaces around it, "
                f"got {label!r}"
            )
        if {"\t", "\n"} & set(as_text(label)):
            raise ValueError(
                f"{table.where(row)}: expected a word or a number in {columns.label!r}, without tabs and line ends, "
                f"because predictions are written in columns; got {label!r}"
            )
    index = as_ids(table.columns[columns.index] if columns.index else range(len(table)))
    categories = {name: table.columns[name] for name in columns.categories}
    return Examples(texts, labels, index, table.where, facts, columns, categories)


def official_files(task: Task, folder: Path, with_test: bool) -> dict[str, Path]:
    """The path of every split, in ``folder`` or in its sub-folder with the official name; plain, .xz or .gz.

    Raises:
        ValueError: the folder or one of its files is missing.
    """
    if not folder.is_dir():
        raise ValueError(f"--data_dir {folder}: no such folder")
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
        raise ValueError(
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
        raise ValueError(f"{task.folder} has no training data; train on MNLI and drop --train_file")
    splits: dict[str, Examples] = {}
    for split, path in files.items():
        examples = read_examples(task, path, split != "test")
        if not task.metrics:
            columns = examples.columns
            label_columns = (columns.label,) if columns.label else task.label_columns
            task = replace(task, text_columns=(columns.texts,), label_columns=label_columns)
        matched = split + "_matched"
        splits[matched if task.files and matched in task.files else split] = examples
    return splits


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


def _read_hub(name: str | None, task: Task, args: GlueArguments) -> dict[str, Examples]:
    if args.dataset_name:
        dataset_name, config = args.dataset_name, args.dataset_config_name
    else:
        dataset_name, config = HUB_NAME, name
    source = dataset_name if args.dataset_name else f"{dataset_name}, which --task_name {name} reads by default"
    dataset = from_hub(source, GIVE_FILES, lambda datasets: load_dataset(datasets, dataset_name, config))
    wanted = tuple(task.files) if name else ("train", "validation", "test")
    splits = {}
    for split in wanted:
        needed = not split.startswith("test") or args.do_predict or "train" not in wanted
        if split in dataset and needed:
            source = f"{dataset_name} {config or ''} {split}"
            splits[split] = _hub_examples(task, dataset[split], source, not split.startswith("test"))
    if "train" in splits and "test" in dataset and not any(split.startswith("validation") for split in dataset):
        splits["validation"] = _hub_examples(task, dataset["test"], f"{dataset_name} {config or ''} test", True)
    if not splits:
        raise ValueError(f"{dataset_name}: expected the splits {', '.join(wanted)}; got {', '.join(dataset)}")
    return splits


def _hub_examples(task: Task, rows: Any, source: str, labelled: bool) -> Examples:
    try:
        columns = find_columns(task, rows.column_names, labelled)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    labels = rows[columns.label][:] if labelled else None
    facts: dict = {"source": source, "fingerprint": rows._fingerprint}
    if labels and (names := getattr(rows.features[columns.label], "names", None)):
        labels = [names[label] if label >= 0 else str(label) for label in labels]
        facts["class_names"] = list(names)
    texts = tuple(rows[name][:] for name in columns.texts)
    for row, text in ((row, text) for column in texts for row, text in enumerate(column)):
        if not isinstance(text, str):
            raise ValueError(f"{source} row {row}: expected text, got {text!r}")
    index = as_ids(rows[columns.index][:] if columns.index else range(len(rows)))
    return Examples(texts, labels, index, lambda row: f"{source} row {row}", facts, columns)
