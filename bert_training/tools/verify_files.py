"""The files of a finished folder: that they may be read, their hashes, the network's tensors and labels, and the code.

Nothing of the folder is executed or unpickled, and no link out of it is followed.
"""

import ast
import filecmp
import fnmatch
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_training.cards.curves import CURVES
from bert_training.engine.versions import commit
from bert_training.files.atomic import damage, json_text
from bert_training.files.hashing import FOLDERS, HASHES, NOT_OF_THE_RUN, hashed_files, hashes_record, sha256
from bert_training.files.json_files import read_json
from bert_training.files.weights_header import elements_in, name_of_today, shapes_in
from bert_training.networks.config_checks import ATTENTION
from bert_training.networks.old_checkpoints import PICKLES
from bert_training.tools.findings import (
    Finding,
    compare_values,
    differs,
    is_ordinary,
    short_text,
    unknown,
    verified,
)

# Files that commands of this project write into the folder of a run: pattern of the name -> command.
WRITTEN_LATER = {r"data_audit(_\d+){0,2}\.png": "audit", r"report\.(md|png)": "report"}
DRAWN_AGAIN = {re.escape(CURVES): "curves"}  # another picture under another version of matplotlib
MAY_BE_DELETED = tuple(f"{name}/" for name in FOLDERS)
NO_HASHES = f"made before hashes were recorded: it has no {HASHES}"
# Files that no run writes: pattern of the name -> what would read them.
READ_BY_LIBRARIES = {
    "adapter_*": "AutoModel, for weights on top of the network's,",
    "*.bin": "AutoModel, as pickled weights,",
    "*.bin.index.json": "AutoModel, as pickled weights,",
    "generation_config.json": "AutoModel",
    "added_tokens.json": "AutoTokenizer",
    "special_tokens_map.json": "AutoTokenizer",
    "tokenizer.*.json": "AutoTokenizer",
    "additional_chat_templates": "AutoTokenizer",
    "*processor_config.json": "AutoProcessor",
    "modules.json": "sentence-transformers",
}
# The classes of modeling_bert_repro/lstm_heads.py, each of which is saved with an auto_map of its own.
LSTM_CLASSES = {
    "BertBiLSTMForTokenClassification": "AutoModelForTokenClassification",
    "BertBiLSTMForQuestionAnswering": "AutoModelForQuestionAnswering",
    "BertFeatureTagger": "AutoModelForTokenClassification",
}
RUNS_CODE = ("auto_map", "custom_pipelines")  # fields of a config, at any depth
KERNELS = ("attn_implementation", "_attn_implementation")


# --- the seal --------------------------------------------------------------------------------------------------------


def leads_out(folder: Path, path: Path) -> bool:
    """Whether a path in a folder leads out of it; in the Hub's cache, files are links to the folder ../../blobs."""
    root, real = folder.resolve(), path.resolve()
    return not real.is_relative_to(root) and real.parent != root.parent.parent / "blobs"


def unreadable(folder: Path) -> Iterator[Finding]:
    """The files of a folder because of which nothing in it is read: links out of it, pipes, and far too large ones.

    Sub-folders are not looked into, and neither are files that no check reads.
    """
    for path in sorted(folder.iterdir()):
        if path.is_dir() or is_named(path, NOT_OF_THE_RUN):
            continue
        if leads_out(folder, path):
            reason = f"a link out of the folder, to {short_text(os.readlink(path))}, which is not followed"
            yield differs(path.name, f"{reason}; if you know what is there, copy the folder with cp -rL")
        elif not is_ordinary(path):
            yield differs(path.name, "no ordinary file, and no run writes anything else; remove it")


def is_named(path: Path, patterns: Iterable[str]) -> bool:
    """Whether the name of a file is of one of the patterns."""
    return any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)


def checkpoints_of(folder: Path) -> list[Path]:
    """The checkpoints in a folder."""
    found = sorted(folder.glob("checkpoint-*"))
    return [path for path in found if path.is_dir() and not path.name.endswith(".incomplete")]


def check_files(folder: Path) -> Iterator[Finding]:
    """Whether the folder holds the files that the run left, and no others; then its checkpoints."""
    recorded = {}
    if (folder / HASHES).is_file():
        recorded = read_json(folder / HASHES)["sha256"]
        yield from _against_hashes(folder, recorded)
    else:
        yield unknown("hashes of the files", NO_HASHES)
    for path in sorted(folder.iterdir()):
        reader = next((text for pattern, text in READ_BY_LIBRARIES.items() if is_named(path, [pattern])), None)
        if reader and (path.name in recorded or not recorded or path.is_dir()):
            yield differs(path.name, f"added: no run writes it, and {reader} reads it")
    for checkpoint in checkpoints_of(folder):
        claim = f"{checkpoint.name}/"
        if leads_out(folder, checkpoint):
            yield unknown(claim, "a link out of the folder, which is not followed")
        elif unfit := next(unreadable(checkpoint), None):
            yield differs(f"{claim}{unfit.claim}", unfit.reason)
        else:
            problem = damage(checkpoint)
            yield differs(claim, problem) if problem else verified(claim, "its files are those of its manifest.json")


