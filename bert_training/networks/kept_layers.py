"""A network of some layers of another one (``--keep_layers``), as DistilBERT begins with every second of its teacher.

Embeddings, the kept layers, pooler and head are copies, and the layers are numbered anew. The network is built anew
instead of losing layers, so that whatever depends on their number is as in any other network of this size.
"""

import copy
import re
from typing import Any

from transformers import PretrainedConfig, PreTrainedModel

from tokenization.errors import UserError

LAYER = re.compile(r"((?:.+\.)?encoder\.layer\.)(\d+)(\..+)")


def check_kept_layers(kept: tuple[int, ...] | None, config: PretrainedConfig) -> None:
    """Raise ValueError if --keep_layers names a layer that the network of ``config`` lacks."""
    layers = config.num_hidden_layers
    if kept is not None and kept[-1] >= layers:
        raise UserError(
            f"--keep_layers {','.join(map(str, kept))}: the model has {layers} layers, 0 to {layers - 1}; there is no "
            f"layer {kept[-1]}"
        )


def with_layers(model: PreTrainedModel, kept: tuple[int, ...], **class_arguments: Any) -> PreTrainedModel:
    """A network of the same class with copies of these layers, in this order, and of everything else.

    Args:
        model: one of this project's networks.
        kept: the numbers of the layers, from 0.
        class_arguments: further arguments of the class.

    Raises:
        ValueError: as ``check_kept_layers``.
    """
    check_kept_layers(kept, model.config)
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(kept)
    student = type(model)(config, **class_arguments)
    places = {old: new for new, old in enumerate(kept)}
    weights = {}
    for name, tensor in model.state_dict().items():
        if found := LAYER.fullmatch(name):
            if int(found[2]) not in places:
                continue
            name = f"{found[1]}{places[int(found[2])]}{found[3]}"
        weights[name] = tensor
    student.load_state_dict(weights)
    return student
