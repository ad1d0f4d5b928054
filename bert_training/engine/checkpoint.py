"""The state of a training, its checkpoints, and the model of the finished folder.

A checkpoint is written to ``checkpoint-<step>.incomplete``, given a ``manifest.json`` (SHA-256 of every file), synced
and renamed to ``checkpoint-<step>`` (``bert_training/files/atomic.py``), so that a folder of that name is complete. It
contains ``config.json`` and ``model.safetensors``, which ``from_pretrained`` opens, and ``training_state.pt``.

A resumed run continues from its checkpoint alone. ``metrics.jsonl`` is cut to the length that it had when the
checkpoint was written, so that no event is lost or doubled; nothing in it is read.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.optim.lr_scheduler import LRScheduler
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.errors import is_out_of_memory
from bert_training.engine.run import Run, finite, gather_object, state_to_save, weights_to_save
from bert_training.files import atomic
from bert_training.files.atomic import DiskError, damage, remove_folder
from bert_training.files.hashing import checksums
from bert_training.inputs.flags.parsing import EVALUATION, FIXED, FREE
from bert_training.inputs.flags.scripts import chooses_best, flags_with
from bert_training.inputs.flags.shared import SharedArguments
from bert_training.inputs.reading import FORMAT, check_format
from tokenization.bert_tokenizer import save_tokenizer_files
from tokenization.errors import UserError

# Field of Origin -> the end of the error message "... belongs to a run" if it differs on resume.
STARTED_WITH = {
    "tokenizer_sha256": "with another tokenizer; resume with the one that it was started with",
    "initial_weights": "from other weights; resume with the --model_name_or_path that it was started with",
    "teacher": "with another teacher, or none; resume with the --teacher that it was started with",
}
WEIGHTS = "model.safetensors"
FILES = ("config.json", WEIGHTS, "training_state.pt")  # what a resumed run reads
# Fields of config.json that do not change what a model computes (a prefix stands for all fields that begin with it).
UNIMPORTANT = ("_", "transformers_version", "architectures", "auto_map", "dtype", "sparse_prediction", "use_cache",
               "fine_tuning", "question_answering")  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """What a run was started with besides its flags; a run that resumes from its checkpoint must have the same.

    Attributes:
        data: a description of the training and evaluation data, as in run.json; every "sha256" in it is compared.
        initial_weights: file -> SHA-256 (``weights_sha256``); None for new weights.
        teacher: those of the teacher; None without one.
        phases: steps and batches of a pre-training in several phases, in words; None if all batches have the size
            that the flags give.
    """

    data: Any = None
    tokenizer_sha256: str | None = None
    initial_weights: dict[str, str] | None = None
    phases: str | None = None
    teacher: dict[str, str] | None = None


UNKNOWN = Origin()


@dataclass
class Totals:
    """Sums over the steps of the run, including those before it was resumed.

    Attributes:
        steps: steps counted here.
        loss: the sum of the losses of the steps.
        seconds: the time of the steps, without evaluations and checkpoints.
    """

    steps: int = 0
    loss: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class TrainingState:
    """What the loop advances and a checkpoint preserves.

    Attributes:
        model, optimizer: prepared by Accelerate.
        scheduler: not prepared by Accelerate; it counts optimiser steps.
        total_steps: optimiser steps of the whole run.
        origin: what the run was started with.
        totals: sums over the steps done so far.
        evaluations: (step, results) of each evaluation so far.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: LRScheduler
    total_steps: int
    origin: Origin
    totals: Totals = field(default_factory=Totals)
    evaluations: list[tuple[int, dict[str, Any]]] = field(default_factory=list)


def prepared_state(
    run: Run[SharedArguments],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: LRScheduler,
    total_steps: int,
    origin: Origin,
) -> TrainingState:
    """The state before the first step, with the network and the optimiser prepared by Accelerate."""
    model, optimizer = run.accelerator.prepare(model, optimizer)
    if run.device.type == "xla":  # moving the network has made two parameters of those that were tied
        run.accelerator.unwrap_model(model).tie_weights()
    return TrainingState(model, optimizer, scheduler, total_steps, origin)


