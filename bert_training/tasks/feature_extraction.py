"""Contextual vectors for lines of text of any length, as in extract_features.py of google-research/bert.

A line is one input of the model, and so is a row of a table with the column text, or sentence1 and sentence2. In a
line, " ||| " separates the two texts of a pair:

    the river ||| an old house   ->   [CLS] the river [SEP] an old house [SEP]
                           type ids     0    0    0     0   1   1    1     1

A line that is longer than the model allows is refused, cut as in the original, or split into overlapping windows. The
vector of a piece then comes from the window in which it has the most context on both sides.

Shapes: L pieces of a line or row, H hidden size.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import ModelOutput

from bert_training.engine.batches import Features
from bert_training.engine.predict import predict_alone
from bert_training.files.atomic import whole_file
from bert_training.inputs.reading import kind_of, numbered_lines
from bert_training.inputs.rows import KINDS, Column
from bert_training.inputs.rows import read_rows as read_table
from bert_training.tasks.cut_texts import rows_around
from bert_training.tasks.task_data import KEEP_ACCENTS, OTHER_VOCABULARY, pieces_of_texts
from tokenization.coverage import coverage
from tokenization.errors import UserError

COLUMNS = (Column("first", ("text", "sentence1")), Column("second", ("sentence2",), needed=False))
PAIR = re.compile(r"^(.*) \|\|\| (.*)$")


@dataclass
class Row:
    """One input of the model.

    ``kept`` are the positions whose vectors are used for the line; ``cut`` says that the line was longer.
    """

    input_ids: list[int]
    token_type_ids: list[int]
    kept: slice
    cut: bool = field(default=False, compare=False)


def parse_layers(text: str, num_layers: int) -> list[int]:
    """The layer numbers in a text such as "-1,-2".

    Raises:
        UserError: they are no such numbers, or a network of ``num_layers`` layers lacks one of them.
    """
    layers = [int(part) for part in text.split(",")] if re.fullmatch(r"-?\d+(,-?\d+)*", text) else []
    if not layers or not all(-num_layers - 1 <= layer < num_layers for layer in layers):
        raise UserError(
            f"--layers: expected numbers with commas between them, such as -1,-2; got {text!r}. The model has the "
            f"layers -1 (last) to {-num_layers} (first), or 0 (first) to {num_layers - 1} (last), and "
            f"{-num_layers - 1}, the embeddings"
        )
    return layers


# --- lines to rows ---------------------------------------------------------------------------------------


def read_rows(
    path: str | Path, tokenizer: PreTrainedTokenizerBase, max_seq_length: int, long_lines: str = "error"
) -> list[list[Row]]:
    """The rows of every line of a file (plain or packed). An empty line becomes [CLS] [SEP]; no line is left out.

    Raises:
        UserError: the file is empty; or with its place: a text is not UTF-8, or it is too long and ``long_lines`` is
            "error", or it is a pair that is too long and ``long_lines`` is "window".
    """
    pairs = read_pairs(path)
    place = f"{path}, row " if kind_of(path).lower() in KINDS else f"{path}:"
    first_pieces = pieces_of_texts(tokenizer, [first for first, _ in pairs])
    second_pieces = pieces_of_texts(tokenizer, [second or "" for _, second in pairs])
    rows = []
    for number, (first, second, (_, is_pair)) in enumerate(zip(first_pieces, second_pieces, pairs), 1):
        room, length = max_seq_length - (2 if is_pair is None else 3), len(first) + len(second)
        if length > room and (long_lines == "error" or (is_pair is not None and long_lines == "window")):
            remedy = "window or --long_lines cut" if is_pair is None else "cut (windows are for single texts)"
            raise UserError(
                f"{place}{number}: expected up to {room} pieces, got {length}; raise --max_seq_length, or give "
                f"--long_lines {remedy}"
            )
        if is_pair is None:
            rows.append(_single(first, tokenizer, room, cut=long_lines == "cut" and length > room))
        else:
            rows.append([_pair(first, second, tokenizer, room)])
    return rows


def read_pairs(path: str | Path) -> list[tuple[str, str | None]]:
    """The texts of a file: its lines, or of a table the column text, or sentence1 and sentence2; None beside one."""
    if kind_of(path).lower() in KINDS:
        columns = read_table(path, COLUMNS).data.to_pydict()
        return [*zip(columns["first"], columns.get("second", [None] * len(columns["first"])))]
    texts = [line.strip() for _, line in numbered_lines(Path(path))]
    if not texts:
        raise UserError(f"{path}:1: expected one text per line, got an empty file")
    return [(match[1], match[2]) if (match := PAIR.match(text)) else (text, None) for text in texts]


def remarks(path: str | Path, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Warnings for the user if the tokenizer loses much of the text."""
    texts = (" ".join(filter(None, pair)) for pair in read_pairs(path))
    return coverage(tokenizer, texts).warnings(str(path), OTHER_VOCABULARY, KEEP_ACCENTS)


def _single(pieces: list[int], tokenizer: PreTrainedTokenizerBase, room: int, cut: bool) -> list[Row]:
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    if cut:
        pieces = pieces[:room]
    if len(pieces) <= room:
        return [Row([cls, *pieces, sep], [0] * (len(pieces) + 2), slice(None), cut)]
    half = room // 2
    parts = [(begin, min(begin + half, len(pieces))) for begin in range(0, len(pieces), half)]
    rows = []
    for first, numbers in rows_around(parts, len(pieces), room).items():
        part = pieces[first : first + room]
        (begin, _), (_, end) = parts[numbers[0]], parts[numbers[-1]]
        kept = slice(begin - first + 1, end - first + 1)  # [CLS] is at position 0
        rows.append(Row([cls, *part, sep], [0] * (len(part) + 2), kept))
    # The line keeps the [CLS] of its first window and the [SEP] of its last.
    rows[0].kept, rows[-1].kept = slice(0, rows[0].kept.stop), slice(rows[-1].kept.start, None)
    return rows


