"""The files of predictions with probabilities, for data of the user's own: ``predictions_<split>.csv`` and ``.jsonl``.

Their rows are those of the data, in its order. The column of a class is called ``p_`` and its name, so that a class
called "id" or "label" has a column of its own:

    "id","label","p_angry","p_id"
    "r7","angry",0.9213,0.0787

    {"id": "r7", "label": "angry", "probabilities": {"angry": 0.9213, "id": 0.0787}}

In the .csv, texts are quoted and numbers are not, so that no id can split a row. A regression has ``id`` and ``score``.
"""

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from bert_training.files.atomic import whole_file

PREFIX = "p_"
DIGITS = ".7g"  # a float32 has no more


def write_probabilities(
    folder: Path,
    split: str,
    ids: Sequence[str],
    names: Sequence[str],
    shares: np.ndarray,
    labels: Sequence[str],
    lists: Sequence[list[str]] | None = None,
) -> Path:
    """Write the two files of a classification; return the path of the .csv.

    Args:
        names: of the classes, in the order of the columns of ``shares``.
        shares: the probabilities (rows, classes).
        labels: the predicted label of every row.
        lists: of several labels a text, the labels of every row, for the .jsonl.
    """
    rows = [[float(f"{share:{DIGITS}}") for share in row] for row in shares]
    header = ["id", "label", *(PREFIX + name for name in names)]
    path = _write_csv(folder, split, header, ([id_, label, *row] for id_, label, row in zip(ids, labels, rows)))
    _write_jsonl(
        folder,
        split,
        (
            {"id": id_, "label": label, "probabilities": dict(zip(names, row))}
            for id_, label, row in zip(ids, labels if lists is None else lists, rows, strict=True)
        ),
    )
    return path


def write_scores(folder: Path, split: str, ids: Sequence[str], scores: np.ndarray) -> Path:
    """Write the two files of a regression; return the path of the .csv."""
    values = [float(f"{score:.9g}") for score in scores]  # the digits of the file for the GLUE server
    path = _write_csv(folder, split, ["id", "score"], zip(ids, values, strict=True))
    _write_jsonl(folder, split, ({"id": id_, "score": value} for id_, value in zip(ids, values)))
    return path


def _write_csv(folder: Path, split: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    path = folder / f"predictions_{split}.csv"
    with whole_file(path) as draft, open(draft, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    return path


def _write_jsonl(folder: Path, split: str, records: Iterable[dict]) -> None:
    with whole_file(folder / f"predictions_{split}.jsonl") as draft, open(draft, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
