"""What an exported folder says of itself: the names of its files, its table and card, and whether it is unchanged."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_training.cards.markdown import plain
from bert_training.files.hashing import sha256
from bert_training.files.json_files import read_object
from bert_training.tools.findings import Finding, differs, is_ordinary, unknown, verified

WHOLE, SMALL = "onnx/model.onnx", "onnx/model_quantized.onnx"
OPENVINO = ("openvino/openvino_model.xml", "openvino/openvino_model_qint8_quantized.xml")
BATCH = 32  # rows of a timed batch


def table(record: Mapping[str, Any]) -> str:
    """The comparison, for the terminal and the README."""
    metric = record["metric"]
    first = record["torch"]
    lines = [
        f"| | {(metric or 'score').removeprefix('eval_')} | same decisions | largest difference | ms, one text "
        f"| ms, batch of {BATCH} | MB | MB of memory |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, one in ({"torch, float32": first} | record["files"]).items():
        scores = ", ".join("-" if score is None else f"{score:.2f}" for score in (one.get("scores") or {}).values())
        agreement, difference = one.get("agreement"), one.get("difference")
        cells = [
            name,
            scores or "-",
            "-" if agreement is None else f"{100 * agreement:.2f} %",
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
        f"on {plain(record['validation'])}" if record["validation"] else "for a few sentences, without validation data"
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


def is_export(folder: Path) -> bool:
    """Whether a folder is one that ``bert-repro export`` wrote."""
    return (folder / "export.json").is_file() and not (folder / "run.json").is_file()


def check_export(folder: Path) -> Iterator[Finding]:
    """Whether the files are those that were scored when they were exported."""
    record = read_object(folder / "export.json")
    files = record.get("files")
    for name in (WHOLE, SMALL, *OPENVINO):
        facts = files.get(name) if isinstance(files, dict) else None
        path = folder / name
        if not isinstance(facts, dict):
            if path.exists():
                yield differs(name, "export.json does not know this file")
            continue
        parts = {path: facts.get("sha256")}
        if path.suffix == ".xml":
            parts[path.with_suffix(".bin")] = facts.get("weights_sha256")
        if not all(is_ordinary(part) for part in parts):
            yield differs(name, "export.json has its hash, but there is no such file")
        elif all(sha256(part) == digest for part, digest in parts.items()):
            yield verified(name, "it has the SHA-256 in export.json")
        else:
            yield differs(name, "its SHA-256 is not the one in export.json")
    if (folder / "README.md").is_file():
        try:
            same = (folder / "README.md").read_text(encoding="utf-8") == card_text(record)
        except (KeyError, TypeError, AttributeError, ValueError):
            same = False
        yield (
            verified("README.md", "the text that export.json gives")
            if same
            else unknown("README.md", "it is another text than export.json gives")
        )
    yield unknown("scores", "this is an export; `bert-repro export` of the model compares them again")
