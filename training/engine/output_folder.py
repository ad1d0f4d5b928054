"""The check of --output_dir before anything is written there, and the lock that keeps other runs out of it."""

import os
from pathlib import Path

from accelerate.utils import get_int_from_env

from training.files.atomic import make_folder
from training.files.locks import hold, release
from training.flags.shared import SharedArguments

LOCK = ".lock"  # the name of the lock file


def check_output_dir(args: SharedArguments) -> None:
    """Raise ValueError if --output_dir is a file, or holds something that this command would overwrite.

    Without --resume_from_checkpoint, any file of a run or of a model is refused. With it, they are refused only if
    run.json is missing, because then there is no run to continue.
    """
    folder = Path(args.output_dir)
    check_place(folder)
    names = (
        "run.json",
        "metrics.jsonl",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "vocab.txt",
        "README.md",
    )
    taken = [name for name in names if (folder / name).exists()]
    if taken and not args.resume_from_checkpoint:
        raise ValueError(
            f"--output_dir {folder} already holds a run or a model ({taken[0]}); give another folder, "
            "or --resume_from_checkpoint auto to continue that run"
        )
    if taken and not (folder / "run.json").is_file():
        raise ValueError(
            f"--output_dir {folder} holds {taken[0]} but no run.json, so there is no run to continue, and a new one "
            "would overwrite what is there; give another folder"
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


def check_place(folder: Path) -> None:
    """Raise ValueError unless the folder can be made, or is there and files can be written into it."""
    if os.path.islink(folder) and not os.path.exists(folder):
        raise ValueError(
            f"--output_dir {folder} is a link to {os.readlink(folder)}, which is not there; make that folder, or give "
            "another one"
        )
    there = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    if not os.path.isdir(there):
        what = "is a file" if there == folder else f"cannot be made, because {there} is a file"
        raise ValueError(f"--output_dir {folder} {what}; give a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"--output_dir {folder}: you may not write into {there}; give another folder")
