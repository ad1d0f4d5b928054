"""Read the records of runs, such as run.json. ``bert-repro verify`` compares a folder with its hashes.json."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bert_training.files.hashing import hashes_record
from bert_training.inputs.compressed_files import read_text
from bert_training.inputs.json_files import parse_json, read_object
from tokenization.errors import UserError

RESULTS = "all_results.json"  # marks a finished run
FORMAT = 1  # of run.json and of the state in a checkpoint


def read_record(path: Path, remedy: str, needs: Iterable[str] = ()) -> dict[str, Any]:
    """The JSON object in a file that a run wrote.

    Args:
        remedy: what the user can do if the file is damaged.
        needs: keys that the object must have.

    Raises:
        ValueError: the file holds something else.
        OSError: it cannot be read.
    """
    try:
        content = read_object(path)
        problem = ", ".join(f"it lacks {name}" for name in needs if name not in content)
    except ValueError as error:
        content, problem = {}, str(error)
    if problem:
        raise UserError(f"{path}: damaged or edited ({problem}); {remedy}")
    return content


def check_format(path: Path, record: dict[str, Any]) -> None:
    """Raise ValueError if a record was written in another format than this version's."""
    if (found := record.get("format")) != FORMAT:
        raise UserError(
            f"{path}: expected a record of format {FORMAT}, got {'one without a format' if found is None else found}; "
            "use the version of this project that wrote it, or start anew in another folder"
        )


def finished_hashes(path: Path) -> dict[str, str]:
    """The hashes in a ``hashes.json``, by the names of the files. Raises ValueError if it is damaged or edited."""
    try:
        record = read_object(path)
        hashes = record["sha256"]
        intact = record == hashes_record(hashes) and isinstance(hashes, dict)
    except (ValueError, KeyError, TypeError):
        intact = False
    if not intact:
        raise UserError(
            f"{path}: damaged or edited, so it cannot say whether the other files are those of the run; copy the "
            "folder again or, if you trust it as it is, delete this file"
        )
    return hashes


def read_events(path: Path) -> list[dict]:
    """The events of a metrics.jsonl in order; a run may append to the file meanwhile.

    Raises:
        ValueError: there is no such file, or a line is not a JSON object with an "event".
    """
    events = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        try:
            event = parse_json(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or "event" not in event:
            raise UserError(
                f'{path}:{number}: expected one JSON object with an "event", got {line[:60]!r}; probably a write was '
                "interrupted; delete the line"
            )
        events.append(event)
    return events
