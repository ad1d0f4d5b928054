"""A run: its folder, its processes and its records.

``run.json`` says what was run (flags, versions, commit, device, data); ``metrics.jsonl`` contains one JSON object per
event. Every process has a ``Run``, but only the main process writes files.
"""

import dataclasses
import datetime
import hashlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, InitProcessGroupKwargs, broadcast_object_list, set_seed
from tqdm import tqdm
from transformers.utils import is_torch_xla_available, logging

from training.engine.versions import commit, device_name, versions
from training.files.atomic import json_text, write_json
from training.files.hashing import HASHES, hashes_of, hashes_record
from training.files.hub_upload import check_access, upload
from training.flags.shared import SharedArguments

# Set by torchrun, MPI's launchers and Slurm's srun. The first one counts, because srun may have started torchrun.
PROCESS_COUNTS = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")

Result = TypeVar("Result")
Args = TypeVar("Args", bound=SharedArguments)
# Covariant, so that the run of any script can stand where a `Run[SharedArguments]` is asked for.
Args_co = TypeVar("Args_co", bound=SharedArguments, covariant=True)


class Run(Generic[Args_co]):
    """A run, as one of its processes sees it.

    Attributes:
        args: the parsed flags; they do not change.
        seed: the seed of the data's order, the instances and dropout.
        is_main: whether this is the process that writes files and prints.
        rank: number of this process, from 0.
        world_size: number of processes.
        facts: the content of run.json.
        saved_step: optimiser step of the last checkpoint written by this start; 0 before the first.
        unconfirmed: True while it is not known whether the run fits its checkpoint; run.json is not rewritten then.
    """

    def __init__(self, args: Args_co, accelerator: Accelerator):
        self.args = args
        self.seed = args.seed
        self.accelerator = accelerator
        self.device = accelerator.device
        self.is_main = accelerator.is_main_process
        self.rank = accelerator.process_index
        self.world_size = accelerator.num_processes
        self.output_dir = Path(args.output_dir)
        self.facts: dict = {}
        self.saved_step = 0
        self.unconfirmed = False

    @property
    def global_batch_size(self) -> int:
        """Sequences per optimiser step, over all processes and micro-batches."""
        args = self.args
        return args.per_device_train_batch_size * args.gradient_accumulation_steps * self.world_size

    def log(self, **event: Any) -> None:
        """Append one record to ``metrics.jsonl`` and, if there is one, send its numbers to the tracker."""
        if self.is_main:
            with open(self.output_dir / "metrics.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")
            if self.args.report_to != "none" and "step" in event:
                numbers = {name: value for name, value in event.items() if isinstance(value, int | float)}
                step = numbers.pop("step")
                self.accelerator.log(numbers, step=step)

    def say(self, text: str) -> None:
        """Print a line on the main process, above the progress bar if one is shown."""
        if self.is_main:
            tqdm.write(text, file=sys.stdout)
            sys.stdout.flush()

    def progress(self, total: int, desc: str, initial: int = 0) -> tqdm:
        """A progress bar on the main process; it shows nothing if stderr is not a terminal."""
        quiet = True if not self.is_main else None
        return tqdm(total=total, desc=desc, initial=initial, disable=quiet, dynamic_ncols=True)

    def record(self, **facts: Any) -> None:
        """Merge facts, such as hashes and counts of the data, into ``run.json``.

        Once run.json exists, no new run may use the folder. Scripts therefore call this only after data and model have
        been checked, so that a mistake in the flags can be corrected without another --output_dir. If the run is to be
        resumed, nothing is written before ``confirm``, so that a start that is refused changes no file.
        """
        self.facts.update(facts)
        if self.is_main and not self.unconfirmed:
            write_json(self.output_dir / "run.json", self.facts)

    def confirm(self) -> None:
        """Write the run.json that ``record`` has held back; called when the run can be resumed."""
        if self.unconfirmed:
            self.unconfirmed = False
            self.record()

    def main_first(self, work: Callable[[], Result]) -> Result:
        """Return ``work()``, called on the main process first and then on the others, which find the files it wrote.

        If it raises on the main process, the others exit silently, so that the error is printed once.
        """
        failed = [True]
        try:
            if self.is_main:
                result = work()
                failed = [False]
        finally:
            broadcast_object_list(failed)
        if failed[0]:
            raise SystemExit(2)
        return result if self.is_main else work()

    def finish(self, results: dict) -> None:
        """Write ``all_results.json``, which marks a finished run, and upload the folder with --push_to_hub.

        ``hashes.json`` is written before it, so that every finished run has one. Memory and trackers are released,
        because further runs may follow in this process (--seeds).
        """
        args = self.args
        if self.is_main:
            last = {"all_results.json": hashlib.sha256(json_text(results).encode()).hexdigest()}
            write_json(self.output_dir / HASHES, hashes_record(hashes_of(self.output_dir) | last))
            write_json(self.output_dir / "all_results.json", results)
        for tracker in self.accelerator.trackers:
            tracker.finish()
        self.accelerator.free_memory()
        if self.is_main and args.hub_repository:
            upload(self.output_dir, args.hub_repository, args.hub_private_repo, args.hub_dry_run, self.say)


