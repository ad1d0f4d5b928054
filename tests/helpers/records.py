"""Read the files that a run leaves in its folder."""

import json
from pathlib import Path
from typing import Any


def read(folder: Path, name: str) -> Any:
    """The content of a JSON file of the folder."""
    return json.loads((folder / name).read_text(encoding="utf-8"))


def events(folder: Path, kind: str) -> list[dict]:
    """The records of metrics.jsonl whose ``event`` is ``kind``."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]
