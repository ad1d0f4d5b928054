"""What an exported folder says of itself: the names of its files, its record, table and card, and its labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_training.cards.markdown import plain
from bert_training.files.hashing import digest
from bert_training.inputs.reading import read_record
from tokenization.errors import UserError

EXPORT, CHECKSUM = "export.json", "checksum"
WHOLE, SMALL = "onnx/model.onnx", "onnx/model_quantized.onnx"
BATCH = 32  # rows of a timed batch


def table(record: Mapping[str, Any]) -> str:
    """The comparison, for the terminal and the README."""
    metric, first = (record["metric"] or "score").removeprefix("eval_"), record["torch"]
    lines = [
        f"| | {metric} | other answers | largest difference | ms, one text | ms, batch of {BATCH} | MB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, one in ({"torch, float32": first} | record["files"]).items():
        score, changed, difference = one.get("score"), one.get("changed"), one.get("difference")
        cells = [
            name,
            "-" if score is None else f"{score:.2f}",
            "-" if changed is None else f"{changed:,} of {record['rows']:,}",
            "-" if difference is None else f"{difference:.1e}",
            *(f"{one[key]:.1f} ({first[key] / one[key]:.2f}x)" for key in ("ms_one", "ms_batch")),
            f"{one['bytes'] / 1e6:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def card_text(record: Mapping[str, Any]) -> str:
    """The README of an exported folder, from its export.json."""
    where = f"on the {record['rows']:,} rows of {plain(record['validation'])}" if record["rows"] else "by sentences"
    packages = ", ".join(f"{name} {version}" for name, version in record["versions"].items() if version)
    parts = [
        f"---\nlibrary_name: {record['format']}\n---\n\n# {plain(record['model'])}, exported",
        f"A {record['architecture']} for {record['format']}, compared with torch {where}:",
        table(record),
        *(f"Kept with `--force`: {problem}." for problem in record["forced"]),
        "The largest difference is that of the outputs for a few built-in sentences. Times are those of "
        f"{record['device']}, with {packages}; files compute a batch in parts of similar length, torch as a whole.",
        f"Inputs: {', '.join(record['inputs'])}. Outputs: {', '.join(record['outputs'])}.",
    ]
    return "\n\n".join(parts) + "\n"


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The content of export.json: the record, and a checksum of it."""
    return {**record, CHECKSUM: digest(record)}


def read_export(folder: Path) -> dict[str, Any]:
    """The content of export.json without its checksum. Raises ValueError if it is damaged or edited."""
    record = read_record(folder / EXPORT, "export the model again", ("files", "torch", "sha256"))
    if record.pop(CHECKSUM, None) != digest(record):
        raise UserError(f"{folder / EXPORT}: damaged or edited (its checksum is that of another content)")
    return record


def check_labels(path: Path, config: Mapping[str, Any], run: Mapping[str, Any] | None) -> list[str]:
    """The names of the labels in a config.json, in their order.

    Raises:
        ValueError: they contradict each other, or are in another order than those that the run recorded.
    """
    names, numbers = config.get("id2label") or {}, config.get("label2id") or {}
    ordered = [names[number] for number in sorted(names, key=int)]
    data = (run or {}).get("data")
    recorded = data.get("labels") if isinstance(data, dict) else None  # of a pre-training, it is a list of files
    by_number = {str(number): name for name, number in numbers.items()}
    contradict = numbers and by_number != {str(number): name for number, name in names.items()}
    if contradict or (recorded and ordered and ordered != recorded):
        raise UserError(
            f"{path}: expected the labels of the run in its order, {recorded or 'which it does not record'}; got "
            f"id2label with {ordered} and label2id with {numbers}; restore the file that the run wrote"
        )
    return ordered
