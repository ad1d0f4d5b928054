"""What an exported folder says of itself: the names of its files, its record, table and card, and its labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_training.cards.markdown import plain
from bert_training.files.hashing import digest
from bert_training.files.records import read_record
from tokenization.errors import UserError

EXPORT, CHECKSUM = "export.json", "checksum"
WHOLE, SMALL = "onnx/model.onnx", "onnx/model_quantized.onnx"
OPENVINO = ("openvino/openvino_model.xml", "openvino/openvino_model_qint8_quantized.xml")
BATCH = 32  # rows of a timed batch


def table(record: Mapping[str, Any]) -> str:
    """The comparison, for the terminal and the README."""
    metric = record["metric"]
    first = record["torch"]
    lines = [
        f"| | {(metric or 'score').removeprefix('eval_')} | other answers | largest difference | ms, one text "
        f"| ms, batch of {BATCH} | MB | MB of memory |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, one in ({"torch, float32": first} | record["files"]).items():
        scores = ", ".join("-" if score is None else f"{score:.2f}" for score in (one.get("scores") or {}).values())
        changed, difference = one.get("changed"), one.get("difference")
        cells = [
            name,
            scores or "-",
            "-" if changed is None else f"{changed:,} of {record['rows']:,}",
            "-" if difference is None else f"{difference:.1e}",
            f"{one['ms_one']:.1f} ({first['ms_one'] / one['ms_one']:.2f}x)",
            f"{one['ms_batch']:.1f} ({first['ms_batch'] / one['ms_batch']:.2f}x)",
            f"{one['bytes'] / 1e6:.1f}",
            f"{one['peak_memory_bytes'] / 1e6:.0f}" if one.get("peak_memory_bytes") else "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def card_text(record: Mapping[str, Any]) -> str:
    """The README of an exported folder, from its export.json."""
    where = (
        f"on the {record['rows']:,} rows of {plain(record['validation'])}"
        if record["validation"]
        else "for a few sentences, without validation data"
    )
    of_format = f"ONNX (opset {record['opset']})" if record["format"] == "onnx" else "OpenVINO"
    lines = ["---", f"library_name: {record['format']}", "---", "", f"# {plain(record['model'])}, exported", ""]
    lines += [f"A {record['architecture']} as {of_format}, compared with torch {where}:", "", table(record), ""]
    lines += [f"Kept with `--force`: {problem}.\n" for problem in record["forced"]]
    if calibration := record["calibration"]:
        lines += [
            f"The ranges of the activations are those of {calibration['rows']} rows of {plain(calibration['file'])}.",
            "",
        ]
    if layers := record.get("in_float"):
        lines += [f"In float32, because 8 bits hurt there: {', '.join(layers)}.", ""]
    packages = ", ".join(f"{name} {version}" for name, version in record["versions"].items() if version)
    lines += [
        "Milliseconds, and times as fast as torch, are those of one machine. Files compute a batch in parts of similar "
        "length, torch as a whole. Memory is the largest one of a process that computes the batch.",
        "",
        f"Measured on {record['device']}, with {packages}.",
        "",
        f"Inputs: {', '.join(record['inputs'])}. Outputs: {', '.join(record['outputs'])}.",
    ]
    return "\n".join(lines) + "\n"


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
    names = config.get("id2label") or {}
    numbers = config.get("label2id") or {}
    if numbers and {str(number): name for name, number in numbers.items()} != {
        str(n): name for n, name in names.items()
    }:
        raise UserError(f"{path}: id2label and label2id contradict each other; restore the file that the run wrote")
    data = (run or {}).get("data")
    recorded = data.get("labels") if isinstance(data, dict) else None
    ordered = [names[number] for number in sorted(names, key=int)] if names else []
    if recorded and ordered and ordered != recorded:
        raise UserError(
            f"{path}: id2label has the labels {', '.join(map(str, ordered))}, and the run was trained with "
            f"{', '.join(map(str, recorded))}, in this order; restore the file that the run wrote"
        )
    return ordered
