"""A run: its folder, its processes, those on a TPU too, and its records.

``run.json`` says what was run (flags, versions, commit, device, data); ``metrics.jsonl`` contains one JSON object per
event. Every process has a ``Run``, but only the main process writes files. ``bert_training/engine/launch.py`` starts
it, when ``nothing_to_do`` has found that no other run is in the folder that --output_dir names.

A TPU needs some functions besides Accelerate's: for objects of all processes, and for tensors that have no memory to be
written from. Nothing of them has run on a TPU; torch_xla on a CPU has trained, saved and resumed, with one process.
"""

import dataclasses
import importlib
import json
import math
import pickle
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import accelerate.utils
import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, get_int_from_env, send_to_device
from tqdm import tqdm
from transformers import PreTrainedModel
from transformers.utils import is_torch_xla_available

from bert_training import record
from bert_training.cards.hub_upload import upload
from bert_training.files.atomic import append_line, make_folder, remove_folder, write_json
from bert_training.files.processes import hold, release
from bert_training.inputs.flags.parsing import FREE
from bert_training.inputs.flags.scripts import flags_with, script_of
from bert_training.inputs.flags.shared import SharedArguments
from bert_training.record import write_results
from tokenization.errors import UserError

# --- TPUs ------------------------------------------------------------------------------------------------------------

Item = TypeVar("Item")


def has_tpu() -> bool:
    """Whether torch_xla is installed, and so a TPU is used."""
    return bool(is_torch_xla_available())


def gather_object(objects: list[Item]) -> list[Item]:
    """The objects of all processes, in the order of their ranks."""
    if not _among_tpus():
        return list(accelerate.utils.gather_object(objects))
    return [one for part in _exchanged(objects) for one in part]


def broadcast_object_list(objects: list[Any]) -> None:
    """Replace the objects in the list by those of the first process."""
    if _among_tpus():
        objects[:] = _exchanged(objects)[0]
    else:
        accelerate.utils.broadcast_object_list(objects)


def weights_to_save(model: PreTrainedModel) -> dict[str, torch.Tensor] | None:
    """The weights of a network on a TPU, on the CPU and without those that are tied; None for other devices."""
    if model.device.type != "xla":
        return None
    tied = model.all_tied_weights_keys or {}
    return {name: tensor.cpu() for name, tensor in model.state_dict().items() if name not in tied}


def state_to_save(optimizer: torch.optim.Optimizer) -> Mapping[str, Any]:
    """The state of an optimiser, on the CPU if it is that of a TPU."""
    state = optimizer.state_dict()
    return send_to_device(state, "cpu") if has_tpu() else state


def _among_tpus() -> bool:
    return PartialState().distributed_type == DistributedType.XLA


def _exchanged(content: Any) -> list[Any]:
    """What every process has passed."""
    payload = torch.frombuffer(bytearray(pickle.dumps(content)), dtype=torch.uint8)
    parts = importlib.import_module("torch_xla.core.xla_model").mesh_reduce("bert_training", payload, list)
    return [pickle.loads(part.numpy().tobytes()) for part in parts]  # all written by this run


Result = TypeVar("Result")
# Covariant, so that the run of any script is accepted as a `Run[SharedArguments]`.
Args_co = TypeVar("Args_co", bound=SharedArguments, covariant=True)


class Run(Generic[Args_co]):
    """A run, as one of its processes sees it.

    Attributes:
        args: the parsed flags; they do not change.
        seed: the seed of the data's order, the instances and dropout.
        is_main: whether this is the process that writes files and prints.
        rank: number of this process, from 0.
        world_size: number of processes.
        facts: the content of run.json, see ``write_facts``.
        saved_step: optimiser step of the last checkpoint written by this start; 0 before the first.
    """

    def __init__(self, args: Args_co, accelerator: Accelerator, facts: dict[str, Any] | None = None):
        self.args = args
        self.seed = args.seed
        self.accelerator = accelerator
        self.device = accelerator.device
        self.is_main = accelerator.is_main_process
        self.rank = accelerator.process_index
        self.world_size = accelerator.num_processes
        self.output_dir = Path(args.output_dir)
        self.facts = facts or {}
        self.saved_step = 0

    @property
    def global_batch_size(self) -> int:
        """Sequences per optimiser step, over all processes and micro-batches."""
        args = self.args
        return args.per_device_train_batch_size * args.gradient_accumulation_steps * self.world_size

    def log(self, **event: Any) -> None:
        """Append one record to ``metrics.jsonl`` and, if there are some, send its numbers to the trackers.

        JSON has no NaN or infinity, such as the norm of gradients that overflow in half precision: null is recorded.
        """
        event = finite(event)
        if self.is_main:
            append_line(self.output_dir / "metrics.jsonl", json.dumps(event))
            if self.accelerator.trackers and "step" in event:
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

    def add_facts(self, **facts: Any) -> None:
        """Add facts for ``run.json``, such as hashes and counts of the data; ``write_facts`` writes them."""
        self.facts.update(facts)

    def write_facts(self) -> None:
        """Write ``run.json``, once, when training or evaluation begins.

        Once run.json exists, no new run may use the folder. It is therefore written only after data and model have
        been checked, so that a mistake in the flags can be corrected without another --output_dir. If the run is
        resumed, its checkpoint has been accepted as well, so that a start that is refused changes no file.
        """
        if self.is_main:
            write_json(self.output_dir / record.RUN, self.facts)

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

    def only_main(self, work: Callable[[], object]) -> None:
        """Call ``work`` on the main process while the others wait. If it raises, they exit as in ``main_first``."""
        self.main_first(lambda: work() if self.is_main else None)

    def finish(self, results: dict) -> None:
        """Write ``all_results.json``, which marks a finished run, and let other processes into the folder."""
        if self.is_main:
            write_results(self.output_dir, finite(results))
            unlock_output_dir(self.output_dir)
        for tracker in self.accelerator.trackers:
            tracker.finish()


def finite(value: Any) -> Any:
    """A nested value for JSON, with None in place of what JSON has no number for: NaN and infinity."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [*map(finite, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- the output folder -----------------------------------------------------------------------------------------------

LOCK = ".lock"  # the name of the lock file
# Names of files a run may write, as patterns; any of them marks the folder as taken. A folder with other files
# is accepted, because many users send what is printed to a file in it, or keep notes there.
WRITTEN = (
    r"(run|config|tokenizer|tokenizer_config|all_results|hashes)\.json|metrics\.jsonl|model.*\.safetensors|vocab\.txt",
    r"README\.md|training_curves\.png|adapter|checkpoint-(best-)?\d+",
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
    if args.resume_from_checkpoint and is_finished(args):
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
    if not record.is_finished(folder):
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
