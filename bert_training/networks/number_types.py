"""The type of the numbers with which a finished model computes: float32, or bfloat16 if that is asked for.

Which one is faster can be measured here, and whether the score stays the same cannot: who asks a folder or serves it
has no validation data. Therefore nothing is chosen automatically.
"""

import platform
from typing import Any, cast

import torch
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

FLOAT32, BFLOAT16 = "float32", "bfloat16"
DTYPES = (FLOAT32, BFLOAT16)


def compute_in_bfloat16(model: PreTrainedModel) -> None:
    """Round the weights to bfloat16, and give outputs in float32: what reads them computes with NumPy."""
    cast(torch.nn.Module, model).to(torch.bfloat16)
    model.register_forward_hook(_in_float32)


def warning_of(dtype: str) -> list[str]:
    """A line for the user, if this machine is slower with such numbers."""
    if dtype != BFLOAT16 or has_bfloat16():
        return []
    return ["warning: --dtype bfloat16: this processor has no bfloat16 in hardware; float32 is faster here"]


def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 in hardware; others are slower with it than with float32.

    torch knows that of x86 alone. Of all others, True: nothing is claimed.
    """
    on_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return not on_x86 or bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _in_float32(_: torch.nn.Module, __: Any, outputs: ModelOutput) -> ModelOutput:
    return type(outputs)(**{name: _whole(value) for name, value in outputs.items()})


def _whole(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_whole(one) for one in value)
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
