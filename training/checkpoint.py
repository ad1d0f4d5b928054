"""Checkpoints of a running training, and the finished folder.

A checkpoint is written to ``checkpoint-<step>.incomplete``, synced, given ``manifest.json`` (SHA-256 of every
file) and renamed to ``checkpoint-<step>``: under that name it is whole. It holds ``config.json`` and
``model.safetensors``, so ``from_pretrained`` opens it, and ``training_state.pt``.
"""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file

from .run import Run

# What must not change between a checkpoint and the run that goes on from it: all of these decide which data
# and which learning rate a step sees.
FIXED_FLAGS = (
    *("seed", "learning_rate", "weight_decay", "warmup_steps", "max_grad_norm", "model_impl", "max_seq_length"),
    *("objective", "short_seq_prob", "mlm_probability", "mask_replace_prob", "random_replace_prob"),
    *("whole_word_mask", "max_predictions_per_seq", "max_train_documents", "validation_split"),
    *("task_name", "group_by_length", "max_train_samples", "doc_stride", "max_query_length", "version_2_with_negative"),
    *("context", "mixed_tags", "feature_based", "lstm_size"),
)


def save_checkpoint(run: Run, step: int, total_steps: int, model, optimizer, scheduler) -> Path:
    """Write ``checkpoint-<step>``, then drop those beyond ``--save_total_limit``. All processes call it."""
    target = run.output_dir / f"checkpoint-{step}"
    run.accelerator.wait_for_everyone()
    if run.is_main:
        draft = run.output_dir / f"checkpoint-{step}.incomplete"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        run.accelerator.unwrap_model(model).save_pretrained(draft)
        scaler = run.accelerator.scaler
        state = {
            "step": step,
            "total_steps": total_steps,
            "global_batch_size": run.facts.get("phases", run.global_batch_size),
            "flags": {name: getattr(run.args, name) for name in FIXED_FLAGS if hasattr(run.args, name)},
            "data_sha256": _checksums(run.facts.get("data")),
            "metrics_bytes": _size(run.output_dir / "metrics.jsonl"),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "scaler": scaler.state_dict() if scaler else None,
        }
        torch.save(state, draft / "training_state.pt")
        _seal(draft)
        if target.exists():  # left by a run that was stopped and has come back to the same step
            shutil.rmtree(target)
        os.replace(draft, target)
        _sync(run.output_dir)
        _drop_old(run.output_dir, run.args.save_total_limit)
    run.saved_step = step
    run.accelerator.wait_for_everyone()
    return target


def find_checkpoint(run: Run) -> Path | None:
    """What ``--resume_from_checkpoint`` names: a folder, or with ``auto`` the newest whole checkpoint.

    Raises:
        ValueError: the named folder is no whole checkpoint.
    """
    asked = run.args.resume_from_checkpoint
    if not asked:
        return None
    if asked != "auto":
        problem = damage(Path(asked))
        if problem:
            raise ValueError(f"--resume_from_checkpoint {asked}: {problem}; give another, or 'auto'")
        return Path(asked)
    for folder in reversed(_checkpoints(run.output_dir)):
        problem = damage(folder)
        if problem is None:
            return folder
        run.say(f"passing over {folder.name}: {problem}")
    return None


def load_checkpoint(run: Run, folder: Path, total_steps: int, model, optimizer, scheduler) -> int:
    """Restore weights, optimiser and schedule; cut ``metrics.jsonl`` back to that moment. Returns the step.

    Raises:
        ValueError: the checkpoint was made with other flags, or for a model of another shape.
    """
    state = torch.load(folder / "training_state.pt", map_location="cpu", weights_only=True)
    _check_same_run(run, folder, state, total_steps)
    bare = run.accelerator.unwrap_model(model)
    try:
        missing, unexpected = bare.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    except RuntimeError as error:
        raise ValueError(f"{folder} holds a model of another shape: {error}") from error
    untied = [name for name in missing if name not in (bare.all_tied_weights_keys or {})]
    if untied or unexpected:
        raise ValueError(f"{folder} holds another model: missing {untied[:3]}, unexpected {unexpected[:3]}")
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    if run.accelerator.scaler and state["scaler"]:
        run.accelerator.scaler.load_state_dict(state["scaler"])
    _cut_metrics(run, state["metrics_bytes"])
    run.say(f"resuming from {folder} after step {state['step']}")
    return state["step"]


def resume(run: Run, total_steps: int, model, optimizer, scheduler) -> int:
    """Load the checkpoint asked for, if any; returns the optimiser steps already done."""
    folder = find_checkpoint(run)
    if folder:
        return load_checkpoint(run, folder, total_steps, model, optimizer, scheduler)
    if run.args.resume_from_checkpoint:
        _cut_metrics(run, 0)  # stopped before its first checkpoint: those steps are taken again
    return 0


def save_model_folder(run: Run, model) -> None:
    """Write ``config.json`` and ``model.safetensors`` of the finished model into the output folder."""
    run.accelerator.wait_for_everyone()
    if run.is_main:
        run.accelerator.unwrap_model(model).save_pretrained(run.output_dir)
    run.accelerator.wait_for_everyone()


def damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint folder, in words; None if it is whole."""
    if not folder.is_dir():
        return "no such folder"
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        return "it has no manifest.json, so it was not written to its end"
    try:
        expected = json.loads(manifest.read_text(encoding="utf-8"))["sha256"]
    except (ValueError, KeyError) as error:
        return f"its manifest.json cannot be read ({error})"
    for name, digest in expected.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if _sha256(folder / name) != digest:
            return f"{name} does not match its checksum"
    return None


def _check_same_run(run: Run, folder: Path, state: dict, total_steps: int) -> None:
    now = {"total_steps": total_steps, "global_batch_size": run.facts.get("phases", run.global_batch_size)}
    now |= {name: getattr(run.args, name) for name in state["flags"] if hasattr(run.args, name)}
    then = {name: state[name] for name in ("total_steps", "global_batch_size")} | state["flags"]
    changed = [f"{name} {then[name]} -> {now.get(name)}" for name in then if then[name] != now.get(name)]
    if changed:
        raise ValueError(
            f"{folder} belongs to a run with other settings ({', '.join(changed)}); resume with the same ones"
        )
    if state["data_sha256"] != _checksums(run.facts.get("data")):
        raise ValueError(f"{folder} belongs to a run on other data; resume with the files that it was started with")


def _checksums(data) -> list[str]:
    """Every value called ``sha256`` in a description of data, in order."""
    if isinstance(data, dict):
        return [v for k, value in data.items() for v in ([value] if k == "sha256" else _checksums(value))]
    return [v for value in data for v in _checksums(value)] if isinstance(data, list | tuple) else []


def _cut_metrics(run: Run, size: int) -> None:
    metrics = run.output_dir / "metrics.jsonl"
    if run.is_main and _size(metrics) > size:
        os.truncate(metrics, size)
    run.accelerator.wait_for_everyone()


def _seal(folder: Path) -> None:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    digests = {path.name: _sha256(path) for path in files}
    (folder / "manifest.json").write_text(json.dumps({"sha256": digests}, indent=2), encoding="utf-8")
    for path in (*files, folder / "manifest.json", folder):
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _drop_old(output_dir: Path, limit: int) -> None:
    if limit:
        for folder in _checkpoints(output_dir)[:-limit]:
            shutil.rmtree(folder)


def _checkpoints(output_dir: Path) -> list[Path]:
    """Folders named ``checkpoint-<step>``, oldest first."""
    found = [path for path in output_dir.iterdir() if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
