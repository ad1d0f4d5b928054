"""The start of a run: its processes, the type of its numbers, its seed, and the facts that run.json begins with.

``--mixed_precision auto`` is bfloat16 where the machine computes with it, and float32 elsewhere. On a CPU it is the
default of fine-tuning and of ``--recipe fast``, where neither a flag nor a launcher names a type.
lab/records/two_types.json compares losses and scores of both types. The main process decides for all. A run that goes
on keeps the type that it began with, on another machine too: a training that changed it halfway could not be repeated.
"""

import dataclasses
import datetime
import importlib.metadata
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from accelerate import Accelerator, PartialState
from accelerate.tracking import TensorBoardTracker
from accelerate.utils import DistributedType, InitProcessGroupKwargs, set_seed
from transformers.utils import logging

from bert_training.cards.hub_upload import check_access
from bert_training.cards.publishing import HUB_NAMES, published
from bert_training.engine.run import Run, broadcast_object_list, check_output_dir, has_tpu, is_finished, lock_output_dir
from bert_training.files.processes import say
from bert_training.inputs.flags.parsing import config_facts
from bert_training.inputs.flags.pretraining import network_width
from bert_training.inputs.flags.recipes import recipe_text
from bert_training.inputs.flags.scripts import script_of
from bert_training.inputs.flags.shared import NONE, SharedArguments
from bert_training.inputs.reading import FORMAT
from bert_training.record import RUN, Record
from tokenization.errors import UserError

# Set by torchrun, MPI's launchers and Slurm's srun. The first one counts, because srun may have started torchrun.
PROCESS_COUNTS = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")

# oneDNN reads the first of these variables that is set, when it makes its first primitive. The third one tells child
# processes and later runs which value a run has chosen, so that they do not take it for the user's.
CACHE_CAPACITIES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY")
CHOSEN_CAPACITY = "BERT_REPRO_CHOSEN_CACHE_CAPACITY"

# The other processes wait while the main process builds a corpus; torch's limit is 10 minutes on GPUs.
PATIENCE = datetime.timedelta(hours=6)

_GROUPS: list[torch.distributed.ProcessGroup] = []

Args = TypeVar("Args", bound=SharedArguments)

FILES_ALONE, FILES_EACH = 64, 32  # that a training has open, and each process that prepares its batches


# --- the type of the numbers ------------------------------------------------------------------------------------------


Precision = Literal["no", "bf16", "fp16"]
AUTO = "auto"
LAUNCHER = "ACCELERATE_MIXED_PRECISION"  # accelerate launch always sets it: to "no" where nobody has chosen
CHOSEN = "precision_chosen"  # of run.json: why
NARROWEST = 256  # the hidden size of BERT-Mini; whole runs of BERT-Tiny take as long in bfloat16 (lab/notes/log.md)
# Instructions of x86 CPUs, by their names in torch.cpu.get_capabilities(). Without them, oneDNN emulates bfloat16.
CPU_PRODUCTS = ("amx_bf16", "avx512_bf16")


class Settled(NamedTuple):
    """What auto has become: the type of autocast, and why, for the user."""

    precision: Precision
    why: str

    def said(self) -> str:
        """For the user."""
        return f"--mixed_precision {AUTO}: {self.why}"


def no_device() -> bool:
    """Whether there are CPUs only. Accelerate must be told, or it starts several runs of one process each."""
    return not (torch.accelerator.is_available() or has_tpu())


def settled_precision(args: SharedArguments, folders: Sequence[str]) -> Settled | None:
    """The type that the machine chooses, the same on all processes; None if flag or launcher name it.

    The machine is asked by the flag, by default on a CPU, or because the run began so.

    Args:
        folders: that of the run, that of the checkpoint that it goes on from, or those of the runs of a series; the
            first one that holds a run decides.
    """
    began = next((facts for folder in folders if (facts := _facts_in(folder))), {})
    asked = args.mixed_precision == AUTO
    if not args.mixed_precision and LAUNCHER not in os.environ:
        asked = (args.leaves_type_to_cpu and no_device()) or CHOSEN in began
    if not asked:
        return None
    state = PartialState(cpu=no_device(), timeout=PATIENCE)  # an Accelerator takes these processes over
    found = [_chosen(args, began) if state.is_main_process else None]
    if state.num_processes > 1:
        broadcast_object_list(found)
    return found[0]


