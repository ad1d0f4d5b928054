"""Upload a finished folder to the Hub: only the files that are named here, and no folders of this machine.

    bert-repro upload runs/first --hub_model_id you/name --hub_dry_run      # only lists the files
    bert-repro upload runs/first --hub_model_id you/name

The configuration, the weights, the tokenizer, the code that the configuration names, the model card, the curves, the
counts of which class was taken for which, run.json, metrics.jsonl, all_results.json and hashes.json are uploaded. Other
files of the folder are not: predictions, answers.html, submissions, checkpoints and corpora contain texts of the data,
which the user may not be allowed to publish.

run.json contains the command and the names of the data files. In the uploaded copy, files and folders have their names
only, without the folders that they lie in (bert_training/cards/publishing.py), as in the model card, which the run
writes that way; the uploaded hashes.json has the hashes of the copies. The files in the folder are not changed.

Weights that are not those that the run left are refused; every other file that has changed or is missing is named.
"""

import argparse
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from transformers.hf_argparser import string_to_bool

from bert_training.cards.publishing import CONFIGS, published, published_card, published_config
from bert_training.files.atomic import json_text
from bert_training.files.hashing import HASHES, MODULES, hashes_record, is_plain_name, sha256
from bert_training.inputs.json_files import read_json, read_object
from bert_training.inputs.records import check_format
from tokenization.errors import UserError

FILES = (
    *("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
    *("README.md", "run.json", "metrics.jsonl", "all_results.json", "training_curves.png", HASHES),
    *("confusion.json", "confusion_*.png"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *(f"{MODULES}/config.json", f"{MODULES}/model.safetensors"),
)
IMPORTED = re.compile(r"^\s*(?:from|import)\s+\.(\w+)(?:\s|$)", re.MULTILINE)  # a module beside the one that imports it
ATTEMPTS = 3


def files_to_upload(folder: Path) -> list[Path]:
    """The files of a finished run that may be published, in the order of their names.

    Raises:
        ValueError: the folder does not hold a finished run.
    """
    for name in ("config.json", "run.json", "all_results.json", "*.safetensors"):
        if not any(folder.glob(name)):
            raise UserError(f"{folder}: expected the folder of a finished run, found no {name}; finish the run first")
    named = {path for pattern in FILES for path in folder.glob(pattern) if path.is_file()}
    return sorted(named | set(_code(folder)))


def _code(folder: Path) -> Iterator[Path]:
    """The modules that config.json names for `trust_remote_code`, and the modules that these import from the folder.

    Not transformers' get_relative_import_files, which reads whatever a module names, wherever and however large it is.
    """
    references = read_object(folder / "config.json").get("auto_map", {})
    references = [*references.values()] if isinstance(references, dict) else []
    waiting = [reference.split(".")[0] for reference in references if isinstance(reference, str)]
    seen: set[Path] = set()
    while waiting:
        name = waiting.pop()
        path = folder / f"{name}.py"
        if path in seen or not is_plain_name(name) or not path.is_file():
            continue
        seen.add(path)
        yield path
        waiting += IMPORTED.findall(path.read_text(encoding="utf-8"))


def write_published(folder: Path, target: Path, repo_id: str) -> None:
    """Put the published form of a finished run into an empty folder: links to its files, and copies of some.

    hashes.json has the hashes of the copies; a file that is not what the run left keeps the hash that it should have,
    so that the change stays visible.
    """
    files = files_to_upload(folder)
    recorded = read_object(folder / HASHES)["sha256"] if folder / HASHES in files else {}
    hashes = {}
    for file in files:
        name = file.relative_to(folder).as_posix()
        content, draft = _published_text(file, repo_id), target / name
        if name == HASHES:
            continue
        draft.parent.mkdir(exist_ok=True)
        if content is None:
            draft.symlink_to(file.resolve())
        else:
            draft.write_text(content, encoding="utf-8")
        if name in recorded:
            intact = content is not None and sha256(file) == recorded[name]
            hashes[name] = sha256(draft) if intact else recorded[name]
    if recorded:
        draft = target / HASHES
        draft.write_text(json_text(hashes_record(hashes)), encoding="utf-8")


def _published_text(file: Path, repo_id: str) -> str | None:
    """The text that is uploaded in place of a file's own; None if that is uploaded as it is."""
    if file.name in CONFIGS:
        content = read_json(file)
        shown = published_config(content)
        return None if shown == content else json_text(shown)
    if file.name == "run.json":
        run = read_object(file)
        check_format(file, run)
        return json_text(published(run))
    return published_card(file.read_text(encoding="utf-8"), repo_id) if file.name == "README.md" else None


LATER = "; or drop --push_to_hub now, and upload the finished folder with bert-repro upload"


def check_access(repo_id: str, dry_run: bool, remedy: str = LATER) -> None:
    """Check before a long training that the name is valid, the Hub can be reached and the token is accepted.

    Raises:
        ValueError: one of these checks fails; the message says what to do.
    """
    from huggingface_hub import HfApi, constants, get_token
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"--hub_model_id {repo_id}: {' '.join(str(error).split())}; expected USER/NAME") from None
    if dry_run:
        return
    if constants.HF_HUB_OFFLINE or not get_token():
        raise UserError(
            "--push_to_hub needs the network and a token of the Hub; unset HF_HUB_OFFLINE if it is set, and run hf "
            "auth login or set HF_TOKEN"
        )
    _attempt(lambda: HfApi().whoami(), repo_id, remedy)


def upload(folder: str | Path, repo_id: str, private: bool, dry_run: bool, say: Callable[[str], None]) -> None:
    """Upload a finished folder in one commit; files that have not changed since the last upload are not sent again.

    The client makes one commit of it, but may split one of more than 20 files after a failure; a run leaves no more.

    Args:
        private: visibility of a new repository. An existing one keeps its own, which is printed with `say`.
        dry_run: only list the files, which needs neither network nor token.

    Raises:
        ValueError: the upload failed; the message is one line that says
            what to do. The folder is never changed.
    """
    folder = Path(folder)
    with tempfile.TemporaryDirectory() as place:
        write_published(folder, Path(place), repo_id)
        files = sorted(path for path in Path(place).rglob("*") if path.is_file())
        if dry_run:
            say(f"would upload to {repo_id}, {_visibility(private)} if it is new:")
            _list(folder, {file.relative_to(place).as_posix(): file for file in files}, say)
            return
        command = f"bert-repro upload {shlex.quote(str(folder))} --hub_model_id {repo_id}"
        remedy = f"; {folder} is complete, upload it then with {command}"
        check_access(repo_id, dry_run, remedy)
        _attempt(lambda: _commit(Path(place), len(files), repo_id, private, say), repo_id, remedy)


def _list(folder: Path, files: dict[str, Path], say: Callable[[str], None]) -> None:
    for name, file in files.items():
        changed = "" if file.is_symlink() or name == HASHES else ", without folders of this machine"
        say(f"  {name}  {file.stat().st_size:,} bytes{changed}")
    sent = {name.partition("/")[0] for name in files}
    left = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir() if path.name not in sent)
    say(f"stays here: {', '.join(left) or 'nothing'}")


