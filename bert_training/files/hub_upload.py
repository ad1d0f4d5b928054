"""Upload a finished folder to the Hub: only the files that are named here, and no paths of this machine.

    bert-repro upload runs/first --hub_model_id you/name --hub_dry_run      # only lists the files
    bert-repro upload runs/first --hub_model_id you/name

The configuration, the weights, the tokenizer, the code that the configuration names, the model card, the curves,
run.json, metrics.jsonl, all_results.json and hashes.json are uploaded. Other files of the folder are not: predictions,
answers.html, submissions, checkpoints and corpora contain texts of the data, which the user may not be allowed to
publish.

run.json, metrics.jsonl and the model card contain the command and the names of the data files. In the uploaded copies,
every absolute path and every path that begins with ~ or .. is cut to its last part; other relative paths stay as they
were typed; the uploaded hashes.json has the hashes of these copies. The files in the folder are not changed.

Weights that are not those that the run left are refused; every other file that has changed or is missing is named.
"""

import argparse
import hashlib
import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

from transformers.hf_argparser import string_to_bool

from bert_training.files.atomic import json_text
from bert_training.files.hashing import HASHES, hashes_record, sha256
from bert_training.files.json_files import is_plain_name, read_object
from bert_training.files.records import check_weights_unchanged, warn_of_changes

FILES = (
    "config.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "README.md",
    "run.json",
    "metrics.jsonl",
    "all_results.json",
    "training_curves.png",
    HASHES,
)
# The files among FILES that a run writes about itself; paths are removed from them before the upload.
RECORDS = ("README.md", "run.json", "metrics.jsonl", "all_results.json")
ATTEMPTS = 3
# A path that begins with /, ~ or ..; a URL, "and/or" and a name on the Hub must not match.
PATH = re.compile(r"(?<![\w.:/~)\]<-])(?:~?/|\.\./)[^\s`'\"<>|,;:()\\]+")


def files_to_upload(folder: Path) -> list[Path]:
    """The files of a finished run that may be published, in the order of their names.

    Raises:
        ValueError: the folder does not hold a finished run.
    """
    for name in ("config.json", "run.json", "all_results.json"):
        if not (folder / name).is_file():
            raise ValueError(f"{folder}: expected the folder of a finished run, found no {name}; finish the run first")
    named = {path for pattern in FILES for path in folder.glob(pattern) if path.is_file()}
    if not any(path.suffix == ".safetensors" for path in named):
        raise ValueError(f"{folder}: expected the folder of a finished run, found no model.safetensors")
    files = sorted(named | set(_code(folder)))
    if outside := [file for file in files if not file.resolve().is_relative_to(folder.resolve())]:
        raise ValueError(
            f"{outside[0]}: is a link out of the folder, and nothing outside it is uploaded; copy the folder with "
            "cp -rL if you know what is in it"
        )
    return files


def _code(folder: Path) -> Iterator[Path]:
    """The modules that config.json names for `trust_remote_code`, and the modules that these import from the folder."""
    from transformers.dynamic_module_utils import get_relative_import_files

    config = read_object(folder / "config.json")
    references = config.get("auto_map", {})
    references = [*references.values()] if isinstance(references, dict) else []
    for module in sorted({reference.split(".")[0] for reference in references if isinstance(reference, str)}):
        if is_plain_name(module) and (folder / f"{module}.py").is_file():
            yield folder / f"{module}.py"
            yield from map(Path, get_relative_import_files(folder / f"{module}.py"))


def content_to_upload(path: Path, repo_id: str) -> Path | bytes:
    """The path of the file or, for a record, its content without paths of this machine."""
    if path.name == HASHES:
        return hashes_to_upload(path, repo_id)
    if path.name not in RECORDS:
        return path
    run = read_object(path.parent / "run.json")
    text = path.read_text(encoding="utf-8")
    if path.name == "README.md":  # its examples open the model
        text = text.replace(repr(str(Path(run["flags"]["output_dir"]))), repr(repo_id))
    return without_paths(text, _strings(run)).encode()


def hashes_to_upload(path: Path, repo_id: str) -> bytes:
    """The content of hashes.json for the files that are uploaded, with the hashes of the records without paths.

    A record that is not what the run left keeps the hash that it should have, so that the change stays visible.
    """
    recorded = read_object(path)["sha256"]
    hashes = {}
    for file in files_to_upload(path.parent):
        if file.name in recorded:
            hashes[file.name] = recorded[file.name]
            content = content_to_upload(file, repo_id)
            if isinstance(content, bytes) and sha256(file) == recorded[file.name]:
                hashes[file.name] = hashlib.sha256(content).hexdigest()
    return json_text(hashes_record(hashes)).encode()