def _chosen(args: SharedArguments, began: Mapping[str, Any]) -> Settled:
    """The type that the first start of the run had, or else that of this machine."""
    best = _of_this_machine(args)
    if not began:
        return best
    first = [*began.get("earlier", []), began][0]["mixed_precision"]
    return Settled(first, f"{first}; as the run began; for this machine, auto would choose {best.why}")


def _facts_in(folder: str) -> dict[str, Any] | None:
    """The run.json of a folder; None if there is none, or it is damaged and will be written again."""
    try:
        return Record.read(folder).facts if Path(folder, RUN).is_file() else None
    except ValueError:
        return None


def advice(args: SharedArguments, precision: str) -> str | None:
    """A line for a new run that computes in float32 on a GPU with bfloat16, because nobody has named a type."""
    named = args.mixed_precision or LAUNCHER in os.environ or args.resume_from_checkpoint
    if named or precision != "no" or not torch.cuda.is_bf16_supported(including_emulation=False):
        return None
    name = torch.cuda.get_device_name()
    faster = "whose matrix products are several times as fast"
    return f"{name} computes in float32; with --mixed_precision {AUTO} it takes bfloat16, {faster}"


def _of_this_machine(args: SharedArguments) -> Settled:
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Settled("bf16", f"bf16, which {name} computes with")
        return Settled("no", f"no (float32), because {name} has no bfloat16")
    if has_tpu():
        return Settled("bf16", "bf16, the type of TPUs")
    if torch.accelerator.is_available():
        return Settled(
            "no", f"no (float32), because bfloat16 was not tried on {torch.accelerator.current_accelerator()}"
        )
    width = network_width(vars(args))
    if width < NARROWEST:
        return Settled("no", f"no (float32), because a network of width {width} has little to gain")
    found = [name for name in CPU_PRODUCTS if torch.cpu.get_capabilities().get(name)]
    if found:
        return Settled("bf16", f"bf16, because this CPU multiplies in bfloat16 ({found[0]})")
    return Settled("no", "no (float32), because this CPU has no products in bfloat16")


