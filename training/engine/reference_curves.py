"""Curves of our own runs to compare a run with: `reference_curves.json`, made by `python -m training doctor`.

Each holds the settings it was made with and, by optimiser step, the training loss (mean of 5 neighbouring records)
and the held-out loss.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.engine.phases import phases_of

FILE = Path(__file__).with_name("reference_curves.json")
# What must agree before two curves may be laid over one another, step by step.
COMPARED = ("config_name", "objective", "mlm_probability", "max_seq_length", "sequences_per_step")
ENTROPY_APART = 0.3  # nats: vocabularies and texts whose unigram lines differ more are other tasks


def references() -> dict[str, Any]:
    """All reference curves by name."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def settings_of(facts: Mapping[str, Any], entropy: float) -> dict[str, Any]:
    """What a reference must say of a run, from its run.json and the unigram entropy of its text."""
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
    """(name, reference) that a run may be compared with step by step; None without one."""
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
