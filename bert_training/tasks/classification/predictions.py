"""The files of predictions of a classification.

Of a task of GLUE it is the file for the server, ``index<tab>prediction``, with labels as in the task's files. Of the
user's own data they are ``predictions_<split>.csv`` and ``.jsonl``, whose rows are those of the data, in its order. The
column of a class is called ``p_`` and its name, so that a class called "id" or "label" has a column of its own:

    "id","label","p_angry","p_id"
    "r7","angry",0.9213,0.0787

    {"id": "r7", "label": "angry", "probabilities": {"angry": 0.9213, "id": 0.0787}}

In the .csv, texts are quoted and numbers are not, so that no id can split a row. A regression has ``id`` and ``score``.
``confusion.json`` has for every split that was scored, and for every class, how many of its rows were taken for which
class; zeros are left out:

    {"validation": {"angry": {"angry": 41, "sad": 9}, "sad": {"sad": 30}}}
"""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_training.cards.model_card import CONFUSION
from bert_training.files.atomic import whole_file, write_json, write_text
from bert_training.tasks.classification import calibration
from bert_training.tasks.classification.glue import server_name
from bert_training.tasks.classification.labelled_texts import ClassificationData
from bert_training.tasks.classification.multi_label_scores import MARK, labels_of
from bert_training.tasks.classification.multi_label_scores import probabilities as shares_of_labels
from bert_training.tasks.task_data import write_rows

PREFIX = "p_"


def write_predictions(
    folder: Path,
    data: ClassificationData,
    logits: Mapping[str, np.ndarray],
    temperature: float | None = None,
    thresholds: Sequence[float] | None = None,
    below: float | None = None,
) -> list[Path]:
    """Write the predictions, and of labelled splits what is right; return the files that others read.

    Args:
        logits: of every split (rows, classes).
        temperature: of the probabilities; None stands for 1.
        thresholds: of texts that may have several labels.
        below: the highest probability below which the label in the tables is none: null, or an empty cell. What is
            right is compared with the best class all the same, as in the scores.
    """
    paths, confused = [], {}
    for split, values in logits.items():
        examples = data.splits[split]
        rows, answers = _predictions(data, values, temperature, thresholds, below)
        if data.own:
            paths.append(_write_tables(folder / f"predictions_{split}", data, examples.index, rows))
        elif split in data.to_predict:
            paths.append(_write_for_server(folder / server_name(data.task, split), data, examples.index, answers))
        if examples.labels is not None:
            truth = [_named(data, label) for label in examples.labels]
            sides = zip(examples.index, truth, answers, strict=True)
            write_rows(folder, split, ({"id": id_, "true": true, "answer": said} for id_, true, said in sides))
            if data.own and data.problem_type == "single_label_classification":
                confused[split] = confusion(truth, answers, data.label_names)
    if confused:
        write_json(folder / CONFUSION, confused)
    return paths


def _predictions(
    data: ClassificationData,
    logits: np.ndarray,
    temperature: float | None,
    thresholds: Sequence[float] | None,
    below: float | None,
) -> tuple[list[dict[str, Any]], list[Any]]:
    """The rows of the .jsonl, without their ids, and the best label, the labels or the score of each."""
    names = data.task.labels
    if names is None:
        scores = [float(score) for score in logits[:, 0]]
        return [{"score": float(f"{score:.9g}")} for score in scores], scores
    if thresholds is None:
        shares = calibration.probabilities(logits, temperature)
        answers: list[Any] = [names[number] for number in logits.argmax(axis=1)]
    else:
        shares = shares_of_labels(logits)
        answers = [labels_of(row, thresholds, names) for row in shares]
    rounded = [[float(f"{share:.7g}") for share in row] for row in shares]  # a float32 has no more digits
    none = shares.max(axis=1) < (below or 0)
    said = [None if nothing else answer for nothing, answer in zip(none, answers, strict=True)]
    pairs = zip(said, rounded, strict=True)
    return [{"label": label, "probabilities": dict(zip(names, row))} for label, row in pairs], answers


def _named(data: ClassificationData, label: Any) -> Any:
    """The name of a class, or the names of several; a score as it is."""
    names = data.task.labels
    if names is None:
        return label
    return [name for name, there in zip(names, label) if there] if isinstance(label, tuple) else names[label]


def confusion(truth: Sequence[str], answers: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Class -> the class that its rows were taken for -> the number of rows."""
    found: dict[str, dict[str, int]] = {name: dict.fromkeys(names, 0) for name in names}
    for true, answer in zip(truth, answers, strict=True):
        found[true][answer] += 1
    return {name: {other: count for other, count in row.items() if count} for name, row in found.items()}


def _write_tables(path: Path, data: ClassificationData, ids: Sequence[str], rows: list[dict[str, Any]]) -> Path:
    """Write the .jsonl and the .csv; return the path of the .csv. Several labels are one cell there, such as a|b."""
    mark = data.task.label_separator or MARK
    with whole_file(path.with_suffix(".jsonl")) as draft, open(draft, "w", encoding="utf-8") as file:
        for id_, row in zip(ids, rows, strict=True):
            file.write(json.dumps({"id": id_} | row, ensure_ascii=False) + "\n")
    with whole_file(path.with_suffix(".csv")) as draft, open(draft, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        classes = data.task.labels
        writer.writerow(["id", "score"] if classes is None else ["id", "label", *(PREFIX + name for name in classes)])
        for id_, row in zip(ids, rows):
            cells = [row["score"]] if classes is None else [row["label"], *row["probabilities"].values()]
            writer.writerow([id_, *(mark.join(cell) if isinstance(cell, list) else cell for cell in cells)])
    return path.with_suffix(".csv")


def _write_for_server(path: Path, data: ClassificationData, ids: Sequence[str], answers: Sequence[Any]) -> Path:
    """Write a file for the GLUE server; scores have three decimals, as its examples do."""
    task = data.task
    if task.labels is None:
        spelled = [f"{score:.3f}" for score in np.clip(answers, *task.score_range)]
    else:
        spelled = [(task.spellings or task.labels)[task.labels.index(answer)] for answer in answers]
    rows = [f"{name}\t{prediction}\n" for name, prediction in zip(ids, spelled, strict=True)]
    write_text(path, "index\tprediction\n" + "".join(rows))
    return path
