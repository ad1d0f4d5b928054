"""Loss curves of this project's own runs, with which other runs are compared: `reference_curves.json`.

Each curve contains the settings of its run and, by optimiser step, the training loss (the mean of 5 neighbouring
records) and the held-out loss.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.flags.phases import phases_of

FILE = Path(__file__).with_name("reference_curves.json")
# The settings that must be equal for two curves to be comparable step by step.
COMPARED = ("config_name", "objective", "mlm_probability", "max_seq_length", "sequences_per_step")
ENTROPY_APART = 0.3  # nats; with a larger difference in unigram entropy, vocabulary or text are not comparable


def references() -> dict[str, Any]:
    """All reference curves by name."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def settings_of(facts: Mapping[str, Any], entropy: float) -> dict[str, Any]:
    """The settings of a run as a reference curve records them.

    Args:
        facts: the content of run.json.
        entropy: the unigram entropy of the training text, in nats.
    """
    flags = facts["flags"]
    phase = phases_of(flags)[0]
    names = ("objective", "mlm_probability", "max_seq_length", "learning_rate", "warmup_steps", "weight_decay", "seed")
    return {
        "config_name": flags["config_name"] or "mini",
        **{name: flags[name] for name in names},
        "sequences_per_step": phase.size * phase.accumulation * facts["processes"],
        "total_steps": facts["total_steps"],
        "unigram_entropy": entropy,
    }


def comparable(facts: Mapping[str, Any], entropy: float | None) -> tuple[str, dict[str, Any]] | None:
    """Name and content of the reference curve that is comparable with a run step by step; None if there is none.

    The arguments are those of `settings_of`.
    """
    flags = facts.get("flags", {})
    if entropy is None or flags.get("phases") or flags.get("model_name_or_path") or "objective" not in flags:
        return None
    own = settings_of(facts, entropy)
    for name, reference in references().items():
        settings = reference["settings"]
        same = all(own[key] == settings[key] for key in COMPARED)
        if same and abs(own["unigram_entropy"] - settings["unigram_entropy"]) <= ENTROPY_APART:
            return name, reference
    return None
