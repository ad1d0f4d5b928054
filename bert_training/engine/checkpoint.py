"""Checkpoints of a running training, and the model of the finished folder.

A checkpoint is written to ``checkpoint-<step>.incomplete``, given a ``manifest.json`` (SHA-256 of every file), synced
and renamed to ``checkpoint-<step>`` (``bert_training/files/atomic.py``), so that a folder of that name is complete. It
contains ``config.json`` and ``model.safetensors``, which ``from_pretrained`` opens, and ``training_state.pt``.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.errors import is_out_of_memory
from bert_training.engine.fsdp import full_optimizer_state, full_weights, is_sharded, load_full_state
from bert_training.engine.objects import gather_object
from bert_training.engine.run import Run
from bert_training.engine.state import Origin, TrainingState
from bert_training.files import atomic
from bert_training.files.atomic import damage, remove_folder
from bert_training.files.disk_errors import DiskError, explained
from bert_training.files.hashing import checksums, sha256
from bert_training.files.pickled_weights import check_pickle
from bert_training.files.records import event_lines, read_events
from bert_training.files.weights_header import name_of_today
from bert_training.inputs.flags.natures import EVALUATION, FIXED, FREE
from bert_training.inputs.flags.scripts import chooses_best, flags_with
from bert_training.inputs.flags.shared import SharedArguments
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


def save_checkpoint(run: Run[SharedArguments], step: int, state: TrainingState) -> Path:
    """Write ``checkpoint-<step>``, then delete the oldest beyond ``--save_total_limit``. All processes call it.

    Raises:
        DiskError: it could not be written, for example because the disk is full. The draft has been removed; the
            earlier checkpoints are unharmed.
    """
    target = run.output_dir / f"checkpoint-{step}"
    run.accelerator.wait_for_everyone()
    weights, moments = full_weights(run, state.model), full_optimizer_state(state.model, state.optimizer)
    if run.is_main:
        scaler, origin = run.accelerator.scaler, state.origin
        saved = {
            "step": step,
            "total_steps": state.total_steps,
            "batches": _batches_of(run, origin),
            "sharded": is_sharded(state.model),
            "flags": {name: getattr(run.args, name) for name in flags_with(FIXED) if hasattr(run.args, name)},
            "evaluation": _evaluation(run),
            "data_sha256": checksums(origin.data),
            **{name: getattr(origin, name) for name in STARTED_WITH},
            "metrics_bytes": _size(run.output_dir / "metrics.jsonl"),
            "metrics_sha256": _begun_sha256(run.output_dir / "metrics.jsonl"),
            "optimizer": moments,
            "scheduler": state.scheduler.state_dict(),
            "scaler": scaler.state_dict() if scaler else None,
            "totals": vars(state.totals).copy(),
        }
        with newest_checkpoint_named(run), atomic.sealed_folder(target) as draft:
            run.accelerator.unwrap_model(state.model).save_pretrained(draft, state_dict=weights)
            torch.save(saved, draft / "training_state.pt")
            if saved["metrics_bytes"]:
                atomic.sync(run.output_dir / "metrics.jsonl")  # the checkpoint stores its length
        _drop_old(run, step)
    run.saved_step = step
    run.accelerator.wait_for_everyone()
    return target


def find_checkpoint(run: Run[SharedArguments]) -> Path | None:
    """The checkpoint that ``--resume_from_checkpoint`` asks for: a folder or, with ``auto``, the newest complete one.

    Raises:
        ValueError: the named folder is not a complete checkpoint.
    """
    asked = run.args.resume_from_checkpoint
    if not asked:
        return None
    if asked != "auto":
        return named_checkpoint(asked)
    newest = None
    for folder in reversed(_checkpoints(run.output_dir)):
        problem = damage(folder, FILES)
        if problem is None and _was_left(run, folder):
            newest = newest or folder
            problem = "metrics.jsonl lacks records from before it, as if the run had gone on from an earlier one since"
        if problem is None:
            return folder
        run.say(f"ignoring {folder.name}: {problem}")
    if newest:
        run.say(f"metrics.jsonl fits no checkpoint, so {newest.name} is taken all the same")
    return newest


def _was_left(run: Run[SharedArguments], folder: Path) -> bool:
    """Whether ``metrics.jsonl`` lacks records from before the checkpoint: one that was named cuts later ones off."""
    try:
        check_pickle(folder / "training_state.pt")
        saved = torch.load(folder / "training_state.pt", map_location="cpu", weights_only=True, mmap=True)
        path, then = run.output_dir / "metrics.jsonl", saved["metrics_bytes"]
        if _size(path) < then:
            return True
        earlier = [other for other in _checkpoints(run.output_dir) if _step(other) < _step(folder)]
        if saved.get("metrics_sha256") in (None, _begun_sha256(path, then)) or not earlier:
            return False
        # Other records: somebody has edited them, or the run has gone on from an earlier checkpoint, and saved since.
        return max(map(_written, earlier)) > _written(folder)
    except Exception:  # ``load_checkpoint`` says what is wrong with it
        return False


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
    take: Callable[[list[dict]], object] | None = None,
) -> int:
    """Restore weights, optimiser and schedule, and remove later records from ``metrics.jsonl``; return the step.

    Args:
        take: is given the events from before the checkpoint. It may raise, in which case nothing has been removed.

    Raises:
        ValueError: the checkpoint was made with other flags or data, or contains another model.
    """
    model = state.model
    saved, weights = _read(folder)
    _check_same_run(run, folder, saved, state)
    _check_same_model(folder, weights, run.accelerator.unwrap_model(model))
    if saved.get("sharded", False) != is_sharded(model):
        how = "without" if is_sharded(model) else "with"
        raise UserError(f"{folder} was written by a run {how} FSDP; resume it {how} FSDP")
    run.only_main(lambda: _check_metrics(run, folder, saved))
    if is_sharded(model):
        load_full_state(model, state.optimizer, weights, saved["optimizer"])
    else:
        run.accelerator.unwrap_model(model).load_state_dict(
            weights,
            strict=False,  # tied weights are saved under one name only
        )
        state.optimizer.load_state_dict(saved["optimizer"])
    state.scheduler.load_state_dict(saved["scheduler"])
    if run.accelerator.scaler and saved["scaler"]:
        run.accelerator.scaler.load_state_dict(saved["scaler"])
    vars(state.totals).update(saved.get("totals", {}))  # older versions did not save any
    if take:
        take(_events_before(run, folder, saved))
    run.only_main(lambda: _cut_records(run, folder, saved))
    run.say(f"resuming from {folder} after step {saved['step']}")
    return saved["step"]


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The state of the training and the weights in a checkpoint, which may come from somebody else.

    Raises:
        ValueError: one of the files cannot be read, or holds something other than numbers, texts and tensors.
    """
    try:
        # weights_only: the file is a pickle, which could otherwise execute anything.
        check_pickle(folder / "training_state.pt")
        saved = torch.load(folder / "training_state.pt", map_location="cpu", weights_only=True)
        weights = read_weights(folder)
    except OSError:
        raise
    except Exception as error:  # the bytes of a damaged pickle can raise anything
        if is_out_of_memory(error):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{folder}: training_state.pt or model.safetensors cannot be read ({reason}); give another checkpoint"
        ) from None
    if not isinstance(saved, dict):
        raise UserError(f"{folder}/training_state.pt: expected a dict, got a {type(saved).__name__}")
    needed = ("step", "total_steps", "flags", "optimizer", "scheduler", "metrics_bytes")
    if missing := [name for name in needed if name not in saved]:
        raise UserError(f"{folder}/training_state.pt: it lacks {', '.join(missing)}; give another checkpoint")
    return saved, weights


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """The weights in a checkpoint, by the names of the network.

    Earlier versions saved them by the names of the checkpoint that the run began with, which may be older ones.
    """
    weights = load_file(folder / WEIGHTS)
    old = {name: name_of_today(name) for name in weights}
    # Where both names are there, the file is no checkpoint of ours, and the old name must be seen.
    return {name if old[name] in weights else old[name]: tensor for name, tensor in weights.items()}


