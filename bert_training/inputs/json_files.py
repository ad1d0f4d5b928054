"""Read JSON files: those of models, and the records of runs, such as run.json."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bert_training.files.hashing import hashes_record
from bert_training.inputs.compressed_files import numbered_lines, read_text
from tokenization.errors import UserError

RESULTS = "all_results.json"  # marks a finished run
FORMAT = 1  # of run.json and of the state in a checkpoint


def parsed(text: str, place: object, kind: type = object) -> Any:
    """The content of a JSON text. UserError, which begins with ``place``, if it is none, or another than of a kind."""
    try:
        content = json.loads(text)
        problem = "" if isinstance(content, kind) else f"expected a JSON object, got {str(content)[:60]!r}"
    except (ValueError, RecursionError) as error:
        content, problem = None, f"not valid JSON ({error})"
    if problem:
        raise UserError(f"{place}: {problem}; correct it, or copy or download it again")
    return content


def read_json(path: str | Path) -> Any:
    """The content of a JSON file. Raises OSError if there is none, and UserError if it is no JSON."""
    return parsed(read_text(path), path)


def read_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that must be an object. Raises as ``read_json`` does, or UserError if it is none."""
    return parsed(read_text(path), path, dict)


def fields_of(path: Path) -> dict[str, Any]:
    """The content of a JSON file that must be an object; {} if there is no such file."""
    return read_object(path) if path.is_file() else {}


# --- records of runs -------------------------------------------------------------------------------------------------


def read_record(
    path: Path,
    remedy: str,
    needs: Iterable[str] = (),
    is_whole: Callable[[dict[str, Any]], bool] = lambda content: True,
) -> dict[str, Any]:
    """The JSON object in a file that a run wrote.

    Args:
        remedy: what the user can do if the file is damaged.
        needs: keys that the object must have.
        is_whole: whether its content agrees with its own checksum.

    Raises:
        UserError: the file holds something else.
        OSError: it cannot be read.
    """
    content: dict[str, Any] = {}
    try:
        content = read_object(path)
        problem = ", ".join(f"it lacks {name}" for name in needs if name not in content)
    except UserError as error:
        problem = str(error)
    if problem or not is_whole(content):
        raise UserError(f"{path}: damaged or edited ({problem or 'its checksum is another'}); {remedy}")
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
    remedy = "copy the folder again or, if you trust it as it is, delete this file"
    needs = ("sha256", "checksum")
    return read_record(path, remedy, needs, lambda record: record == hashes_record(record["sha256"]))["sha256"]


def read_events(path: Path) -> list[dict]:
    """The events of a metrics.jsonl in order; a run may append to the file meanwhile.

    Raises:
        OSError: there is no such file.
        UserError: a line is no JSON.
    """
    return [parsed(line, f"{path}:{number}", dict) for number, line in numbered_lines(path)]