def save_checkpoint(run: Run[SharedArguments], step: int, state: TrainingState) -> Path:
    """Write ``checkpoint-<step>``, then delete the oldest beyond ``--save_total_limit``. All processes call it.

    Raises:
        OSError: it could not be written. The draft has been removed; the earlier checkpoints are unharmed.
    """
    target = run.output_dir / f"checkpoint-{step}"
    run.accelerator.wait_for_everyone()
    if run.is_main:
        scaler, origin = run.accelerator.scaler, state.origin
        saved = {
            "format": FORMAT,
            "step": step,
            "total_steps": state.total_steps,
            "batches": _batches_of(run, origin),
            "flags": {name: getattr(run.args, name) for name in flags_with(FIXED) if hasattr(run.args, name)},
            "evaluation": _evaluation(run),
            "data_sha256": checksums(origin.data),
            **{name: getattr(origin, name) for name in STARTED_WITH},
            "metrics_bytes": _size(run.output_dir / "metrics.jsonl"),
            "evaluations": json.loads(json.dumps(finite(state.evaluations))),  # plain numbers, for weights_only
            "optimizer": state_to_save(state.optimizer),
            "scheduler": state.scheduler.state_dict(),
            "scaler": scaler.state_dict() if scaler else None,
            "totals": vars(state.totals).copy(),
        }
        with newest_checkpoint_named(run), atomic.sealed_folder(target) as draft:
            _save_network(run, state.model, draft)
            with open(draft / "training_state.pt", "wb") as file:
                torch.save(saved, file)  # given a path, it would lose the system's reason of an error
            if saved["metrics_bytes"]:
                atomic.sync(run.output_dir / "metrics.jsonl")  # the checkpoint stores its length
        _drop_old(run, step)
    run.saved_step = step
    run.accelerator.wait_for_everyone()
    return target


def _save_network(run: Run[SharedArguments], model: torch.nn.Module, folder: Path) -> None:
    bare = run.accelerator.unwrap_model(model)
    bare.save_pretrained(folder, state_dict=weights_to_save(bare))


def find_checkpoint(run: Run[SharedArguments]) -> Path | None:
    """The checkpoint that ``--resume_from_checkpoint`` asks for: a folder or, with ``auto``, the newest complete one.

    Raises:
        ValueError: the named folder is not a complete checkpoint.
    """
    asked = str(run.args.resume_from_checkpoint)
    if asked != "auto":
        return named_checkpoint(asked)
    for folder in reversed(_checkpoints(run.output_dir)):
        problem = damage(folder, FILES)
        if problem is None:
            return folder
        run.say(f"ignoring {folder.name}: {problem}")
    return None


def named_checkpoint(folder: str) -> Path:
    """The folder that ``--resume_from_checkpoint`` names; ValueError if it is not a complete checkpoint."""
    problem = damage(Path(folder), FILES)
    if problem:
        raise UserError(f"--resume_from_checkpoint {folder}: {problem}; give another, or 'auto'")
    return Path(folder)


