"""The settings on which the result of a run depends besides its seed. Runs with equal settings may be averaged.

Runs are compared by their ``run.json`` and not by the names of their folders.
"""

import dataclasses
from typing import Any

from bert_training.inputs.flags.parsing import APART, FREE
from bert_training.inputs.flags.scripts import SCRIPTS, flags_with

DATA = ("task_name", "data_dir", "dataset_name", "dataset_config_name", "train_file", "validation_file")
CHOICE = ("eval_steps", "metric_for_best_model")  # flags that count only if the best evaluation is chosen


def compared_settings(facts: dict) -> dict[str, Any]:
    """The settings on which the result of a run depends besides its start and its seed, by name.

    Args:
        facts: the content of the run's run.json.
    """
    flags = _flags(facts)
    others = flags_with(FREE | APART)
    settings = {name: value for name, value in flags.items() if name not in others}
    if settings.get("max_steps", -1) > 0:
        del settings["num_train_epochs"]
    if not settings.get("load_best_model_at_end"):
        settings = {name: value for name, value in settings.items() if name not in CHOICE}
    if settings.get("folds"):  # the folds of one cross-validation are averaged
        settings["folds"] = settings["folds"].rpartition("/")[2]
    settings["mixed_precision"] = facts.get("mixed_precision") or settings.get("mixed_precision") or "no"
    settings["processes"] = facts.get("processes", 1)
    settings["teacher weights"] = _short_hashes(facts.get("teacher_weights"))
    return settings | _data(facts, flags)


def initial_settings(facts: dict) -> dict[str, Any]:
    """The weights and the tokenizer that a run started from, by name."""
    flags, weights = _flags(facts), facts.get("initial_weights")
    if weights:
        return {"initial_weights": _short_hashes(weights)}
    names = ("model_name_or_path", "config_name", "tokenizer_name")
    return {"initial_weights": None} | {name: flags.get(name) for name in names}


def _short_hashes(weights: dict[str, str] | None) -> str | None:
    return ", ".join(sha256[:8] for sha256 in weights.values()) if weights else None


def with_differences(names: list[str], settings: list[dict[str, Any]]) -> list[str]:
    """The names of runs; to equal names, the settings in which their runs differ are added: "CoLA, seed 3".

    Args:
        names: the name of each run.
        settings: the settings of each run, in the same order.
    """
    distinct = list(names)
    for name in dict.fromkeys(names):
        numbers = [number for number, other in enumerate(names) if other == name]
        changed = differing([settings[number] for number in numbers])
        for number in numbers:
            words = [f"{key} {settings[number].get(key)}" for key in changed]
            distinct[number] = ", ".join([name, *words])
    return distinct


def _flags(facts: dict) -> dict[str, Any]:
    """The flags of a run, with the present defaults of those that its run.json lacks."""
    fields = dataclasses.fields(SCRIPTS[facts["script"]].arguments)
    return {field.name: field.default for field in fields} | facts["flags"]


def _data(facts: dict, flags: dict[str, Any]) -> dict[str, str]:
    """The hashes of the training and the evaluation data; if one is missing, also the flags that name the data."""
    data = facts.get("data") or {}
    splits = data.get("splits", data) if isinstance(data, dict) else {}
    named = {}
    for title, prefix in (("training data", "train"), ("evaluation data", "validation")):
        parts = [part for split, part in splits.items() if split.startswith(prefix) and isinstance(part, dict)]
        names = ("file_sha256", "sha256", "fingerprint")  # the folds of a file are averaged
        hashes = [next((str(part[name]) for name in names if part.get(name)), "")[:8] for part in parts]
        named[title] = " and ".join(hashes)
    if not all(named.values()):
        named |= {name: flags[name] for name in DATA if flags.get(name) is not None}
    return named


def differing(settings: list[dict[str, Any]]) -> list[str]:
    """The names of the settings that are not the same for all runs, in the order in which they occur."""
    names: dict[str, None] = {}
    for of_run in settings:
        names |= dict.fromkeys(of_run)
    return [name for name in names if len({repr(of_run.get(name)) for of_run in settings}) > 1]
