"""The record of a run: ``run.json`` says what was run, and ``all_results.json`` what came of it.

Resuming, series, cards, reports and ``verify`` read a run through ``Record``. ``metrics.jsonl`` is output for people
and their plots, and the state of a training is in its checkpoints (``engine/checkpoint.py``), which have the same
format.

    run.json           format, script, flags, command, versions, commit, device, data, initial_weights, ...
    all_results.json   eval_..., test_... and train_... ; it marks a finished run
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_training.files.atomic import json_text, write_json
from bert_training.files.hashing import HASHES, hashes_of, hashes_record
from bert_training.inputs.reading import RESULTS, check_format, read_record
from tokenization.errors import UserError

RUN = "run.json"
SUMMARY = "summary.json"  # of a series of runs, in the folder above theirs (``tasks/seeds.py``)


@dataclass(frozen=True)
class Record:
    """A run.

    Attributes:
        facts: the content of run.json.
        results: the content of all_results.json; None if the run is not finished.
    """

    facts: dict[str, Any]
    results: dict[str, Any] | None

    @classmethod
    def read(cls, folder: str | Path) -> "Record":
        """The run in a folder.

        Raises:
            UserError: there is no run.json, or one of the two files is damaged, or of another format.
        """
        folder = Path(folder)
        if not (folder / RUN).is_file():
            raise UserError(f"{folder}: expected the folder of a run, found no {RUN} there")
        facts = read_record(
            folder / RUN,
            f"copy {folder} again, or repeat the run in another --output_dir",
            needs=("script", "flags"),
        )
        check_format(folder / RUN, facts)
        return cls(facts, read_results(folder))

    @property
    def script(self) -> str:
        """The name of its script, such as run_glue.py."""
        return self.facts["script"]

    @property
    def flags(self) -> dict[str, Any]:
        """The values of all flags by their names."""
        return self.facts["flags"]


def is_finished(folder: str | Path) -> bool:
    """Whether a folder says that its run is finished."""
    return Path(folder, RESULTS).is_file()


def read_results(folder: Path) -> dict[str, Any] | None:
    """The content of all_results.json; None if the run in the folder is not finished. UserError if it is damaged."""
    if not is_finished(folder):
        return None
    return read_record(folder / RESULTS, "delete it and give --resume_from_checkpoint auto to finish the run again")


def read_summary(folder: Path) -> dict[str, Any]:
    """The content of ``summary.json`` in the folder of a series. UserError if it is damaged."""
    remedy = "delete it, and the command of the series writes it again"
    return read_record(folder / SUMMARY, remedy, needs=("runs",))


def write_results(folder: Path, results: dict[str, Any]) -> None:
    """Write all_results.json, and before it ``hashes.json``, so that every finished run has one."""
    last = {RESULTS: hashlib.sha256(json_text(results).encode()).hexdigest()}
    write_json(folder / HASHES, hashes_record(hashes_of(folder) | last))
    write_json(folder / RESULTS, results)