def without_paths(text: str, known: Iterator[str] | tuple[str, ...] = ()) -> str:
    """`text`, in which paths that begin with /, ~ or .. are cut to their last part.

    Args:
        known: strings, such as the values of flags, that may be such paths as a whole, even with spaces in them.
    """
    whole = {re.sub(r"^--\w+=", "", string) for string in known}
    for path in sorted((string for string in whole if re.match(r"~?/|\.\./", string)), key=len, reverse=True):
        for spelled in (str, lambda part: json.dumps(part, ensure_ascii=False)[1:-1]):
            text = text.replace(spelled(path), spelled(PurePath(path).name))
    return PATH.sub(lambda match: PurePath(match[0]).name, text)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


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
        raise ValueError(f"--hub_model_id {repo_id}: {' '.join(str(error).split())}; expected USER/NAME") from None
    if dry_run:
        return
    if constants.HF_HUB_OFFLINE:
        raise ValueError("--push_to_hub needs the network, but HF_HUB_OFFLINE is set; unset it, or drop the flag")
    if not get_token():
        raise ValueError("--push_to_hub needs a token of the Hub; run hf auth login, or set HF_TOKEN")
    _attempt(lambda: HfApi().whoami(), repo_id, remedy)


def upload(folder: str | Path, repo_id: str, private: bool, dry_run: bool, say: Callable[[str], None]) -> None:
    """Upload a finished folder in one commit; files that have not changed since the last upload are not sent again.

    Args:
        private: visibility of a new repository. An existing one keeps its own, which is printed with `say`.
        dry_run: only list the files, which needs neither network nor token.

    Raises:
        ValueError: the upload failed, or the weights are not those that the run left; the message is one line that says
            what to do. The folder is never changed.
    """
    folder = Path(folder)
    check_weights_unchanged(folder)
    files = files_to_upload(folder)
    names = {path.name for path in files if path.suffix != ".safetensors"} | {name for name in FILES if "*" not in name}
    warn_of_changes(folder, sorted(names), say)
    contents = {path.name: content_to_upload(path, repo_id) for path in files}
    if dry_run:
        say(f"would upload to {repo_id}, {_visibility(private)} if it is new:")
        for name, content in contents.items():
            size = len(content) if isinstance(content, bytes) else content.stat().st_size
            say(f"  {name}  {size:,} bytes" + (", without paths of this machine" if name in RECORDS else ""))
        left = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir() if path.name not in contents)
        say(f"stays here: {', '.join(left) or 'nothing'}")
        return
    command = f"bert-repro upload {shlex.quote(str(folder))} --hub_model_id {repo_id}"
    remedy = f"; {folder} is complete, upload it then with {command}"
    check_access(repo_id, dry_run, remedy)
    _attempt(lambda: _commit(contents, repo_id, private, say), repo_id, remedy)


def _visibility(private: bool) -> str:
    return "private" if private else "public"


def _commit(contents: dict[str, Path | bytes], repo_id: str, private: bool, say: Callable[[str], None]) -> None:
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
        operations = [huggingface_hub.CommitOperationAdd(name, content) for name, content in contents.items()]
        done = api.create_commit(repo_id, operations, commit_message="Upload a finished run")
    finally:
        logging.set_verbosity(before)
    what = "nothing has changed since the last upload" if done.oid == info.sha else f"{len(contents)} files uploaded"
    say(f"{what}: {api.endpoint}/{repo_id} ({_visibility(is_private)})")


def _attempt(work: Callable[[], object], repo_id: str, remedy: str) -> None:
    """Call `work()`; after a temporary failure try again, after any other raise a ValueError with one line of text."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            work()
            return
        except Exception as error:  # the types are those of the client, of its HTTP library and of Python
            status = _status(error)
            if attempt < ATTEMPTS and ((status is None and _is_network(error)) or (status or 0) >= 500):
                time.sleep(2**attempt)
                continue
            raise ValueError(f"--hub_model_id {repo_id}: {_reason(error, status, repo_id)}{remedy}") from None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _status(error: Exception) -> int | None:
    """The status of the HTTP answer that caused an error; None if there was no answer."""
    statuses = (getattr(getattr(one, "response", None), "status_code", None) for one in _chain(error))
    return next((status for status in statuses if status), None)


def _is_network(error: Exception) -> bool:
    """Whether the network failed. The Hub's clients (httpx and others) derive such errors from TransportError."""
    names = {kind.__name__ for one in _chain(error) for kind in type(one).__mro__}
    return bool(names & {"TransportError", "ConnectionError", "TimeoutError"})


def _reason(error: Exception, status: int | None, repo_id: str) -> str:
    if status == 401:
        return "the Hub does not accept the token (401); run hf auth login, or set HF_TOKEN to a valid token"
    if status == 403:
        return f"the token may not write to {repo_id} (403); take one with the right to write there, or another name"
    text = " ".join(str(error).split())
    if isinstance(error, ValueError) and "README.md" in text:
        return f"the Hub does not accept the model card ({text}); edit README.md"
    if status is not None and status >= 500:
        return f"the Hub answered with an error ({status}); try again later, see https://status.huggingface.co"
    if status is not None:
        return f"the Hub refused the request ({status}: {text:.200}); see the repository's page there"
    if _is_network(error):
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
