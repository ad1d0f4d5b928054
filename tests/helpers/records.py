"""Read the files that a run leaves in its folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_training.cards.metrics import percent_factor
from bert_training.inputs.flags.scripts import SCRIPTS
from bert_training.tasks.classification.glue import positive_of
from bert_training.tasks.classification.scores import metric_prefix
from bert_training.tasks.scored_rows import metric_of, read_rows


def read(folder: Path, name: str) -> Any:
    """The content of a JSON file of the folder."""
    return json.loads((folder / name).read_text(encoding="utf-8"))


def events(folder: Path, kind: str) -> list[dict]:
    """The records of metrics.jsonl whose ``event`` is ``kind``."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def write_summary(folder: Path, **content: Any) -> None:
    """Write the summary.json of a series."""
    content = {"runs": [], "baselines": {}, "validation": []} | content
    (folder / "summary.json").write_text(json.dumps(content), encoding="utf-8")


def results_of_rows(folder: Path) -> set[str]:
    """The results of a finished fine-tuning that its ``scored_*.jsonl`` give, each of which is as recorded."""
    run, results, given = read(folder, "run.json"), read(folder, "all_results.json"), set()
    for split in run["data"]["splits"]:
        prefix, rows = metric_prefix(split), read_rows(folder, split)
        for key in SCRIPTS[run["script"]].metrics if rows else ():
            name = key.removeprefix(prefix if prefix.startswith("eval_") else "eval_")
            recorded = results.get(prefix + name)
            if recorded is not None and (found := metric_of(rows, name, positive_of(run["data"].get("task")))):
                score = percent_factor(results) * recorded
                assert found(np.arange(len(rows))) == pytest.approx(score), prefix + name
                given.add(prefix + name)
    return given
