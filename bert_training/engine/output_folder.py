"""--output_dir: what may be overwritten there, the lock that keeps other runs out, and a run that is finished there."""

import dataclasses
import re
from pathlib import Path
from typing import Any

from accelerate.utils import get_int_from_env

from bert_training import record
from bert_training.cards.hub_upload import upload
from bert_training.files.atomic import make_folder, remove_folder
from bert_training.files.locks import hold, release
from bert_training.inputs.flags.natures import FREE
from bert_training.inputs.flags.scripts import flags_with, script_of
from bert_training.inputs.flags.shared import SharedArguments
from tokenization.errors import UserError

LOCK = ".lock"  # the name of the lock file
# Names of files a run may write, as patterns; any of them marks the folder as taken. A folder with other files
# is accepted, because many users send what is printed to a file in it, or keep notes there.
WRITTEN = (
    r"(run|config|tokenizer|tokenizer_config|all_results|hashes)\.json|metrics\.jsonl|model.*\.safetensors|vocab\.txt",
    r"README\.md|training_curves\.png|checkpoint-(best-)?\d+",
    r"(modeling_bert|pretrained|(pretraining_)?heads|losses|fast_path|unpadding|fast_dropout|lstm_heads)\.py",
    r"predictions_(validation|test)\.(csv|jsonl)|confusion\.json",
    r"(nbest_|span_)?predictions\.json|null_odds\.json",
    r"(validation|test)\w*_(predictions|spans|answers|null_odds)\.\w+",
    r"(AX|CoLA|MNLI-mm?|MRPC|QNLI|QQP|RTE|SST-2|STS-B|WNLI|builtin_\w+)\.tsv",
)


def check_output_dir(args: SharedArguments) -> None:
    """Raise ValueError if --output_dir holds something that this command would overwrite.

    Without --resume_from_checkpoint, any file of a run or a model is refused (``WRITTEN``). With it, they are refused
    only if run.json is missing, because then there is no run to continue.
    """
    folder = Path(args.output_dir)
    present = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    taken = [name for name in present if re.fullmatch("|".join(WRITTEN), name)]
    if (folder / "run.json").is_file():
        taken = ["run.json"]
    if taken and not (args.resume_from_checkpoint and taken == ["run.json"]):
        other = (
            "or --resume_from_checkpoint auto to continue that run"
            if taken == ["run.json"]
            else "as it has no run.json"
        )
        raise UserError(
            f"--output_dir {folder} already holds a run or a model ({taken[0]}), which a new run would overwrite; give "
            f"another folder, {other}"
        )


def is_main_process() -> bool:
    """Whether this is the main process, by what torchrun or MPI has set; the processes need not have met yet."""
    ranks = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")  # those that Accelerate reads
    return get_int_from_env(ranks, 0) == 0


def lock_output_dir(folder: str | Path, wait: bool = False) -> None:
    """Create the folder and keep all other processes out of it, until ``unlock_output_dir`` or the end of this process.

    Only the main process does it.

    Args:
        wait: wait until another process has left it.

    Raises:
        ValueError: another process is at work there.
    """
    make_folder(Path(folder))
    busy = f"--output_dir {folder}: another process is at work there; wait until it has ended, or give another folder"
    hold(Path(folder, LOCK), busy, wait)


def unlock_output_dir(folder: str | Path) -> None:
    """Let other processes into the folder, if this one has locked it."""
    release(Path(folder, LOCK))


def nothing_to_do(args: SharedArguments) -> bool:
    """Whether the run that is to be resumed is finished, which is then said; if not, the output folder is free for it.

    Raises:
        ValueError: as ``check_output_dir`` and ``is_finished``.
    """
    if is_finished(args):
        report_finished(args)
        return True
    check_output_dir(args)
    return False


# --- a finished run ---------------------------------------------------------------------------------------------------


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
        problem = f" of {run.script}; {other}"
    elif changed := changed_flags(run.flags, args):
        problem = f" with other flags ({', '.join(changed)}); give the same flags, or {other}"
    elif args.resume_from_checkpoint != "auto":
        problem = f", which is not trained again from a checkpoint; give --resume_from_checkpoint auto, or {other}"
    if problem:
        raise UserError(f"{folder} holds a finished run{problem}")
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

    A process that is killed after it has written ``all_results.json`` leaves these folders.
    """
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
