"""The check of --output_dir before anything is written there, and the lock that keeps other runs out of it."""

import re
from pathlib import Path

from accelerate.utils import get_int_from_env

from bert_training.files.atomic import make_folder
from bert_training.files.locks import hold, release
from bert_training.inputs.flags.shared import SharedArguments
from tokenization.errors import UserError

LOCK = ".lock"  # the name of the lock file
# Names of files a run may write, as patterns; any of them marks the folder as taken. A folder with other files
# is accepted, because many users send what is printed to a file in it, or keep notes there.
WRITTEN = (
    r"(run|config|tokenizer|tokenizer_config|all_results|hashes)\.json|metrics\.jsonl|model.*\.safetensors|vocab\.txt",
    r"README\.md|training_curves\.png|checkpoint-(best-)?\d+",
    r"(modeling_bert|encoder|pretrained|(pretraining_)?heads|losses|fast_path|unpadding|fast_dropout|lstm_heads)\.py",
    r"predictions_(validation|test)\.(csv|jsonl)|confusion\.json|confusion_(validation|test)\.png",
    r"(nbest_|span_)?predictions\.json|null_odds\.json|answers\.html",
    r"(validation|test)\w*_(predictions|spans|answers|null_odds)\.\w+",
    r"(AX|CoLA|MNLI-mm?|MRPC|QNLI|QQP|RTE|SST-2|STS-B|WNLI|custom|builtin_\w+)\.tsv",
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
    if taken and not args.resume_from_checkpoint:
        raise UserError(
            f"--output_dir {folder} already holds a run or a model ({taken[0]}), which a new run would overwrite; give "
            "another folder, or --resume_from_checkpoint auto to continue that run"
        )
    if taken and taken != ["run.json"]:
        raise UserError(
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