def _pair(first: list[int], second: list[int], tokenizer: PreTrainedTokenizerBase, room: int) -> Row:
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    cut = len(first) + len(second) > room
    # The longer text is shortened first and, of two equal ones, the second, as by Google's `_truncate_seq_pair`.
    second = second[: max(room // 2, room - len(first))]
    first = first[: room - len(second)]
    types = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    return Row([cls, *first, sep, *second, sep], types, slice(None), cut)


# --- rows to vectors -------------------------------------------------------------------------------------


def extract(
    model: torch.nn.Module,
    lines: list[list[Row]],
    layers: list[int],
    pad_token_id: int,
    batch_size: int,
    device: torch.device,
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield (ids (L,), vectors (L, layers, H) float32) of every line, in order.

    The rows of about 16 batches are in memory at a time; in these, rows of similar length share a batch.
    """
    block: list[list[Row]] = []
    for number, line in enumerate(lines, 1):
        block.append(line)
        if sum(map(len, block)) >= 16 * batch_size or number == len(lines):
            rows = [row for line in block for row in line]
            vectors = iter(_vectors(model, rows, layers, pad_token_id, batch_size, device))
            for line in block:
                ids = [piece for row in line for piece in row.input_ids[row.kept]]
                yield ids, np.concatenate([next(vectors)[row.kept] for row in line])
            block = []


def _vectors(
    model: torch.nn.Module,
    rows: list[Row],
    layers: list[int],
    pad_token_id: int,
    batch_size: int,
    device: torch.device,
) -> list[np.ndarray]:
    """One array (L, layers, H) for every row."""

    def chosen_layers(outputs: ModelOutput) -> dict[str, torch.Tensor]:
        states = outputs["hidden_states"]  # embeddings, layer 1, ..., the last layer
        return {"vectors": torch.stack([states[layer if layer < 0 else layer + 1] for layer in layers], dim=2)}

    columns = {name: [getattr(row, name) for row in rows] for name in ("input_ids", "token_type_ids")}
    features = Features(columns, pad_token_id)
    outputs = predict_alone(model, features, batch_size, device, chosen_layers, output_hidden_states=True)
    return outputs["vectors"]


def pool(ids: list[int], vectors: np.ndarray, pooling: str) -> np.ndarray:
    """Pool vectors (L, layers, H): "cls" and "mean" give (1, layers, H), "none" leaves them unchanged.

    The mean includes [CLS] and [SEP].
    """
    return {"none": vectors, "cls": vectors[:1], "mean": vectors.mean(axis=0, keepdims=True)}[pooling]


# --- files -----------------------------------------------------------------------------------------------


def write_jsonl(path: Path, lines: Iterable, layers: list[int], pooling: str, to_tokens: Callable) -> None:
    """Write the layout of google-research/bert, one JSON object per line:

        {"linex_index": 0, "features": [{"token": "[CLS]", "layers": [{"index": -1, "values": [...]}, ...]}, ...]}

    With pooling, every line has one entry in "features", with the token "[CLS]" or "mean".
    """
    with open(path, "w", encoding="utf-8") as file:
        for number, (ids, vectors) in enumerate(lines):
            tokens = {"none": to_tokens(ids), "cls": to_tokens(ids[:1]), "mean": ["mean"]}[pooling]
            features = [
                {
                    "token": token,
                    "layers": [
                        {"index": layer, "values": [round(value, 6) for value in vector.tolist()]}
                        for layer, vector in zip(layers, row)
                    ],
                }
                for token, row in zip(tokens, pool(ids, vectors, pooling), strict=True)
            ]
            file.write(json.dumps({"linex_index": number, "features": features}) + "\n")


def write_npz(path: Path, lines: Iterable, layers: list[int], pooling: str) -> None:
    """Write NumPy arrays ``vectors`` and ``layers``.

    With pooling, the vectors are (lines, layers, H). Without it, they are (pieces, layers, H) for all lines together:
    line i has the pieces ``offsets[i]`` to ``offsets[i + 1] - 1``, whose ids are in ``input_ids``.
    """
    kept, all_ids, offsets = [], [], [0]
    with open(path, "wb") as file:  # before the hours of computing, so that a folder that cannot be written is found
        for ids, vectors in lines:
            kept.append(pool(ids, vectors, pooling))
            all_ids += ids
            offsets.append(len(all_ids))
        arrays: dict[str, Any] = {"vectors": np.concatenate(kept), "layers": np.array(layers)}
        if pooling == "none":
            arrays |= {"input_ids": np.array(all_ids, dtype=np.int32), "offsets": np.array(offsets)}
        np.savez(file, **arrays)


def write_vectors(path: Path, lines: Iterable, layers: list[int], pooling: str, to_tokens: Callable) -> None:
    """Write .npz or .jsonl, as the suffix of ``path`` says; the file gets its name when it is complete."""
    with whole_file(path) as draft:
        if path.suffix == ".npz":
            write_npz(draft, lines, layers, pooling)
        else:
            write_jsonl(draft, lines, layers, pooling, to_tokens)