def _visibility(private: bool) -> str:
    return "private" if private else "public"


def _commit(folder: Path, count: int, repo_id: str, private: bool, say: Callable[[str], None]) -> None:
    import huggingface_hub
    from huggingface_hub.utils import disable_progress_bars, logging

    if not sys.stderr.isatty():
        disable_progress_bars()
    before = logging.get_verbosity()
    logging.set_verbosity_error()  # the line printed below replaces the client's messages on unchanged files
    try:
        api = huggingface_hub.HfApi()
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        info = api.model_info(repo_id)
        is_private = bool(info.private)
        if is_private != private:
            say(
                f"{repo_id} exists and is {_visibility(is_private)}: it stays so, although this run asked for a "
                f"{_visibility(private)} one; to change that, use its settings on the Hub"
            )
        done = api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Upload a finished run")
    finally:
        logging.set_verbosity(before)
    what = "nothing has changed since the last upload" if done.oid == info.sha else f"{count} files uploaded"
    say(f"{what}: {api.endpoint}/{repo_id} ({_visibility(is_private)})")


def _attempt(work: Callable[[], object], repo_id: str, remedy: str) -> None:
    """Call `work()`; after a temporary failure try again, after any other raise a ValueError with one line of text."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            work()
            return
        except Exception as error:  # the types are those of the client, of its HTTP library and of Python
            causes = list(_causes(error))
            answers = (getattr(getattr(one, "response", None), "status_code", None) for one in causes)
            status = next((status for status in answers if status), 0)
            # The Hub's clients (httpx and others) derive the errors of the network from TransportError.
            kinds = {kind.__name__ for one in causes for kind in type(one).__mro__}
            unreachable = not status and bool(kinds & {"TransportError", "ConnectionError", "TimeoutError"})
            if attempt == ATTEMPTS or not (unreachable or status >= 500):
                reason = _reason(error, status, unreachable, repo_id)
                raise UserError(f"--hub_model_id {repo_id}: {reason}{remedy}") from None
            time.sleep(2**attempt)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(error: Exception, status: int, unreachable: bool, repo_id: str) -> str:
    """Why an upload failed, and what to do; ``status`` is that of the HTTP answer, 0 without an answer."""
    text = " ".join(str(error).split())
    if status == 401:
        return "the Hub does not accept the token (401); run hf auth login, or set HF_TOKEN to a valid token"
    if status == 403:
        return f"the token may not write to {repo_id} (403); take one with the right to write there, or another name"
    if isinstance(error, ValueError) and "README.md" in text:
        return f"the Hub does not accept the model card ({text}); edit README.md"
    if status >= 500:
        return f"the Hub answered with an error ({status}); try again later, see https://status.huggingface.co"
    if status:
        return f"the Hub refused the request ({status}: {text:.200}); see the repository's page there"
    if unreachable:
        return f"the Hub could not be reached ({type(error).__name__}); check the network and HF_ENDPOINT"
    return f"{type(error).__name__}: {text}"


def main(argv: list[str] | None = None) -> None:
    """Upload a finished folder, or with --hub_dry_run list what would be uploaded."""
    parser = argparse.ArgumentParser(
        prog="bert-repro upload",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("folder", help="Output folder of a finished run.")
    parser.add_argument("--hub_model_id", required=True, help="Repository: USER/NAME.")
    parser.add_argument(
        "--hub_private_repo", type=string_to_bool, default=True, help="Whether a new repository is private (true)."
    )
    parser.add_argument("--hub_dry_run", action="store_true", help="List what would be uploaded; upload nothing.")
    args = parser.parse_args(argv)
    check_access(args.hub_model_id, dry_run=True)  # checks the name only; `upload` checks the rest
    upload(args.folder, args.hub_model_id, args.hub_private_repo, args.hub_dry_run, print)
