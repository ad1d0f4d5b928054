"""The files of a finished folder: their hashes, checkpoints, the tokenizer, the size of the network, and the code."""

import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_training.engine.versions import commit
from bert_training.files.atomic import damage, json_text
from bert_training.files.hashing import FOLDERS, HASHES, hashed_files, hashes_record, sha256
from bert_training.files.weights_header import elements_in, name_of_today, shapes_in
from bert_training.records.curves import CURVES, draw_curves
from bert_training.tools.findings import (
    MALFORMED,
    Finding,
    compare_values,
    differs,
    read_json,
    short_text,
    unknown,
    verified,
)

ROOT = Path(__file__).parents[2]  # of the checkout, or of the folder where the packages are installed
# Files that commands of this project write into the folder of a run: pattern of the name -> command.
WRITTEN_LATER = {r"data_audit(_\d+)?\.png": "audit", r"report\.(md|png)": "report"}
MAY_BE_DELETED = tuple(f"{name}/" for name in FOLDERS)
NO_HASHES = f"made before hashes were recorded: it has no {HASHES}"


def check_files(folder: Path) -> Iterator[Finding]:
    """Whether the folder holds the files that the run left, and no others; then its checkpoints."""
    path = folder / HASHES
    if path.is_file():
        yield from _against_hashes(folder, path)
    else:
        yield unknown("hashes of the files", NO_HASHES)
    for checkpoint in sorted(folder.glob("checkpoint-*")):
        if checkpoint.is_dir() and not checkpoint.name.endswith(".incomplete"):
            problem = damage(checkpoint)
            claim = f"{checkpoint.name}/"
            yield differs(claim, problem) if problem else verified(claim, "its files are those of its manifest.json")


def _against_hashes(folder: Path, path: Path) -> Iterator[Finding]:
    text = path.read_bytes()
    content = json.loads(text)
    recorded = content["sha256"]
    if json_text(hashes_record(recorded)).encode() != text:
        yield differs(HASHES, "it has changed since the run: its checksum does not fit its hashes, or its form differs")
    present = hashed_files(folder)
    same = 0
    for name, digest in recorded.items():
        actual = sha256(present[name]) if name in present else None
        if actual == digest:
            same += 1
        elif finding := _of_a_command(folder, name):
            yield finding
        elif actual is None and name.startswith(MAY_BE_DELETED):
            yield unknown(name, "it is not here; it may be deleted, because nothing else depends on it")
        elif actual is None:
            yield differs(name, "the file is missing")
        else:
            yield differs(
                name, f"the file has changed since the run: SHA-256 {str(digest)[:12]}... became {actual[:12]}..."
            )
    for name in sorted(present.keys() - recorded.keys()):
        reason = "an additional file, which the run did not write; your own files may be in a sub-folder"
        yield _of_a_command(folder, name) or differs(name, reason)
    if same:
        fingerprint = hashlib.sha256(text).hexdigest()
        yield verified("files", f"{same} have the hashes in {HASHES}, whose own SHA-256 is {fingerprint}")


def _of_a_command(folder: Path, name: str) -> Finding | None:
    """The finding about a file that a command of this project wrote after the run; None if it is no such file."""
    for pattern, command in WRITTEN_LATER.items():
        if re.fullmatch(pattern, name):
            return unknown(name, f"bert-repro {command} writes a file of this name, which nothing reads")
    if name == CURVES and (folder / name).is_file() and _is_drawn_again(folder):
        return verified(name, "drawn since the run; bert-repro curves draws the same from metrics.jsonl")
    return None


