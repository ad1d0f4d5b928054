"""What in a config.json would silently compute something else, or execute code; transformers checks the rest."""

from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from tokenization.errors import UserError

ATTENTION = ("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3")
# What a network returns is for the script or the command to decide: other values would end in errors far from here.
PLAIN_OUTPUTS = {"output_attentions": False, "output_hidden_states": False, "return_dict": True}
# The values that these fields may have, and what another one would mean; a field that is not there has any of them.
EXPECTED = {
    "position_embedding_type": (("absolute",), "this network adds absolute positions"),
    "transformers_weights": ((), "it names a file of weights, which model.safetensors is to be called"),
    "attn_implementation": (ATTENTION, "another name may be code of the Hub, which is not executed"),
    "_attn_implementation": (ATTENTION, "another name may be code of the Hub, which is not executed"),
}


def check_claims(path: Path, fields: dict[str, Any]) -> None:
    """Check the content of the config.json at ``path``. Raises ValueError if it is not for this network."""
    if (kind := fields.get("model_type", "bert")) != "bert":
        raise UserError(f"{path}: expected a BERT checkpoint, got model_type {str(kind)[:60]!r}")
    for name, (values, why) in EXPECTED.items():
        if (value := fields.get(name)) is not None and value not in values:
            wanted = f"expected {' or '.join(values)}" if values else "leave it out"
            raise UserError(f"{path}: {name} is {str(value)[:60]!r}, {wanted}: {why}")


def set_plain_outputs(config: PretrainedConfig) -> list[str]:
    """Set the fields of a config that say what a network returns to their defaults; return the names of the changed."""
    changed = [name for name, value in PLAIN_OUTPUTS.items() if getattr(config, name, value) != value]
    for name in changed:
        setattr(config, name, PLAIN_OUTPUTS[name])
    return changed