def resume(run: Run[SharedArguments], state: TrainingState, take: Callable[[list[dict]], object] | None = None) -> int:
    """Load the checkpoint that was asked for, if there is one; return the number of optimiser steps already done.

    When the checkpoint is accepted, or there is none, run.json is written.

    Args:
        take: see ``load_checkpoint``.

    Raises:
        ValueError: see ``find_checkpoint`` and ``load_checkpoint``; or the processes find different checkpoints.
    """
    folder = find_checkpoint(run)
    found = {str(name) for name in gather_object([folder and folder.name])}
    if len(found) > 1:
        raise UserError(
            f"the processes find different checkpoints ({', '.join(sorted(found))}); --output_dir must be on a file "
            "system that all machines share"
        )
    if folder:
        done = load_checkpoint(run, folder, state, take)
        run.write_facts()
        if run.is_main and run.args.resume_from_checkpoint == "auto":
            _drop_old(run, done)  # the process may have been killed before it deleted them
        return done
    run.write_facts()
    begin_anew(run)
    return 0


def begin_anew(run: Run[SharedArguments]) -> None:
    """Remove the records and drafts of an earlier start that had not written a checkpoint. All processes call it."""
    if run.args.resume_from_checkpoint:
        run.only_main(lambda: _cut(run.output_dir / "metrics.jsonl", 0))
        if run.is_main:
            _drop_drafts(run)


