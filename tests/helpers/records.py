"""Read the files that a run leaves in its folder."""

import json
from pathlib import Path
from typing import Any

from bert_training.files.hashing import digest


def read(folder: Path, name: str) -> Any:
    """The content of a JSON file of the folder."""
    return json.loads((folder / name).read_text(encoding="utf-8"))


def events(folder: Path, kind: str) -> list[dict]:
    """The records of metrics.jsonl whose ``event`` is ``kind``."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def write_summary(folder: Path, **content: Any) -> None:
    """Write the summary.json of a series, with its checksum."""
    (folder / "summary.json").write_text(json.dumps(content | {"checksum": digest(content)}), encoding="utf-8")