def start_run(args: Args, script: str) -> Run[Args]:
    """Check the output folder, start the processes, seed them, and gather the facts for ``run.json``.

    Raises:
        ValueError: the folder already holds a run and no resume was asked for, or a flag cannot be honoured
            on this machine.
    """
    check_output_dir(args)
    logging.set_verbosity_error()  # the scripts report new weights themselves, in one line
    logging.disable_progress_bar()
    if args.report_to == "tensorboard" and importlib.util.find_spec("tensorboard") is None:
        raise ValueError("--report_to tensorboard needs the package tensorboard: pip install tensorboard")
    if args.mixed_precision == "fp16" and not torch.cuda.is_available():
        raise ValueError("--mixed_precision fp16 needs a GPU; on CPU use bf16 or no")
    # Accelerate raises an error for this in some environments and ignores it in others.
    if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("true", "1") and not torch.accelerator.is_available():
        raise ValueError("FSDP was asked for, but there is no GPU; leave it out")
    trackers = {} if args.report_to == "none" else {"log_with": args.report_to, "project_dir": args.output_dir}
    run = Run(args, _accelerator(args, **trackers))
    check_launch(run.accelerator)
    if repository := args.hub_repository:
        run.main_first(lambda: check_access(repository, args.hub_dry_run) if run.is_main else None)
    if run.is_main:
        run.output_dir.mkdir(parents=True, exist_ok=True)
    if trackers:
        run.accelerator.init_trackers("runs")
    set_seed(args.seed)
    run.facts = {
        "script": script,
        "flags": dataclasses.asdict(args),
        "command": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "commit": commit(),
        "device": device_name(run.device),
        "processes": run.world_size,
        "mixed_precision": run.accelerator.mixed_precision,
        "initial_weights": None,  # the scripts record their hashes; new weights have no files
    }
    if (run.output_dir / "run.json").is_file():  # the run is resumed: keep what its earlier starts recorded
        earlier = json.loads((run.output_dir / "run.json").read_text(encoding="utf-8"))
        same = ("started", "command", "versions", "commit", "device", "processes")
        run.unconfirmed = True
        run.facts["earlier"] = [*earlier.pop("earlier", []), {name: earlier.get(name) for name in same}]
    return run


def _accelerator(args: SharedArguments, **trackers: Any) -> Accelerator:
    # Without cpu=True, torchrun on a machine without a GPU would start several runs of one process each.
    no_device = not (torch.accelerator.is_available() or is_torch_xla_available())
    # The other processes wait while the main process builds a corpus; torch's limit is 10 minutes on GPUs.
    patience = InitProcessGroupKwargs(timeout=datetime.timedelta(hours=6))
    return Accelerator(cpu=no_device, mixed_precision=args.mixed_precision, kwargs_handlers=[patience], **trackers)


def check_launch(accelerator: Accelerator) -> None:
    """Refuse options of the launcher that Accelerate or this project would silently ignore.

    Raises:
        ValueError: there are fewer processes than requested; parallelism other than data parallelism and FSDP2 was
            requested; or gradient accumulation was requested from the launcher.
    """
    asked = next((int(os.environ[name]) for name in PROCESS_COUNTS if name in os.environ), None)
    # On a CPU, `accelerate launch --num_processes 2` starts one process, which sees these two variables.
    alone = asked is None and "ACCELERATE_MIXED_PRECISION" in os.environ and "MASTER_PORT" in os.environ
    if asked not in (None, accelerator.num_processes) or (alone and accelerator.num_processes == 1):
        raise ValueError(
            f"{asked or 'several'} processes were asked for, but each would train a model of its own; start them with "
            "torchrun --nproc_per_node N SCRIPT ... (on a CPU accelerate launch starts only one)"
        )
    kind = accelerator.distributed_type
    if kind == DistributedType.FSDP and not accelerator.is_fsdp2:
        raise ValueError("FSDP version 1 is not supported; use accelerate launch --use_fsdp --fsdp_version 2")
    if kind in (DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM):
        raise ValueError(f"{kind.value} is not supported; use data parallel processes or FSDP2")
    if accelerator.gradient_accumulation_steps != 1:
        raise ValueError("give --gradient_accumulation_steps to the script, after its name, not to the launcher")


def check_output_dir(args: SharedArguments) -> None:
    """Raise ValueError if --output_dir is a file, or holds something that this command would overwrite.

    Without --resume_from_checkpoint, any file of a run or of a model is refused. With it, they are refused only if
    run.json is missing, because then there is no run to continue.
    """
    folder = Path(args.output_dir)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output_dir {folder} is a file; give a folder")
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


def report_errors(main: Callable[[], None]) -> int:
    """Run a script's ``main`` and return its exit status; if it is not 0, one line on stderr says why.

    The status is 2 for a mistake of the user's (ValueError, OSError), 1 if the training diverged
    (FloatingPointError), and 130 for Ctrl-C outside of the training steps; during these, the process exits with
    ``signals.STOPPED``. With ``BERT_REPRO_TRACEBACK=1`` the traceback is printed as well.
    """
    try:
        main()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    except (ValueError, OSError, FloatingPointError, KeyboardInterrupt) as error:
        if os.environ.get("BERT_REPRO_TRACEBACK") == "1":
            traceback.print_exc()
        if isinstance(error, KeyboardInterrupt):
            text, status = "interrupted", 130
        else:
            text, status = f"error: {error}", 1 if isinstance(error, FloatingPointError) else 2
        print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr)
        return status
    return 0