def refuse_training(folder: Path) -> None:
    """Raise ValueError if the folder holds a run that trains, for a command without training data.

    It would finish that run's folder without training, and overwrite its records.
    """
    records, trained = folder / "metrics.jsonl", [path.name for path in _checkpoints(folder)]
    # Not parsed, because a process that was killed may have left half a line.
    if records.exists() and any(b'"event": "train"' in line for line in event_lines(records)):
        trained.append(records.name)
    if trained:
        raise UserError(
            f"{folder} holds a run that trains ({trained[0]}), but this command gives no training data; give the "
            "command of that run, or another --output_dir"
        )


def save_model_folder(run: Run[SharedArguments], model: torch.nn.Module) -> None:
    """Write ``config.json`` and ``model.safetensors`` of the finished model into the output folder.

    Raises:
        DiskError: they could not be written.
    """
    run.accelerator.wait_for_everyone()
    weights = full_weights(run, model)
    if run.is_main:
        with newest_checkpoint_named(run), atomic.files_into(run.output_dir, "model") as draft:
            run.accelerator.unwrap_model(model).save_pretrained(draft, state_dict=weights)
    run.accelerator.wait_for_everyone()


def save_tokenizer(run: Run[SharedArguments], tokenizer: PreTrainedTokenizerBase, model: torch.nn.Module) -> None:
    """Write the tokenizer, with its vocab.txt, into the output folder. Only the main process calls it.

    Args:
        model: the network, whose number of positions is the length to which the saved tokenizer cuts.

    Raises:
        DiskError: it could not be written.
    """
    positions = run.accelerator.unwrap_model(model).config.max_position_embeddings
    with newest_checkpoint_named(run), atomic.files_into(run.output_dir, "tokenizer") as draft:
        save_tokenizer_files(tokenizer, draft, positions)


@contextmanager
def newest_checkpoint_named(run: Run[SharedArguments]) -> Iterator[None]:
    """Add to an error of the disk which checkpoint is the newest."""
    try:
        yield
    except DiskError as error:
        checkpoints = _checkpoints(run.output_dir)
        newest = checkpoints[-1].name if checkpoints else "none"
        raise DiskError(f"{error}. The newest checkpoint is {newest}", error.errno) from error


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
    # Older versions called the batches "global_batch_size".
    batches = saved["batches"] if "batches" in saved else saved["global_batch_size"]
    then = {"total_steps": saved["total_steps"], "batches": batches} | saved["flags"]
    if chooses_best(run.args):  # among evaluations of the same kind
        then |= saved.get("evaluation", {})  # older versions recorded none
        now |= _evaluation(run)
    changed = [
        f"{name} {then[name]} -> {now.get(name)}" + (_arithmetic(run, batches) if name == "batches" else "")
        for name in then
        if then[name] != now.get(name)
    ]
    if changed:
        raise UserError(
            f"{folder} belongs to a run with other settings ({', '.join(changed)}); resume with the same ones"
        )
    # Older versions had no hash of some data from the Hub.
    if saved["data_sha256"] not in (checksums(origin.data), checksums(origin.data, contents=False)):
        raise UserError(f"{folder} belongs to a run on other data; resume with the files that it was started with")
    for name, other in STARTED_WITH.items():
        if name in saved and saved[name] != getattr(origin, name):  # older versions did not record these fields
            raise UserError(f"{folder} belongs to a run {other}")


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


def _check_same_model(folder: Path, weights: dict[str, torch.Tensor], model: PreTrainedModel) -> None:
    own = {name: tensor.shape for name, tensor in model.state_dict().items()}
    tied = model.all_tied_weights_keys or {}
    missing = [name for name in own if name not in weights and name not in tied]
    unexpected = [name for name in weights if name not in own]
    if missing or unexpected:
        raise UserError(f"{folder} holds another model: it lacks {missing[:3]} and has the unexpected {unexpected[:3]}")
    for name, tensor in weights.items():
        if tensor.shape != own[name]:
            raise UserError(
                f"{folder} holds a model of another shape: {name} is {tuple(tensor.shape)}, expected {tuple(own[name])}"
            )
    then, now = type(model.config).from_pretrained(folder).to_dict(), model.config.to_dict()
    names = [name for name in sorted(then.keys() & now.keys()) if then[name] != now[name]]
    if changed := [f"{name} {then[name]} -> {now[name]}" for name in names if not name.startswith(UNIMPORTANT)]:
        raise UserError(
            f"{folder} holds a model of another configuration ({', '.join(changed)}); resume with "
            "the configuration it was saved with"
        )


