"""Read JSON files: those of models, and the records of runs, such as run.json."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bert_training.files.hashing import hashes_record
from bert_training.inputs.compressed_files import numbered_lines, read_text
from tokenization.errors import UserError

RESULTS = "all_results.json"  # marks a finished run
FORMAT = 1  # of run.json and of the state in a checkpoint


def read_json(path: str | Path) -> Any:
    """The content of a JSON file. Raises OSError if there is none, and UserError if it is no JSON."""
    try:
        return json.loads(read_text(path))
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON ({error}); correct it, or copy or download it again") from None


def read_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that must be an object. Raises as ``read_json`` does, or UserError if it is none."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(
            f"{path}: expected a JSON object, got {str(content)[:60]!r}; correct it, or copy or download it again"
        )
    return content


def fields_of(path: Path) -> dict[str, Any]:
    """The content of a JSON file that must be an object; {} if there is no such file."""
    return read_object(path) if path.is_file() else {}


# --- records of runs -------------------------------------------------------------------------------------------------


def read_record(path: Path, remedy: str, needs: Iterable[str] = ()) -> dict[str, Any]:
    """The JSON object in a file that a run wrote.

    Args:
        remedy: what the user can do if the file is damaged.
        needs: keys that the object must have.

    Raises:
        UserError: the file holds something else.
        OSError: it cannot be read.
    """
    try:
        content = read_object(path)
        problem = ", ".join(f"it lacks {name}" for name in needs if name not in content)
    except UserError as error:
        content, problem = {}, str(error)
    if problem:
        raise UserError(f"{path}: damaged or edited ({problem}); {remedy}")
    return content


def check_format(path: Path, record: dict[str, Any]) -> None:
    """Raise UserError if a record was written in another format than this version's."""
    if (found := record.get("format")) != FORMAT:
        raise UserError(
            f"{path}: expected a record of format {FORMAT}, got {'one without a format' if found is None else found}; "
            "use the version of this project that wrote it, or start anew in another folder"
        )


def finished_hashes(path: Path) -> dict[str, str]:
    """The hashes in a ``hashes.json``, by the names of the files. Raises UserError if it is damaged or edited."""
    record = read_record(path, REMEDY, needs=("sha256",))
    if record != hashes_record(record["sha256"]):
        raise UserError(f"{path}: damaged or edited; {REMEDY}")
    return record["sha256"]


REMEDY = "copy the folder again or, if you trust it as it is, delete this file"


def read_events(path: Path) -> list[dict]:
    """The events of a metrics.jsonl in order; a run may append to the file meanwhile.

    Raises:
        OSError: there is no such file.
        UserError: a line is no JSON.
    """
    events = []
    for number, line in numbered_lines(path):
        try:
            events.append(json.loads(line))
        except ValueError:
            raise UserError(
                f"{path}:{number}: expected a JSON object, got {line[:60]!r}; probably a write was interrupted; delete "
                "the line"
            ) from None
    return events
