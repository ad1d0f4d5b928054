"""The network of an exported folder: what ``bert-repro export`` wrote, computed by onnxruntime.

It looks like a network of transformers to those who call it in this package. Of the files that a folder may have, the
one with 8 bits is taken, because it was asked for; ``FILES`` has the order. What is computed is what the file holds:
a file whose activations are quantised anew for every batch gives a text other digits beside other texts.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import PretrainedConfig
from transformers.utils import ModelOutput

from bert_deploy.export_record import SMALL, WHOLE
from bert_deploy.onnx_files import INPUTS
from tokenization.errors import UserError

TORCH, ONNX = BACKENDS = ("torch", "onnx")
FILES = (SMALL, WHOLE, "model.onnx")  # in the order in which they are taken
Compute = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


class ExportedNetwork:
    """A file that computes, with a config, and called as a network of transformers is.

    Attributes:
        file: its name in the folder.
    """

    def __init__(self, config: PretrainedConfig, file: str, compute: Compute) -> None:
        self.config, self.file, self._compute = config, file, compute

    def __call__(self, **batch: torch.Tensor) -> ModelOutput:
        """The outputs of the file for a batch, by name."""
        found = self._compute({name: batch[name].numpy() for name in INPUTS})
        return ModelOutput({name: torch.from_numpy(value) for name, value in found.items()})


def load_exported(folder: Path, config: PretrainedConfig) -> ExportedNetwork:
    """The network of an exported folder. Raises ValueError if it has no such file."""
    file = next((name for name in FILES if (folder / name).is_file()), None)
    if file is None:
        raise UserError(
            f"{folder}: --backend onnx expected one of {', '.join(FILES)}; found none; bert-repro export writes it"
        )
    return ExportedNetwork(config, file, _onnx(folder / file))


def _onnx(path: Path) -> Compute:
    from bert_deploy.onnx_files import OnnxFile

    return OnnxFile(path)