def _records_of(run: Run[SharedArguments], folder: Path, saved: dict[str, Any]) -> tuple[Path, bool]:
    """The metrics.jsonl with the records from before a checkpoint, and whether it really has them.

    It is that of the output folder or, if that has others, the one beside the checkpoint of another run.
    """
    own, beside = run.output_dir / "metrics.jsonl", folder.parent / "metrics.jsonl"
    then, digest = saved["metrics_bytes"], saved.get("metrics_sha256")  # older ones have no hash
    for path in (own, beside) if digest or _is_own(run, folder) else (beside, own):
        if _size(path) >= then and digest in (None, _begun_sha256(path, then)):
            return path, True
    return own, False


def _check_metrics(run: Run[SharedArguments], folder: Path, saved: dict[str, Any]) -> None:
    """Say whether there still are the records from before the checkpoint; the training needs none of them.

    Raises:
        ValueError: a line of them cannot be read, at which the run would fail when it draws its curves.
    """
    path, whole = _records_of(run, folder, saved)
    size, then = _size(path), saved["metrics_bytes"]
    if size < then:
        run.say(f"warning: {path} has lost records that were written before {folder.name}")
    elif not whole:
        run.say(f"warning: {path}: records that were written before {folder.name} have changed since; they are kept")
    if path.exists():  # where a line ends in other records than those is not known
        read_events(path, then if whole else -1)


def _events_before(run: Run[SharedArguments], folder: Path, saved: dict[str, Any]) -> list[dict]:
    """The events that ``metrics.jsonl`` holds once ``_cut_records`` has removed those after the checkpoint."""
    path, whole = _records_of(run, folder, saved)
    if not path.exists():
        return []
    if whole:
        return read_events(path, saved["metrics_bytes"])
    return [event for event in read_events(path) if _is_before(event, saved)]


def _cut_records(run: Run[SharedArguments], folder: Path, saved: dict[str, Any]) -> None:
    """Let metrics.jsonl end with the records from before the checkpoint, which may be those of another run."""
    own, (path, whole) = run.output_dir / "metrics.jsonl", _records_of(run, folder, saved)
    if path != own:
        with path.open("rb") as source, atomic.whole_file(own) as draft:
            draft.write_bytes(source.read(saved["metrics_bytes"]))
    elif whole or not own.exists():
        _cut(own, saved["metrics_bytes"])
    else:  # how many bytes are from before the checkpoint is not known
        kept = [line for line in event_lines(own) if _is_before(json.loads(line), saved)]
        with atomic.whole_file(own) as draft:
            draft.write_bytes(b"".join(kept))


def _is_before(event: dict, saved: dict[str, Any]) -> bool:
    """Whether an event is from before a checkpoint, by its step; the last evaluation follows the last checkpoint."""
    is_last = event["event"] != "train" and saved["step"] == saved["total_steps"]
    step: int = event.get("step", 0)
    return step < saved["step"] or (step == saved["step"] and not is_last)


def _is_own(run: Run[SharedArguments], checkpoint: Path) -> bool:
    """Whether a checkpoint lies in the output folder."""
    return checkpoint.parent.samefile(run.output_dir)


def _begun_sha256(path: Path, size: int = -1) -> str:
    """The SHA-256 of the first ``size`` bytes of a file, or of all of them; a missing file is an empty one."""
    return sha256(path, size) if path.exists() else hashlib.sha256().hexdigest()


def _cut(metrics: Path, size: int) -> None:
    if _size(metrics) > size:
        atomic.cut(metrics, size)


def _drop_old(run: Run[SharedArguments], step: int) -> None:
    """Delete the oldest checkpoints beyond the limit, and drafts of a process that was killed.

    Later checkpoints remain if they were damaged, or if the user named an earlier one; they are not counted.
    """
    _drop_drafts(run)
    limit = run.args.save_total_limit
    if limit:
        known = [folder for folder in _checkpoints(run.output_dir) if _step(folder) <= step]
        for folder in known[:-limit]:
            remove_folder(folder)


def _drop_drafts(run: Run[SharedArguments]) -> None:
    for path in run.output_dir.glob("checkpoint-*.incomplete"):
        with explained(path, verb="removed", reads=False):
            atomic.delete(path)


def _checkpoints(output_dir: Path) -> list[Path]:
    """Folders named ``checkpoint-<step>``, oldest first; none where another machine has no such ``output_dir``."""
    if not output_dir.is_dir():
        return []
    found = [path for path in output_dir.iterdir() if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(found, key=_step)


def _written(folder: Path) -> float:
    """When a checkpoint was written, in seconds; 0 for one that is not complete."""
    path = folder / "training_state.pt"
    return path.stat().st_mtime if path.is_file() else 0.0


def _step(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
