"""What a TPU needs besides Accelerate: objects of all processes, and tensors that have no memory to be written from.

Nothing of it has run on a TPU; torch_xla on a CPU has trained, saved and resumed, with one process.
"""

import importlib
import pickle
from collections.abc import Mapping
from typing import Any, TypeVar

import accelerate.utils
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType, send_to_device
from transformers import PreTrainedModel
from transformers.utils import is_torch_xla_available

Item = TypeVar("Item")


def has_tpu() -> bool:
    """Whether torch_xla is installed, and so a TPU is used."""
    return bool(is_torch_xla_available())


def gather_object(objects: list[Item]) -> list[Item]:
    """The objects of all processes, in the order of their ranks."""
    if not _among_tpus():
        return list(accelerate.utils.gather_object(objects))
    return [one for part in _exchanged(objects) for one in part]


def broadcast_object_list(objects: list[Any]) -> None:
    """Replace the objects in the list by those of the first process."""
    if _among_tpus():
        objects[:] = _exchanged(objects)[0]
    else:
        accelerate.utils.broadcast_object_list(objects)


def weights_to_save(model: PreTrainedModel) -> dict[str, torch.Tensor] | None:
    """The weights of a network on a TPU, on the CPU and without those that are tied; None for other devices."""
    if model.device.type != "xla":
        return None
    tied = model.all_tied_weights_keys or {}
    return {name: tensor.cpu() for name, tensor in model.state_dict().items() if name not in tied}


def state_to_save(optimizer: torch.optim.Optimizer) -> Mapping[str, Any]:
    """The state of an optimiser, on the CPU if it is that of a TPU."""
    state = optimizer.state_dict()
    return send_to_device(state, "cpu") if has_tpu() else state


def _among_tpus() -> bool:
    return PartialState().distributed_type == DistributedType.XLA


def _exchanged(content: Any) -> list[Any]:
    """What every process has passed."""
    payload = torch.frombuffer(bytearray(pickle.dumps(content)), dtype=torch.uint8)
    parts = importlib.import_module("torch_xla.core.xla_model").mesh_reduce("bert_training", payload, list)
    return [pickle.loads(part.numpy().tobytes()) for part in parts]  # all written by this run