def _against_hashes(folder: Path, recorded: dict[str, str]) -> Iterator[Finding]:
    text = (folder / HASHES).read_bytes()
    if json_text(hashes_record(recorded)).encode() != text:
        yield differs(HASHES, "it has changed since the run: its checksum does not fit its hashes, or its form differs")
    inside = [name for name in FOLDERS if not leads_out(folder, folder / name)]
    files = hashed_files(folder, inside).items()
    present = {name: path for name, path in files if is_ordinary(path) and not leads_out(folder, path)}
    same = 0
    for name, digest in recorded.items():
        actual = sha256(present[name]) if name in present else None
        if actual == digest:
            same += 1
        elif finding := _of_a_command(name, WRITTEN_LATER if actual is None else WRITTEN_LATER | DRAWN_AGAIN):
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
        yield _of_a_command(name, WRITTEN_LATER | DRAWN_AGAIN) or differs(name, reason)
    if same:
        fingerprint = hashlib.sha256(text).hexdigest()
        yield verified("files", f"{same} have the hashes in {HASHES}, whose own SHA-256 is {fingerprint}")


def _of_a_command(name: str, commands: dict[str, str]) -> Finding | None:
    """The finding about a file that a command of this project may have written after the run; None for any other."""
    for pattern, command in commands.items():
        if re.fullmatch(pattern, name):
            return unknown(name, f"bert-repro {command} writes a file of this name, which nothing reads")
    return None


# --- the model -------------------------------------------------------------------------------------------------------


def check_model(folder: Path, run: dict) -> Iterator[Finding]:
    """The tokenizer, the number of parameters and the labels, against run.json. No network is built."""
    if recorded := run.get("tokenizer_sha256"):
        path = folder / "tokenizer.json"
        if path.is_file():
            yield compare_values("tokenizer", recorded, tokenizer_hash(path), "tokenizer.json")
        else:
            yield unknown("tokenizer", "the folder has no tokenizer.json")
    recorded, files = run.get("parameters"), sorted(folder.glob("model*.safetensors"))
    shapes = {name: shape for path in files for name, shape in shapes_in(path).items()}
    if recorded is None:
        yield unknown("number of parameters", "run.json is of an older version, which did not record it")
    elif files:
        total = sum(map(elements_in, files))
        yield compare_values("number of parameters", recorded, total, " and ".join(path.name for path in files))
    else:
        yield unknown("number of parameters", without_weights(folder))
    if old := [name for name in shapes if name != name_of_today(name)]:
        yield differs(
            "names of the tensors",
            f"{len(old)} are older ones, such as {old[0]}: the run kept those of the weights that it began with, which "
            "transformers still reads; bert-repro convert makes a folder with today's names of this one",
        )
    if (folder / "config.json").is_file():
        yield from _labels(read_json(folder / "config.json"), run, shapes)


def tokenizer_hash(path: Path) -> str:
    """What ``tokenization.fingerprint.tokenizer_sha256`` gives for the tokenizer in a tokenizer.json."""
    content = read_json(path) | {"truncation": None, "padding": None}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def without_weights(folder: Path) -> str:
    """Why the weights of a folder without safetensors cannot be checked."""
    if pickles := sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES):
        return f"the weights are a pickle ({pickles[0]}), and verify opens none; bert-repro convert rewrites it"
    return "the folder has no weights (model.safetensors)"


def _labels(config: dict, run: dict, shapes: dict[str, list[int]]) -> Iterator[Finding]:
    """The names of the classes in config.json, against those in run.json and the rows of the classifier."""
    stored = config.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})  # transformers leaves its default out
    names = [stored.get(str(number)) for number in range(len(stored))]
    data, rows = run.get("data"), shapes.get("classifier.weight")
    if isinstance(data, dict) and "labels" in data:
        recorded = data["labels"] or ["score"]  # what run_glue.py calls the output of a regression
        yield compare_values("labels", recorded, names, "id2label in config.json")
    numbers = config.get("label2id")
    if numbers is not None and numbers != {name: number for number, name in enumerate(names)}:
        yield differs("labels", "label2id in config.json does not give each name the number that id2label gives it")
    counts = {config.get("num_labels", len(names)), rows[0] if rows else len(names)}
    if counts != {len(names)}:
        yield differs("labels", f"config.json names {len(names)}, but num_labels or the classifier has another number")


# --- the code --------------------------------------------------------------------------------------------------------


def check_code(folder: Path, run: dict) -> Iterator[Finding]:
    """The code that ``trust_remote_code`` would run, in the folder and in its checkpoints."""
    yield from _check_code(folder, run, "")
    for checkpoint in checkpoints_of(folder):
        if not leads_out(folder, checkpoint) and not any(unreadable(checkpoint)):
            yield from _check_code(checkpoint, run, f"{checkpoint.name}/")
    if added := list(_code_below(folder)):
        reason = f"added: {len(added)} files that no run writes, such as {', '.join(added[:3])}; do not execute them"
        yield differs("code in sub-folders", reason)


