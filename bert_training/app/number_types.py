"""The type of the numbers with which a finished model computes: float32, or bfloat16 if that is asked for.

Which one is faster can be measured here, and whether the score stays the same cannot: a folder that is served has no
validation data. Therefore nothing is chosen automatically.
"""

from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from bert_training.app.exported import TORCH
from bert_training.app.folder import OpenedModel, open_folder
from tokenization.errors import UserError

FLOAT32, BFLOAT16 = "float32", "bfloat16"
DTYPES = (FLOAT32, BFLOAT16)


def opened_for(folder: str, backend: str = TORCH, dtype: str = FLOAT32) -> OpenedModel:
    """An opened folder whose network computes with this type; outputs are float32 in any case.

    Raises:
        ValueError: as ``open_folder`` does, or the type of an exported file is to be changed.
    """
    if backend != TORCH and dtype != FLOAT32:
        raise UserError(f"--dtype {dtype}: the numbers of an exported file are those it was written with; leave it out")
    opened = open_folder(folder, backend)
    if dtype == BFLOAT16:
        compute_in_bfloat16(opened.model)
    return opened


def compute_in_bfloat16(model: PreTrainedModel) -> None:
    """Round the weights to bfloat16, and give outputs in float32: what reads them computes with NumPy."""
    model.to(torch.bfloat16)
    model.register_forward_hook(_in_float32)


def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 in hardware; others are slower with it than with float32."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _in_float32(_: torch.nn.Module, __: Any, outputs: ModelOutput) -> ModelOutput:
    return type(outputs)(**{name: _whole(value) for name, value in outputs.items()})


def _whole(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_whole(one) for one in value)
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
