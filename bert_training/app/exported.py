"""The network of an exported folder: what ``bert-repro export`` wrote, computed by onnxruntime or OpenVINO.

It looks like a network of transformers to those who call it in this package. Of the files that a folder may have, the
one with 8 bits is taken, because it was asked for; ``FILES`` has their order. What is computed is what the file holds:
a file whose activations are quantised anew for every batch gives a text other digits beside other texts.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PretrainedConfig
from transformers.utils import ModelOutput

from bert_training.tools.exported import OPENVINO as OPENVINO_FILES
from bert_training.tools.exported import SMALL, WHOLE
from bert_training.tools.onnx_files import INPUTS
from tokenization.errors import UserError

TORCH, ONNX, OPENVINO = "torch", "onnx", "openvino"
# Of each backend: the package, and its files in the order in which they are taken.
FILES = {
    ONNX: ("onnxruntime", (SMALL, WHOLE, "model.onnx")),
    OPENVINO: ("openvino", (*OPENVINO_FILES[::-1], "openvino_model.xml")),
}
BACKENDS = (TORCH, *FILES)
HIDDEN = "last_hidden_state"
# The outputs that a head needs; those that are not named here need logits.
NEEDED = {
    "BertModel": {HIDDEN},
    "BertForQuestionAnswering": {"start_logits", "end_logits"},
    "BertForPreTraining": {"prediction_logits", "seq_relationship_logits"},
}
Compute = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


class ExportedNetwork:
    """A file that computes, with a config, and called as a network of transformers is.

    Attributes:
        architecture: the class in the config of which it has the outputs.
        file: its name in the folder.
    """

    device = torch.device("cpu")

    def __init__(self, architecture: str, config: PretrainedConfig, file: str, compute: Compute) -> None:
        self.architecture, self.config, self.file, self._compute = architecture, config, file, compute

    def eval(self) -> "ExportedNetwork":
        """Itself: it cannot be trained."""
        return self

    def __call__(self, output_hidden_states: bool = False, **batch: torch.Tensor) -> ModelOutput:
        """The outputs of the file for a batch, by name.

        Raises:
            ValueError: hidden states are asked for, and the file does not have them.
        """
        found = self._compute({name: batch[name].numpy() for name in INPUTS})
        outputs: dict[str, Any] = {name: torch.from_numpy(value) for name, value in found.items()}
        if output_hidden_states:
            if HIDDEN not in outputs:
                raise UserError(
                    f"{self.file} gives no vectors, only {', '.join(outputs)}; bert-repro export --encoder_alone "
                    "writes a file that does"
                )
            outputs["hidden_states"] = (outputs[HIDDEN],)
        return ModelOutput(outputs)


def load_exported(folder: Path, architecture: str, config: PretrainedConfig, backend: str) -> ExportedNetwork:
    """The network of an exported folder.

    Raises:
        ValueError: the package is not installed, the folder has no such file, or the file cannot be opened or has not
            the outputs of the class that config.json names.
    """
    package, names = FILES[backend]
    if importlib.util.find_spec(package) is None:
        raise UserError(f"--backend {backend} needs the package {package}; pip install {package}")
    file = next((name for name in names if (folder / name).is_file()), None)
    if file is None:
        raise UserError(
            f"{folder}: --backend {backend} expected one of {', '.join(names)}; found none. bert-repro export makes "
            "such a folder of a finished model"
        )
    opens = {ONNX: _onnx, OPENVINO: _openvino}[backend]
    try:
        outputs, compute = opens(folder / file)
    except Exception as error:  # each package has errors of its own
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UserError(f"{folder / file}: {package} cannot open it ({said}); export the model anew") from error
    needed = NEEDED.get(architecture, {"logits"})
    if missing := needed - outputs:
        raise UserError(
            f"{folder / file}: config.json names {architecture}, for which the file lacks {', '.join(sorted(missing))} "
            f"(it has {', '.join(sorted(outputs))}); export the model anew"
        )
    return ExportedNetwork(architecture, config, file, compute)


def _onnx(path: Path) -> tuple[set[str], Compute]:
    from bert_training.tools.onnx_files import OnnxFile

    file = OnnxFile(path, side_by_side=False)  # opened once: a service does not follow what becomes of the file
    return set(file.outputs), file


def _openvino(path: Path) -> tuple[set[str], Compute]:
    from bert_training.tools.openvino_files import OpenVinoFile

    # With one thread of torch for each batch, the threads of the service call it side by side.
    file = OpenVinoFile(path, side_by_side=torch.get_num_threads() == 1)
    return set(file.outputs), file
