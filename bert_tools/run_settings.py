"""The settings on which the result of a run depends besides its seed. Runs with equal settings may be averaged.

Runs are compared by their ``run.json`` and not by the names of their folders. If an older run.json lacks a flag, the
present default is assumed.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from bert_training.inputs.flags.natures import APART, FREE
from bert_training.inputs.flags.scripts import SCRIPTS, flags_with

DATA = ("task_name", "data_dir", "dataset_name", "dataset_config_name", "train_file", "validation_file")
CHOICE = ("eval_steps", "metric_for_best_model")  # flags that count only if the best evaluation is chosen
# The name of a setting -> its value in words; "" if the value needs no mention. Other settings have their name.
WORDS: dict[str, Callable[[Any], str]] = {
    "num_train_epochs": lambda value: f"{value:g} epoch{'s' * (value != 1)}" if value else "",
    "max_steps": lambda value: f"{value:,} steps" if value > 0 else "",  # otherwise the epochs are named
    "processes": lambda value: f"{value} process{'es' * (value != 1)}",
    "initial_weights": lambda value: f"weights {value}" if value else "weights without a recorded hash",
    "model_name_or_path": lambda value: f"folder {value}" if value else "",
    "config_name": lambda value: f"size {value}" if value else "",
}


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
    return settings | _data(facts, flags)


def initial_settings(facts: dict) -> dict[str, Any]:
    """The weights and the tokenizer that a run started from, by name."""
    flags, weights = _flags(facts), facts.get("initial_weights")
    if weights:
        return {"initial_weights": ", ".join(sha256[:8] for sha256 in weights.values())}
    names = ("model_name_or_path", "config_name", "tokenizer_name")
    return {"initial_weights": None} | {name: flags.get(name) for name in names}


def with_differences(names: list[str], settings: list[dict[str, Any]]) -> list[str]:
    """The names of runs; to equal names, the settings in which their runs differ are added in words.

    Args:
        names: the name of each run.
        settings: the settings of each run, in the same order.
    """
    distinct = list(names)
    for name in dict.fromkeys(names):
        numbers = [number for number, other in enumerate(names) if other == name]
        differing = _differing([settings[number] for number in numbers])
        for number in numbers:
            words = [setting_text(key, settings[number].get(key)) for key in differing]
            distinct[number] = ", ".join([name, *(word for word in words if word)])
    return distinct


def setting_text(name: str, value: Any) -> str:
    """A setting in words: "learning rate 3e-5", "3 epochs", "group by length"."""
    if name in WORDS:
        return WORDS[name](value)
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"no {words}" if value is None else f"{words} {short(value)}"


def short(value: Any) -> str:
    """The value as text; floats are written as 3e-5 instead of 3e-05."""
    return f"{value:g}".replace("e-0", "e-").replace("e+0", "e+") if isinstance(value, float) else str(value)


def _flags(facts: dict) -> dict[str, Any]:
    """The flags of a run, with the present defaults of those that its run.json lacks."""
    fields = dataclasses.fields(SCRIPTS[facts["script"]].arguments)
    defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    return defaults | facts["flags"]


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


def _differing(settings: list[dict[str, Any]]) -> list[str]:
    """The names of the settings that are not the same for all runs, in the order in which they occur."""
    names: dict[str, None] = {}
    for of_run in settings:
        names |= dict.fromkeys(of_run)
    return [name for name in names if len({repr(of_run.get(name)) for of_run in settings}) > 1]
