"""The flags of every training script, and those among them that have a nature or a meaning for all scripts."""

from bert_training.flags.fine_tuning import GlueArguments, NerArguments, SquadArguments, SwagArguments
from bert_training.flags.natures import Nature, natures
from bert_training.flags.pretraining import PretrainingArguments
from bert_training.flags.shared import SharedArguments

SCRIPTS = {
    "run_pretraining.py": PretrainingArguments,
    "run_glue.py": GlueArguments,
    "run_squad.py": SquadArguments,
    "run_ner.py": NerArguments,
    "run_swag.py": SwagArguments,
}


def flags_with(nature: Nature) -> tuple[str, ...]:
    """Names of the flags of all ``SCRIPTS`` that have at least one of the natures, in the order of --help."""
    named = [name for cls in SCRIPTS.values() for name, found in natures(cls).items() if found & nature]
    return tuple(dict.fromkeys(named))


def chooses_best(args: SharedArguments) -> bool:
    """Whether the best of a run's evaluations decides which weights are kept; only fine-tuning has the flag."""
    return bool(getattr(args, "load_best_model_at_end", False))