def _code_below(folder: Path) -> Iterator[str]:
    """The code files in sub-folders that are not this package's; those of checkpoints are checked with the others."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = Path(place).relative_to(folder).as_posix()
        if not re.fullmatch(r"\.|checkpoint-[^/]*", below):
            added = (name for name in sorted(files) if name.endswith(".py") and not _is_installed(Path(place, name)))
            yield from (f"{below}/{name}" for name in added)


def _check_code(place: Path, run: dict, prefix: str) -> Iterator[Finding]:
    """The code files of a folder, and what its configs name; ``prefix`` is the path of the folder for the claims."""
    files = sorted(place.glob("*.py"))
    named = list(_named_code(place, run, prefix))
    yield from named
    for path in files:
        if not _is_installed(path):
            yield _other_code(path, run.get("commit", "unknown"), f"{prefix}{path.name}")
    same = [path.name for path in files if _is_installed(path)]
    if same and not named:
        reason = f"{len(same)} are those of the installed package: {', '.join(same)}; no config names other code"
        yield verified(f"{prefix}code files", reason)


def _named_code(place: Path, run: dict, prefix: str) -> Iterator[Finding]:
    """The configs of a folder that name other code than the run has written there."""
    for path in sorted(place.glob("*config*.json")):
        content = read_json(path)
        if path.name == "config.json":
            expected, named = _expected_auto_map(content, run), content.pop("auto_map", {})
            if named != expected:
                reason = f"not the {len(expected)} entries that a run writes; {_what_runs(named, expected)}"
                yield differs(f"{prefix}{path.name}, auto_map", reason)
        for field, value in _fields(content):
            claim = f"{prefix}{path.name}, {field}"
            if field in RUNS_CODE:
                yield differs(claim, f"no run writes it there; {_what_runs(value)}")
            elif field in KERNELS and value is not None and value not in ATTENTION:
                yield differs(claim, f"transformers would fetch {short_text(value)} from the Hub and run it")


def _expected_auto_map(config: dict, run: dict) -> dict[str, str]:
    """The auto_map of config.json, as the network's class writes it into the folder of a run."""
    for name, auto_class in LSTM_CLASSES.items():
        if config.get("architectures") == [name]:
            return {auto_class: f"lstm_heads.{name}"}
    if run["flags"].get("model_impl") == "transformers":
        return {}
    # Read and not imported: nothing in this package imports the network.
    source = ast.parse(installed_code()["pretrained.py"].read_text(encoding="utf-8"))
    assigned = {ast.unparse(line.targets[0]): line.value for line in source.body if isinstance(line, ast.Assign)}
    return dict(ast.literal_eval(assigned["AUTO_MAP"]))


def _fields(content: Any) -> Iterator[tuple[str, Any]]:
    """Every field with its value, at any depth of the content of a JSON file."""
    for name, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield str(name), value
        if isinstance(value, dict | list):
            yield from _fields(value)


def _what_runs(value: Any, expected: dict[str, str] | None = None) -> str:
    """Which code would run because a field of a config has this value, in words."""
    texts = {text for _, text in _fields([value]) if isinstance(text, str)} - set((expected or {}).values())
    code = []
    for text in sorted(texts):
        repository, _, reference = text.rpartition("--")
        module = reference.rpartition(".")[0].replace(".", "/") or reference
        code.append(f"{module}.py of {f'the repository {repository}' if repository else 'this folder'}")
    return f"with trust_remote_code=True, {short_text(', '.join(code))} would run" if code else "it names no other code"


def _other_code(path: Path, then: str, claim: str) -> Finding:
    """The finding about a code file that is not as in the installed package; ``then`` is the commit of the run."""
    if path.name not in installed_code():
        return differs(claim, "a code file that the installed package does not have; do not execute it unread")
    if then == commit() and re.fullmatch(r"[0-9a-f]+", then):  # "unknown" and a changed checkout name no code
        return differs(claim, f"not that of the installed package, although the run used its commit {then}")
    reason = f"it is not that of the installed package (commit {commit()}); the run used commit {then}"
    return unknown(claim, f"{reason}. Do not execute it unread")


def _is_installed(path: Path) -> bool:
    """Whether a code file is the one of this name that runs copy into their folders."""
    installed = installed_code().get(path.name)
    return installed is not None and filecmp.cmp(path, installed, shallow=False)


def installed_code() -> dict[str, Path]:
    """The files that may be copied into saved folders, by name; the network's package is found but not imported."""
    spec = importlib.util.find_spec("modeling_bert_repro")
    places = (spec and spec.submodule_search_locations) or []
    return {path.name: path for place in places for path in Path(place).glob("*.py")}