def _is_drawn_again(folder: Path) -> bool:
    """Whether the picture of the curves is the one that ``bert-repro curves`` draws here."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    with tempfile.TemporaryDirectory() as place:
        try:
            drawn = draw_curves(folder, Path(place) / CURVES)
        except MALFORMED:  # the records have findings of their own
            return False
        return drawn is not None and _equal(drawn, folder / CURVES)


# --- the model -------------------------------------------------------------------------------------------------------


def check_model(folder: Path, run: dict) -> Iterator[Finding]:
    """The tokenizer and the number of parameters, against run.json. Nothing is executed and no network is built."""
    if recorded := run.get("tokenizer_sha256"):
        path = folder / "tokenizer.json"
        if path.is_file():
            yield compare_values("tokenizer", recorded, tokenizer_hash(path), "tokenizer.json")
        else:
            yield unknown("tokenizer", "the folder has no tokenizer.json")
    recorded, files = run.get("parameters"), sorted(folder.glob("model*.safetensors"))
    if recorded is None:
        yield unknown("number of parameters", "run.json is of an older version, which did not record it")
    elif files:
        total = sum(map(elements_in, files))
        yield compare_values("number of parameters", recorded, total, " and ".join(path.name for path in files))
    else:
        yield unknown("number of parameters", "the folder has no weights (model.safetensors)")
    stored = [name for path in files for name in shapes_in(path)]
    if old := [name for name in stored if name != name_of_today(name)]:
        yield differs(
            "names of the tensors",
            f"{len(old)} are older ones, such as {old[0]}: the run kept those of the weights that it began with, which "
            "transformers still reads; bert-repro convert makes a folder with today's names of this one",
        )


def tokenizer_hash(path: Path) -> str:
    """What ``tokenization.fingerprint.tokenizer_sha256`` gives for the tokenizer in a tokenizer.json."""
    content = read_json(path) | {"truncation": None, "padding": None}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


# --- the code --------------------------------------------------------------------------------------------------------


def check_code(folder: Path, run: dict) -> Iterator[Finding]:
    """The code files for ``trust_remote_code``, against the installed package and against the commit in run.json."""
    files, installed, then = sorted(folder.glob("*.py")), installed_code(), run.get("commit", "unknown")
    same = [path.name for path in files if path.name in installed and _equal(path, installed[path.name])]
    if same:
        yield verified("code files", f"{len(same)} are those of the installed package: {', '.join(same)}")
    for path in files:
        if path.name in same:
            continue
        if path.name not in installed:
            yield differs(path.name, "a code file that the installed package does not have; do not execute it unread")
            continue
        content = content_at(then, installed[path.name])
        if content == path.read_bytes():
            yield verified(path.name, f"as in commit {then} of this checkout; the installed file differs")
        elif content is not None:
            yield differs(path.name, f"neither as in the installed package nor as in commit {then}")
        else:
            here = commit()
            reason = f"it is not that of the installed package (commit {here}); the run used commit {then}"
            yield unknown(path.name, f"{reason}, which is not at hand. Do not execute it unread")


def _equal(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()


def installed_code() -> dict[str, Path]:
    """The files that may be copied into saved folders, by name; the network's package is found but not imported."""
    spec = importlib.util.find_spec("modeling_bert_repro")
    places = (spec and spec.submodule_search_locations) or []
    files = [path for place in places for path in Path(place).glob("*.py")]
    tasks = Path(__file__).parents[1] / "tasks"
    files += [tasks / "bilstm.py", tasks / "ner" / "tagger.py"]
    return {path.name: path for path in files}


def content_at(name: str, path: Path) -> bytes | None:
    """The content of a file of this checkout at a commit; None if the commit, git or the file is not at hand."""
    if not re.fullmatch(r"[0-9a-f]{7,40}", name) or not path.is_relative_to(ROOT) or not (ROOT / ".git").exists():
        return None
    if shutil.which("git") is None:
        return None
    place = f"{name}:{path.relative_to(ROOT).as_posix()}"
    shown_file = subprocess.run(["git", "-C", str(ROOT), "show", place], capture_output=True)
    return shown_file.stdout if shown_file.returncode == 0 else None


def initial_weights(run: dict, hashes: Any) -> Iterator[Finding]:
    """The weights that the run began with, if their folder is still where run.json says.

    Args:
        hashes: a function of a folder that returns the SHA-256 of each of its files of weights.
    """
    recorded, name = run.get("initial_weights"), run["flags"].get("model_name_or_path")
    if not recorded:
        if name:
            yield unknown("weights that the run began with", "run.json has no hash of them")
        return
    if not name or not Path(name).is_dir():
        yield unknown("weights that the run began with", f"{short_text(name)} is not a folder on this machine")
    elif hashes(name) == recorded:
        yield verified("weights that the run began with", f"those of {short_text(name)}")
    else:
        yield unknown("weights that the run began with", f"{short_text(name)} holds other weights today")
