"""The outputs of a teacher in a file, addressed by content: by its weights and by the rows that it read.

If anything that they depend on changes, a new file is written. A file is never stale, and any may be deleted.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import BertConfig

from bert_training.engine.batches import Features
from bert_training.files.array_files import load_arrays, save_arrays
from tokenization.errors import UserError

FORMAT = 1  # to be raised whenever the code that computes the outputs changes what they are
LENGTHS = "lengths"
# Fields of a config that do not change what a network computes.
UNIMPORTANT = ("_", "name_or_path", "transformers_version", "architectures", "id2label", "label2id", "auto_map",
               "dtype", "fine_tuning", "question_answering")  # fmt: skip
Outputs = Mapping[str, Any]
"""Name -> an array (rows, C), or a list with an array (length,) or (length, C) for each row."""


def fingerprint(weights: Mapping[str, str], config: BertConfig, how: Sequence[Any], rows: Features) -> str:
    """The SHA-256, in hexadecimal, of everything that the outputs depend on.

    Args:
        weights: file -> SHA-256.
        how: whatever else decides how the rows are read.
        rows: their ids, which stand for the tokenizer as well.
    """
    fields = {name: value for name, value in config.to_dict().items() if not name.startswith(UNIMPORTANT)}
    said = [FORMAT, dict(weights), fields, *how]
    found = hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode())
    for name in ("input_ids", "token_type_ids"):
        for row in rows.columns[name]:
            for part in _parts(row):
                found.update(len(part).to_bytes(8, "little") + np.asarray(part, dtype=np.int64).tobytes())
            found.update(b"\n")
    return found.hexdigest()


def _parts(row: Any) -> Iterable[Any]:
    """The windows of a row; an ordinary row is its only one."""
    return row if len(row) and np.ndim(row[0]) else [row]


def write_outputs(path: Path, key: str, outputs: Outputs) -> None:
    """Write the outputs of all rows; one array for the tokens of all rows, where each token has its own."""
    columns = {}
    for name, values in outputs.items():
        if isinstance(values, list):
            columns[LENGTHS] = np.array([len(row) for row in values])
            values = np.concatenate(values)
        columns[name] = values
    save_arrays(path, key, columns)


def read_outputs(path: Path, key: str, rows: int) -> Outputs:
    """Read what ``write_outputs`` wrote.

    A damaged file raises one of ``array_files.py: DAMAGE``.

    Raises:
        ValueError: the file holds outputs for other rows, or of another teacher.
    """
    columns = load_arrays(path, key, "the outputs of another teacher, or for other rows")
    lengths = columns.pop(LENGTHS, None)
    counts = {name: len(values) for name, values in columns.items()}
    needed = rows if lengths is None else int(lengths.sum())
    if set(counts.values()) != {needed} or (lengths is not None and len(lengths) != rows):
        raise UserError(f"it holds {counts} outputs, expected {needed} for {rows} rows")
    if lengths is None:
        return columns
    ends = np.cumsum(lengths)[:-1]
    return {name: np.split(values, ends) for name, values in columns.items()}