def keep_cudnn_from_attention() -> None:
    """Let torch compute attention on GPUs by FlashAttention and, with a mask, by its memory-efficient kernel.

    cuDNN makes a plan for every new shape, and batches differ in length. On an H100, a plan takes a fifth of a second;
    the first 60 steps of transformers' network with 32 pairs of MRPC took five times as long with cuDNN, and steps of
    one length no less time than with FlashAttention (lab/notes/performance.md).
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


# --- the start of a run -----------------------------------------------------------------------------------------------


def start_run(args: Args) -> Run[Args]:
    """Check and lock the output folder, start the processes, seed them, and gather the facts for ``run.json``.

    ``Run.finish`` unlocks the folder; the end of the process does so as well.

    Raises:
        ValueError: the folder already holds a run and no resume was asked for, another process is at work in it, or a
            flag cannot be honoured on this machine.
    """
    check_output_dir(args)
    if args.dataloader_num_workers:
        open_many_files(args.dataloader_num_workers)
    logging.set_verbosity_error()  # the scripts report new weights themselves, in one line
    logging.disable_progress_bar()
    settled = settled_precision(args, folders_of_run(args))
    precision = settled.precision if settled else args.mixed_precision
    if precision == "fp16" and not torch.cuda.is_available():
        raise UserError("--mixed_precision fp16 needs a GPU; on a CPU use bf16 or no")
    trackers = trackers_of(args) if args.report_to != [NONE] else {}
    accelerator = _accelerator(precision, **trackers)
    check_launch(accelerator)
    keep_cudnn_from_attention()
    keep_few_primitives(accelerator.mixed_precision)
    run = Run(args, accelerator)
    if repository := args.hub_repository:
        run.only_main(lambda: check_access(repository))
    run.only_main(lambda: _enter_output_dir(args))
    run.add_facts(**_facts(args, accelerator))
    if chosen := args.choices_of_recipe():
        flags = vars(args)
        run.add_facts(recipe={"name": flags["recipe"], "chosen": chosen})
        run.say(f"recipe {flags['recipe']}: {recipe_text(chosen, flags)}")
    if settled:
        run.facts.setdefault(CHOSEN, settled.why)
        run.say(settled.said())
    elif torch.cuda.is_available() and (told := advice(args, accelerator.mixed_precision)):
        run.say(told)
    if trackers:
        start_trackers(accelerator, run)
    set_seed(args.seed)
    return run


def folders_of_run(args: SharedArguments) -> list[str]:
    """Where the run began that is resumed; none for a new run."""
    named = args.resume_from_checkpoint
    # A checkpoint may be in the folder of another run.
    return [] if not named else [args.output_dir, *([] if named == "auto" else [str(Path(named).parent)])]


def _enter_output_dir(args: SharedArguments) -> None:
    """Lock the output folder, and check it again, because another run may have been at work there until now."""
    lock_output_dir(args.output_dir)
    check_output_dir(args)
    if args.resume_from_checkpoint and is_finished(args):
        raise UserError(f"--output_dir {args.output_dir}: the run there has just ended; give the same command again")


def _facts(args: SharedArguments, accelerator: Accelerator) -> dict[str, Any]:
    """What is known at the start; of a resumed run also what its earlier starts wrote."""
    facts: dict[str, Any] = {
        "format": FORMAT,
        "script": script_of(type(args)),
        "flags": dataclasses.asdict(args),
        **config_facts(args.config),
        "command": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "commit": commit(),
        "device": device_name(accelerator.device),
        "processes": accelerator.num_processes,
        "mixed_precision": accelerator.mixed_precision,
        HUB_NAMES: names_on_hub(vars(args)),
        "initial_weights": None,  # the scripts record their hashes; new weights have no files
    }
    return facts | (_facts_of_earlier(args) if args.resume_from_checkpoint else {})


def _facts_of_earlier(args: SharedArguments) -> dict[str, Any]:
    """What the earlier starts of a run wrote; the checkpoint has flags and hashes of its own."""
    if not Path(args.output_dir, RUN).is_file():
        return {}
    try:
        earlier = Record.read(args.output_dir).facts
    except ValueError as error:
        say(f"warning: {error}; it is written again")
        return {}
    same = ("started", "command", "versions", "commit", "device", "processes", "mixed_precision")
    starts = [*earlier.get("earlier", []), {name: earlier.get(name) for name in same}]
    return {"earlier": starts} | ({CHOSEN: earlier[CHOSEN]} if CHOSEN in earlier else {})


def _accelerator(precision: str | None, **trackers: Any) -> Accelerator:
    patience = InitProcessGroupKwargs(timeout=PATIENCE)
    accelerator = Accelerator(cpu=no_device(), mixed_precision=precision, kwargs_handlers=[patience], **trackers)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        keep_process_group()
    return accelerator


def keep_process_group() -> None:
    """Hold a reference to the process group until the process ends, so that no network holds the last one.

    DistributedDataParallel frees its group with Python's lock held. Gloo's destructor joins threads that may wait for
    this lock, and then the process never ends (github.com/pytorch/pytorch/issues/56297).
    """
    group = torch.distributed.group.WORLD
    if group is not None and group not in _GROUPS:
        _GROUPS.append(group)


def keep_few_primitives(mixed_precision: str) -> None:
    """Let oneDNN keep its code for the shapes of a few steps only; by default it keeps 1,024 primitives.

    On x86 CPUs, oneDNN computes GELU and, in bfloat16, the matrix products. It makes code for every shape. In float32
    the number of real tokens differs from batch to batch, so older code is hardly ever used again; in bfloat16 there
    are a few numbers of rows (``with_spare_rows`` of the network), with about 50 pieces of code each. Cached kernels
    fragment the heap, and the process grows (lab/notes/performance.md). A capacity that the user has set is left as it
    is. So are other processors, on which oneDNN may compute more. oneDNN reads the variable once, so the first run of a
    process decides.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return
    given = next((os.environ[name] for name in CACHE_CAPACITIES if name in os.environ), None)
    if given in (None, os.environ.get(CHOSEN_CAPACITY)):
        capacity = "16" if mixed_precision == "no" else "256"
        os.environ[CACHE_CAPACITIES[0]] = os.environ[CHOSEN_CAPACITY] = capacity


def open_many_files(workers: int) -> None:
    """Let this process open as many files as the processes that prepare its batches need, as far as the system allows.

    Their tensors come through open files. Without room for one, a process of torch waits for ever for the other.
    """
    needed = FILES_ALONE + FILES_EACH * workers
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (needed if most == resource.RLIM_INFINITY else min(needed, most), most)
        )