def load_checkpoint(
    run: Run[SharedArguments],
    folder: Path,
    state: TrainingState,
    take: Callable[[], object] | None = None,
) -> int:
    """Restore weights, optimiser and schedule, and remove later records from ``metrics.jsonl``; return the step.

    Args:
        take: is called when the state has been restored. It may raise, in which case no file has been changed.

    Raises:
        ValueError: the checkpoint was made with other flags or data, or contains another model.
    """
    model = run.accelerator.unwrap_model(state.model)
    saved, weights = _read(folder)
    _check_same_run(run, folder, saved, state)
    _check_same_model(folder, weights, model)
    model.load_state_dict(weights, strict=False)  # tied weights are saved under one name only
    state.optimizer.load_state_dict(saved["optimizer"])
    state.scheduler.load_state_dict(saved["scheduler"])
    if run.accelerator.scaler and saved["scaler"]:
        run.accelerator.scaler.load_state_dict(saved["scaler"])
    vars(state.totals).update(saved["totals"])
    state.evaluations[:] = [(step, results) for step, results in saved["evaluations"]]
    if take:
        take()
    run.only_main(lambda: _go_back(run, folder, saved))
    run.say(f"resuming from {folder} after step {saved['step']}")
    return saved["step"]


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The state of the training and the weights in a checkpoint, which may come from somebody else.

    Raises:
        ValueError: one of the files cannot be read, or holds something other than numbers, texts and tensors.
    """
    try:
        # weights_only: the file is a pickle, which could otherwise execute anything.
        saved = torch.load(folder / "training_state.pt", map_location="cpu", weights_only=True)
        weights = load_file(folder / WEIGHTS)
    except Exception as error:  # the bytes of a damaged pickle can raise anything
        if isinstance(error, OSError) or is_out_of_memory(error):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{folder}: training_state.pt or model.safetensors cannot be read ({reason}); give another checkpoint"
        ) from None
    check_format(folder / "training_state.pt", saved)
    return saved, weights


def resume(run: Run[SharedArguments], state: TrainingState, take: Callable[[], object] | None = None) -> int:
    """Load the checkpoint that was asked for, if there is one; return the number of optimiser steps already done.

    When the checkpoint is accepted, or there is none, run.json is written.

    Args:
        take: see ``load_checkpoint``.

    Raises:
        ValueError: see ``find_checkpoint`` and ``load_checkpoint``; or the processes find different checkpoints.
    """
    done = _resumed(run, state, take) if run.args.resume_from_checkpoint else 0
    if not done:
        run.write_facts()
        begin_anew(run)
    return done


def _resumed(run: Run[SharedArguments], state: TrainingState, take: Callable[[], object] | None) -> int:
    folder = find_checkpoint(run)
    found = {str(name) for name in gather_object([folder and folder.name])}
    if len(found) > 1:
        raise UserError(
            f"the processes find different checkpoints ({', '.join(sorted(found))}); --output_dir must be on a file "
            "system that all machines share"
        )
    if folder is None:
        return 0
    done = load_checkpoint(run, folder, state, take)
    run.write_facts()
    if run.is_main and run.args.resume_from_checkpoint == "auto":
        _drop_old(run, done)  # the process may have been killed before it deleted them
    return done


def begin_anew(run: Run[SharedArguments]) -> None:
    """Remove the records and drafts of an earlier start that had not written a checkpoint. All processes call it."""
    if run.args.resume_from_checkpoint:
        run.only_main(lambda: (run.output_dir / "metrics.jsonl").unlink(missing_ok=True))
        if run.is_main:
            _drop_drafts(run)


def refuse_training(folder: Path) -> None:
    """Raise ValueError if the folder holds a run that trains, for a command without training data.

    It would finish that run's folder without training, and overwrite its records.
    """
    records, trained = folder / "metrics.jsonl", [path.name for path in _checkpoints(folder)]
    if records.exists() and b'"event": "train"' in records.read_bytes():
        trained.append(records.name)
    if trained:
        raise UserError(
            f"{folder} holds a run that trains ({trained[0]}), but this command gives no training data; give the "
            "command of that run, or another --output_dir"
        )


def save_model_folder(run: Run[SharedArguments], model: torch.nn.Module) -> None:
    """Write ``config.json`` and ``model.safetensors`` of the finished model into the output folder.

    Raises:
        OSError: they could not be written.
    """
    run.accelerator.wait_for_everyone()
    if run.is_main:
        with newest_checkpoint_named(run), atomic.files_into(run.output_dir, "model") as draft:
            _save_network(run, model, draft)
    run.accelerator.wait_for_everyone()


def save_tokenizer(run: Run[SharedArguments], tokenizer: PreTrainedTokenizerBase, model: torch.nn.Module) -> None:
    """Write the tokenizer, with its vocab.txt, into the output folder. Only the main process does it.

    Args:
        model: the network, which the saved tokenizer fits: it cuts to the positions, and gives no segments to one.

    Raises:
        OSError: it could not be written.
    """
    if not run.is_main:
        return
    config = run.accelerator.unwrap_model(model).config
    with newest_checkpoint_named(run), atomic.files_into(run.output_dir, "tokenizer") as draft:
        save_tokenizer_files(tokenizer, draft, config.max_position_embeddings, config.type_vocab_size)


@contextmanager
def newest_checkpoint_named(run: Run[SharedArguments]) -> Iterator[None]:
    """Add to an error of the disk which checkpoint is the newest."""
    try:
        yield
    except OSError as error:
        checkpoints = _checkpoints(run.output_dir)
        newest = checkpoints[-1].name if checkpoints else "none"
        raise DiskError(f"{error}. The newest checkpoint is {newest}") from error


def _batches_of(run: Run[SharedArguments], origin: Origin) -> int | str:
    """The number of sequences of every step or, in a pre-training with phases, the steps of each phase in words."""
    return origin.phases or run.global_batch_size


def _evaluation(run: Run[SharedArguments]) -> dict[str, Any]:
    """The flags that decide what an evaluation computes, and which nothing else in a training depends on."""
    names = set(flags_with(EVALUATION)) - set(flags_with(FIXED | FREE)) - {"mixed_precision"}
    return {name: getattr(run.args, name) for name in sorted(names) if hasattr(run.args, name)}


def _check_same_run(run: Run[SharedArguments], folder: Path, saved: dict, state: TrainingState) -> None:
    origin = state.origin
    now = {"total_steps": state.total_steps, "batches": _batches_of(run, origin)}
    now |= {name: getattr(run.args, name) for name in saved["flags"] if hasattr(run.args, name)}
    batches = saved["batches"]
    then = {"total_steps": saved["total_steps"], "batches": batches} | saved["flags"]
    if chooses_best(run.args):  # among evaluations of the same kind
        then |= saved["evaluation"]
        now |= _evaluation(run)
    changed = [
        f"{name} {then[name]} -> {now.get(name)}" + (_arithmetic(run, batches) if name == "batches" else "")
        for name in then
        if then[name] != now.get(name)
    ]
    others = [f"with other settings ({', '.join(changed)}); resume with the same ones"] * bool(changed)
    if saved["data_sha256"] != checksums(origin.data):
        others.append("on other data; resume with the files that it was started with")
    others += [other for name, other in STARTED_WITH.items() if saved[name] != getattr(origin, name)]
    if others:
        raise UserError(f"{folder} belongs to a run {'; and '.join(others)}")


def _arithmetic(run: Run[SharedArguments], wanted: int | str) -> str:
    """How the number of sequences of a step comes about, and what gives the number of the checkpoint."""
    args, world = run.args, run.world_size
    processes = f"{world} process{'es' if world > 1 else ''}"
    if not isinstance(wanted, int):
        return f", with {processes}; of every phase, BATCH x ACCUMULATION x processes must stay what it was"
    made = (
        f" = --per_device_train_batch_size {args.per_device_train_batch_size} x --gradient_accumulation_steps "
        f"{args.gradient_accumulation_steps} x {processes}"
    )
    if wanted % world:
        return f"{made}; {wanted} sequences cannot be divided among {processes}, but among {_divisors(wanted)}"
    return f"{made}; with {processes}, the first two must make {wanted // world} for {wanted} sequences a step"


def _divisors(number: int) -> str:
    """The numbers of processes that divide a batch, up to 64."""
    return ", ".join(str(one) for one in range(1, min(number, 64) + 1) if number % one == 0)


def _shape(shape: torch.Size | None) -> str:
    return "missing" if shape is None else str(tuple(shape))


def _check_same_model(folder: Path, weights: dict[str, torch.Tensor], model: PreTrainedModel) -> None:
    own = {name: tensor.shape for name, tensor in model.state_dict().items()}
    tied = model.all_tied_weights_keys or {}
    found = {name: tensor.shape for name, tensor in weights.items()}
    expected = {name: shape for name, shape in own.items() if name in found or name not in tied}
    changed = [
        f"{name} {_shape(found.get(name))} -> {_shape(expected.get(name))}"
        for name in {**expected, **found}
        if expected.get(name) != found.get(name)
    ]
    then, now = type(model.config).from_pretrained(folder).to_dict(), model.config.to_dict()
    names = [name for name in sorted(then.keys() & now.keys()) if then[name] != now[name]]
    changed += [f"{name} {then[name]} -> {now[name]}" for name in names if not name.startswith(UNIMPORTANT)]
    if changed:
        raise UserError(f"{folder} holds another model: {len(changed)} of its parts differ, such as {changed[0]}")


def _go_back(run: Run[SharedArguments], folder: Path, saved: dict[str, Any]) -> None:
    """Let metrics.jsonl end with the records from before a checkpoint, which may be one of another run.

    Later checkpoints of the run, which a user who names an earlier one leaves behind, are set aside: their records are
    no longer there.
    """
    for later in _checkpoints(run.output_dir):
        if _step(later) > saved["step"] and damage(later) is None:
            aside = later.with_name(f"left-{later.name}")
            remove_folder(aside)
            later.rename(aside)
            run.say(f"{later.name} is called {aside.name} from now on, as the run goes back to {folder.name}")
    own, then = run.output_dir / "metrics.jsonl", saved["metrics_bytes"]
    path = next((one for one in (folder.with_name(own.name), own) if _size(one) >= then), own)
    records = path.read_bytes()[:then] if path.exists() else b""
    kept = records[: records.rfind(b"\n") + 1]  # whole lines, whatever an editor has made of the file
    if len(kept) < then:
        run.say(f"warning: {own} has lost records that were written before {folder.name}")
    if path != own or len(kept) < _size(own):
        with atomic.whole_file(own) as draft:
            draft.write_bytes(kept)


def _drop_old(run: Run[SharedArguments], step: int) -> None:
    """Delete the oldest checkpoints beyond the limit, and drafts of a process that was killed.

    Later checkpoints are damaged ones, which remain until the run reaches their steps again; they are not counted.
    """
    _drop_drafts(run)
    limit = run.args.save_total_limit
    if limit:
        known = [folder for folder in _checkpoints(run.output_dir) if _step(folder) <= step]
        for folder in known[:-limit]:
            remove_folder(folder)


def _drop_drafts(run: Run[SharedArguments]) -> None:
    for path in run.output_dir.glob("checkpoint-*.incomplete"):
        atomic.delete(path)


def _checkpoints(output_dir: Path) -> list[Path]:
    """Folders named ``checkpoint-<step>``, oldest first; none where another machine has no such ``output_dir``."""
    if not output_dir.is_dir():
        return []
    found = [path for path in output_dir.iterdir() if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(found, key=_step)


def _step(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
