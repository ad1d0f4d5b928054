"""Finished runs: what a folder with ``all_results.json`` holds, and what happens when its command is given again."""

import dataclasses
import re
from pathlib import Path
from typing import Any

from bert_training import record
from bert_training.engine.output_folder import LOCK, is_main_process
from bert_training.files.atomic import remove_folder
from bert_training.files.hub_upload import upload
from bert_training.files.locks import sweep
from bert_training.inputs.flags.natures import FREE
from bert_training.inputs.flags.scripts import flags_with, script_of
from bert_training.inputs.flags.shared import SharedArguments
from tokenization.errors import UserError


def is_finished(args: SharedArguments) -> bool:
    """Whether the run that ``--resume_from_checkpoint`` asks to resume is finished, with these flags.

    Raises:
        ValueError: the finished run had other flags, or a checkpoint was named from which it would be trained again.
    """
    folder = Path(args.output_dir)
    if not args.resume_from_checkpoint or not record.is_finished(folder):
        return False
    other = f"give another --output_dir; with --model_name_or_path {folder} that run starts from these weights"
    run = record.Record.read(folder)
    problem = ""
    if script_of(type(args)) not in (None, run.script):
        problem = f"of {run.script}; {other}"
    elif changed := changed_flags(run.flags, args):
        problem = f"with other flags ({', '.join(changed)}); give the same flags, or {other}"
    elif args.resume_from_checkpoint != "auto":
        problem = f"which is not trained again from a checkpoint; give --resume_from_checkpoint auto, or {other}"
    if problem:
        raise UserError(f"{folder} holds a finished run {problem}")
    return True


def report_finished(args: SharedArguments) -> None:
    """Print, in one process, that the run is finished; with ``--push_to_hub`` upload its folder.

    No file is changed; what an interrupted start had still to remove is removed.
    """
    folder = Path(args.output_dir)
    if is_main_process():
        remove_rest(folder)
        print(f"{folder}: this run is finished (all_results.json); nothing is trained, no file is changed", flush=True)
        upload_finished(args)


def remove_rest(folder: Path) -> None:
    """Remove what only an unfinished run needs from the folder of a finished one, and print the names.

    A process that is killed after it has written ``all_results.json`` leaves these folders and its lock.
    """
    sweep(folder / LOCK)
    rest = [path for path in folder.iterdir() if re.fullmatch(r"checkpoint-best-\d+|.+\.incomplete", path.name)]
    for path in sorted(rest):
        try:
            remove_folder(path)
        except OSError:  # the folder may be read-only by now, and the run is finished all the same
            continue
        print(f"{path}: removed, as the run is finished", flush=True)


def upload_finished(args: SharedArguments) -> None:
    """Upload the folder of the finished run if ``--push_to_hub`` asks for it; only the main process calls this."""
    if args.hub_repository:
        upload(Path(args.output_dir), args.hub_repository, private=True, dry_run=False, say=print)


def changed_flags(then: dict[str, Any], args: SharedArguments) -> list[str]:
    """The flags that differ from those in a run.json, except those of nature FREE, each as "name then -> now"."""
    now = {name: value for name, value in dataclasses.asdict(args).items() if name not in flags_with(FREE)}
    return [f"{name} {then.get(name)} -> {now[name]}" for name in now if then.get(name) != now[name]]