def check_launch(accelerator: Accelerator) -> None:
    """Refuse options of the launcher that Accelerate or this project would silently ignore.

    Raises:
        ValueError: there are fewer processes than requested; parallelism other than data parallelism was requested;
            or gradient accumulation was requested from the launcher.
    """
    asked = next((int(os.environ[name]) for name in PROCESS_COUNTS if name in os.environ), None)
    # On a CPU, `accelerate launch --num_processes 2` starts one process, which sees these two variables.
    alone = asked is None and "ACCELERATE_MIXED_PRECISION" in os.environ and "MASTER_PORT" in os.environ
    kind = accelerator.distributed_type
    problems = []
    if asked not in (None, accelerator.num_processes) or (alone and accelerator.num_processes == 1):
        problems.append(
            f"{asked or 'several'} processes were asked for, but each would train a model of its own; start them with "
            "torchrun --nproc_per_node N SCRIPT ... (on a CPU accelerate launch starts only one)"
        )
    sharded = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("true", "1")  # on a CPU it may be ignored
    if sharded or kind in (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM):
        problems.append("FSDP, DeepSpeed and Megatron-LM are not supported; use data parallel processes")
    if accelerator.gradient_accumulation_steps != 1:
        problems.append("give --gradient_accumulation_steps to the script, after its name, not to the launcher")
    if problems:
        raise UserError("; ".join(problems))


# --- what a run was done with, for its run.json -----------------------------------------------------------------------


PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "datasets", "numpy", "safetensors")


ON_THE_HUB = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", re.ASCII)
MAY_BE_ON_THE_HUB = ("model_name_or_path", "tokenizer_name", "dataset_name", "teacher")


def names_on_hub(flags: Mapping[str, Any]) -> list[str]:
    """The values of flags that are names on the Hub and not, at this moment, folders or files here."""
    values = {flags.get(name) for name in MAY_BE_ON_THE_HUB}
    names = (name for name in values if isinstance(name, str) and ON_THE_HUB.fullmatch(name))
    # Of a checkpoint of TensorFlow, the common beginning of its files is given.
    return sorted(name for name in names if not (os.path.exists(name) or os.path.exists(f"{name}.index")))


def versions() -> dict[str, str]:
    """Python's version and those of ``PACKAGES``, for run.json."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["torch"] = torch.__version__  # unlike the package's version, it names the build: +cpu, +cu130
    return found


def commit() -> str:
    """The commit of the checkout that contains this file, with '+' if tracked files differ; 'unknown' without one."""
    here = Path(__file__).parents[2]
    if not (here / ".git").exists() or shutil.which("git") is None:  # images for containers often lack git
        return "unknown"
    git = ["git", "-C", str(here)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True)
    return head.stdout.strip() + ("+" if changed.returncode == 1 else "") if head.returncode == 0 else "unknown"


def device_name(device: torch.device) -> str:
    """The name of a GPU; for other devices their type, the architecture and the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {platform.machine()}, {torch.get_num_threads()} threads"


# --- trackers, for --report_to ----------------------------------------------------------------------------------------


TENSORBOARD = "tensorboard"
FOLDER = "runs"  # TensorBoard's folder in the output folder
PROJECT = "bert-repro"
# How a tracker calls the name of a run.
NAME_OF_RUN = {"wandb": "name", "trackio": "name", "mlflow": "run_name", "swanlab": "experiment_name"}


def trackers_of(args: SharedArguments) -> dict[str, Any]:
    """The options of ``Accelerator`` for --report_to."""
    chosen = [TensorBoardTracker(FOLDER, args.output_dir) if name == TENSORBOARD else name for name in args.report_to]
    return {"log_with": chosen, "project_dir": args.output_dir}


def start_trackers(accelerator: Accelerator, run: Run[SharedArguments]) -> None:
    """Begin a run in every tracker, with the flags of the run."""
    name = run.output_dir.resolve().name
    shown = published(run.facts)["flags"]
    flags = {
        flag: value if isinstance(value, bool | int | float | str) else str(value) for flag, value in shown.items()
    }
    accelerator.init_trackers(PROJECT, init_kwargs={tracker: {key: name} for tracker, key in NAME_OF_RUN.items()})
    for tracker in accelerator.trackers:
        if tracker.name != TENSORBOARD and run.is_main:
            tracker.store_init_configuration(flags)
