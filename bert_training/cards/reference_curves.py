"""Loss curves of this project's own runs, with which other runs are compared: `reference_curves.json`.

Each curve contains the settings of its run and, by optimiser step, the training loss (the mean of 5 neighbouring
records) and the held-out loss. Runs are compared up to the end of the first phase, which is the whole run without
``--phases``.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_training.inputs.flags.phases import phases_of, with_steps

FILE = Path(__file__).with_name("reference_curves.json")
# The settings that must be equal for two curves to be comparable step by step.
COMPARED = ("config_name", "initial_weights", "objective", "mlm_probability", "max_seq_length", "sequences_per_step")
ENTROPY_APART = 0.3  # nats; with a larger difference in unigram entropy, vocabulary or text are not comparable


def references() -> dict[str, Any]:
    """All reference curves by name."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def settings_of(facts: Mapping[str, Any], entropy: float) -> dict[str, Any]:
    """The settings of a run as a reference curve records them.

    ``max_seq_length``, ``sequences_per_step`` and ``comparable_steps`` are those of the first phase.

    Args:
        facts: the content of run.json.
        entropy: the unigram entropy of the training text, in nats.
    """
    flags = facts["flags"]
    phase = with_steps(phases_of(flags), facts["total_steps"])[0]
    names = ("objective", "mlm_probability", "learning_rate", "warmup_steps", "weight_decay", "seed")
    return {
        "config_name": flags["config_name"] or "mini",
        "initial_weights": flags.get("initial_weights") or "random",
        **{name: flags[name] for name in names},
        "max_seq_length": phase.length,
        "sequences_per_step": phase.size * phase.accumulation * facts["processes"],
        "comparable_steps": phase.stop,
        "total_steps": facts["total_steps"],
        "unigram_entropy": entropy,
    }


def comparable(facts: Mapping[str, Any], entropy: float | None) -> tuple[str, dict[str, list[Any]]] | None:
    """Name and training curve of the reference that is comparable with a run step by step; None if there is none.

    The curve ends where the first phase of one of the two ends. The arguments are those of `settings_of`.
    """
    flags = facts.get("flags", {})
    if entropy is None or flags.get("model_name_or_path") or "objective" not in flags:
        return None
    own = settings_of(facts, entropy)
    for name, reference in references().items():
        settings, curve = reference["settings"], reference["train"]
        same = all(own[key] == settings[key] for key in COMPARED)
        if same and abs(own["unigram_entropy"] - settings["unigram_entropy"]) <= ENTROPY_APART:
            end = min(own["comparable_steps"], settings["comparable_steps"])
            count = sum(step <= end for step in curve["steps"])
            return name, {key: values[:count] for key, values in curve.items()}
    return None
