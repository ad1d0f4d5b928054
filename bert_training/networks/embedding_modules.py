"""What sentence-transformers reads of a folder beside the encoder travels along when the encoder is trained further.

Without these files it would take the mean of the tokens' states, whatever the embedding model did.
"""

from collections.abc import Mapping
from pathlib import Path

from transformers.utils import cached_file

from bert_training.files.atomic import json_text, make_folder, whole_file
from bert_training.files.hashing import is_plain_name
from bert_training.files.processes import say
from bert_training.inputs.reading import fields_of, read_json
from bert_training.inputs.tokenizers import TOKENIZER_CONFIG, run_of_checkpoint
from tokenization.errors import UserError

# Modules that need nothing but the encoder's last states, whose width no command changes, and the files that each of
# them must have. Their weights may be in no other file, because that would be a pickle.
WEIGHTS = ("config.json", "model.safetensors")
MODULES: dict[str, tuple[str, ...]] = {
    "Transformer": (),
    "Pooling": WEIGHTS[:1],
    "Normalize": (),
    "Dropout": WEIGHTS[:1],
    "Dense": WEIGHTS,
    "LayerNorm": WEIGHTS,
}
MODULE_LIST, LIMITS, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"


def carry_modules(name: str | None, folder: Path) -> None:
    """Write into a folder that continues from ``name`` what sentence-transformers reads there beside the encoder."""
    try:
        files = embedding_modules(name) if name else {}
    except (UserError, OSError) as error:
        say(f"warning: {error}. The new folder has no modules of sentence-transformers, which takes the tokens' mean")
        return
    write_files(folder, files)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their names in a folder, each whole or not at all."""
    for file, content in files.items():
        make_folder((folder / file).parent)
        with whole_file(folder / file) as draft:
            draft.write_bytes(content)


def embedding_modules(name: str) -> dict[str, bytes]:
    """What sentence-transformers reads of a checkpoint beside the encoder: file -> content; none without modules.json.

    The encoder is in no folder of its own, and each other module in one that is named here.

    Raises:
        ValueError: a module is of another kind than those of MODULES, lacks a file or leads out of the folder.
        OSError: the Hub has no answer.
    """
    name = str(run_of_checkpoint(Path(name)) or name)
    if not (listed := _beside(name, MODULE_LIST)).is_file():
        return {}
    modules = read_json(listed)
    paths = {PROMPTS: _beside(name, PROMPTS)}
    for number, module in enumerate(modules):
        if not isinstance(module, dict):
            raise UserError(f"{listed}: expected a list of modules, got {str(modules)[:120]!r}")
        library, _, kind = str(module.get("type")).rpartition(".")
        path, place = module.get("path"), "" if kind == "Transformer" else f"{number}_{kind}"
        inside = is_plain_name(path) or path == place
        files = WEIGHTS if place else (LIMITS, TOKENIZER_CONFIG)
        found = {file: _beside(name, str(Path(str(path), file))) for file in files} if inside else {}
        known = inside and library.startswith("sentence_transformers.") and kind in MODULES
        if not known or not all(found[file].is_file() for file in MODULES[kind]):
            raise UserError(
                f"{listed}: expected {', '.join(MODULES)}, each in a folder with {' and '.join(WEIGHTS)}, got "
                f"{str(module)[:120]!r}"
            )
        paths |= {f"{place}/{file}".lstrip("/"): found[file] for file in files}
        module["path"] = place
    settings, limits = fields_of(paths.pop(TOKENIZER_CONFIG, Path())), fields_of(paths.get(LIMITS, Path()))
    if limits.get("max_seq_length") is None and (length := settings.get("model_max_length") or 1e30) < 1e30:
        limits["max_seq_length"] = length  # newer versions keep it there; a saved tokenizer has all positions
    kept = {file: path.read_bytes() for file, path in paths.items() if path.is_file()}
    return kept | {LIMITS: json_text(limits).encode(), MODULE_LIST: json_text(modules).encode()}


def _beside(name: str, file: str) -> Path:
    """A file of a folder or, downloaded, of a name on the Hub; it may not be there."""
    if Path(name).exists() or Path(f"{name}.index").exists():  # a folder, or the prefix of TensorFlow's files
        return Path(name, file)
    return Path(cached_file(name, file, _raise_exceptions_for_missing_entries=False) or "")
