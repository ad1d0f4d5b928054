"""Python objects from one process to the others, on every device.

Accelerate gathers no objects on a TPU, and broadcasts only those that ``torch.load`` takes for weights there. Both
functions do what Accelerate's functions of the same names do elsewhere, and on a TPU the same with their bytes.
"""

import importlib
import pickle
from typing import Any, TypeVar

import accelerate.utils
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType

Item = TypeVar("Item")


def gather_object(objects: list[Item]) -> list[Item]:
    """The objects of all processes, in the order of their ranks."""
    if _on_tpu():
        return [one for part in _exchanged(objects) for one in part]
    gathered: list[Item] = accelerate.utils.gather_object(objects)
    return gathered


def broadcast_object_list(objects: list[Any]) -> None:
    """Replace the objects in the list by those of the first process."""
    if _on_tpu():
        objects[:] = _exchanged(objects)[0]
    else:
        accelerate.utils.broadcast_object_list(objects)


def _on_tpu() -> bool:
    return PartialState().distributed_type == DistributedType.XLA


def _exchanged(content: Any) -> list[Any]:
    """What every process has passed."""
    payload = torch.frombuffer(bytearray(pickle.dumps(content)), dtype=torch.uint8)
    parts = importlib.import_module("torch_xla.core.xla_model").mesh_reduce("bert_training", payload, list)
    return [pickle.loads(part.numpy().tobytes()) for part in parts]  # all written by this run
