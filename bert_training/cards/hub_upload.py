"""Upload a finished folder to the Hub: only the files that are named here, and no folders of this machine.

    bert-repro upload runs/first --hub_model_id you/name --hub_dry_run      # only lists the files
    bert-repro upload runs/first --hub_model_id you/name

The configuration, the weights, the tokenizer, the code that the configuration names, the model card, the curves, the
counts of which class was taken for which, run.json, metrics.jsonl, all_results.json and hashes.json are uploaded. Other
files of the folder are not: predictions, checkpoints and corpora contain texts of the data,
which the user may not be allowed to publish.

run.json contains the command and the names of the data files. In the uploaded copy, files and folders have their names
only, without the folders that they lie in (bert_training/cards/publishing.py), as in the model card, which the run
writes that way; the uploaded hashes.json has the hashes of the copies, and of a file that has changed since the run the
hash that it should have. The files in the folder are not changed.
"""

import hashlib
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
from huggingface_hub import CommitOperationAdd
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.hf_argparser import string_to_bool

from bert_training.cards.markdown import one_line
from bert_training.cards.publishing import CONFIGS, published, published_card, published_config
from bert_training.files.atomic import json_text
from bert_training.files.hashing import HASHES, MODULES, hashes_record, is_plain_name, sha256
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.reading import fields_of, read_json
from bert_training.record import RUN, Record
from tokenization.errors import UserError

FILES = (
    *("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
    *("README.md", "run.json", "metrics.jsonl", "all_results.json", "training_curves.png", "confusion.json", HASHES),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *(f"{MODULES}/config.json", f"{MODULES}/model.safetensors"),
)


def files_to_upload(folder: Path) -> list[Path]:
    """The files of a finished run that may be published, in the order of their names.

    Raises:
        UserError: the folder does not hold a finished run.
    """
    for name in ("config.json", RUN, "all_results.json", "*.safetensors"):
        if not any(folder.glob(name)):
            raise UserError(f"{folder}: expected the folder of a finished run, found no {name}; finish the run first")
    named = {path for pattern in FILES for path in folder.glob(pattern) if path.is_file()}
    return sorted(named | _code(folder))


def _code(folder: Path) -> set[Path]:
    """The modules that config.json names for `trust_remote_code`, and the modules that these import from the folder."""
    references = fields_of(folder / "config.json").get("auto_map", {}).values()
    modules = {str(reference).split(".")[0] for reference in references}
    paths = {folder / f"{module}.py" for module in modules if is_plain_name(module)}
    found = {path for path in paths if path.is_file()}
    found |= {Path(file) for path in found for file in get_relative_import_files(path)}
    return {path for path in found if path.parent == folder and path.is_file()}


def published_files(folder: Path, repo_id: str) -> dict[str, Path | str]:
    """What is uploaded of a finished run: name -> the file, or the text that is uploaded in its place.

    hashes.json has the hashes of these texts; a file that is not what the run left keeps the hash that it should have,
    so that the change stays visible.
    """
    files = {path.relative_to(folder).as_posix(): path for path in files_to_upload(folder)}
    texts = {name: text for name, path in files.items() if (text := _published_text(path, repo_id)) is not None}
    if HASHES in files:
        hashes = {name: found for name, found in read_json(files[HASHES])["sha256"].items() if name in files}
        for name, text in texts.items():
            if hashes.get(name) == sha256(files[name]):
                hashes[name] = hashlib.sha256(text.encode()).hexdigest()
        texts[HASHES] = json_text(hashes_record(hashes))
    return files | texts


def _published_text(file: Path, repo_id: str) -> str | None:
    """The text that is uploaded in place of a file's own; None if that is uploaded as it is."""
    if file.name in CONFIGS:
        content = read_json(file)
        shown = published_config(content)
        return None if shown == content else json_text(shown)
    if file.name == RUN:
        return json_text(published(Record.read(file.parent).facts))
    return published_card(file.read_text(encoding="utf-8"), repo_id) if file.name == "README.md" else None


def check_access(repo_id: str, dry_run: bool = False) -> None:
    """Check before a long training that the name is valid, the Hub can be reached and the token is accepted.

    Raises:
        UserError: one of these checks fails; the message says what to do.
    """
    try:
        huggingface_hub.utils.validate_repo_id(repo_id)
        if not dry_run:
            huggingface_hub.HfApi().whoami()
    except Exception as error:  # of the client, of its HTTP library and of Python
        raise UserError(
            f"--hub_model_id {repo_id}: {one_line(error)}; expected USER/NAME, the network (is HF_HUB_OFFLINE set?) "
            "and a token of the Hub (hf auth login, or HF_TOKEN); or drop --push_to_hub, and upload the folder later"
        ) from None


def upload(folder: str | Path, repo_id: str, private: bool, dry_run: bool, say: Callable[[str], None]) -> None:
    """Upload a finished folder in one commit; files that have not changed since the last upload are not sent again.

    Args:
        private: visibility of a new repository. An existing one keeps its own, as the last line says.
        dry_run: only list the files, which needs neither network nor token.

    Raises:
        UserError: the upload failed; the message is one line with the command for later. The folder is never changed.
    """
    folder = Path(folder)
    files = published_files(folder, repo_id)
    if dry_run:
        say(f"would upload to {repo_id}, {'private' if private else 'public'} if it is new:")
        for name, content in files.items():
            changed = "  (without folders of this machine)" if isinstance(content, str) and name != HASHES else ""
            say(f"  {name}{changed}")
        sent = {name.partition("/")[0] for name in files}
        left = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir() if path.name not in sent)
        say(f"stays here: {', '.join(left) or 'nothing'}")
        return
    if not sys.stderr.isatty():
        huggingface_hub.utils.disable_progress_bars()
    api = huggingface_hub.HfApi()
    try:
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        is_private = bool(api.model_info(repo_id).private)
        operations = [
            CommitOperationAdd(name, content if isinstance(content, Path) else content.encode())
            for name, content in files.items()
        ]
        api.create_commit(repo_id, operations, commit_message="Upload a finished run")
    except Exception as error:  # of the client, of its HTTP library and of Python
        command = f"bert-repro upload {shlex.quote(str(folder))} --hub_model_id {repo_id}"
        raise UserError(f"{one_line(error)}; {folder} is complete, upload it then with {command}") from None
    say(f"{len(files)} files uploaded: {api.endpoint}/{repo_id} ({'private' if is_private else 'public'})")


def main(argv: list[str] | None = None) -> None:
    """Upload a finished folder, or with --hub_dry_run list what would be uploaded."""
    parser = command_parser("upload", __doc__)
    parser.add_argument("folder", help="Output folder of a finished run.")
    parser.add_argument("--hub_model_id", required=True, help="Repository: USER/NAME.")
    parser.add_argument(
        "--hub_private_repo", type=string_to_bool, default=True, help="Whether a new repository is private (true)."
    )
    parser.add_argument("--hub_dry_run", action="store_true", help="List what would be uploaded; upload nothing.")
    args = parser.parse_args(argv)
    check_access(args.hub_model_id, dry_run=True)  # checks the name only; `upload` checks the rest
    upload(args.folder, args.hub_model_id, args.hub_private_repo, args.hub_dry_run, print)
