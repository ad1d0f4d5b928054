"""ONNX files of a network: written by torch, and run by onnxruntime.

onnx, onnxscript and onnxruntime (the extra ``deploy``) are imported by those functions alone that need them.

B: batch, C: choices, L: length.
"""

import contextlib
import importlib.metadata
import importlib.util
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from tokenization.errors import UserError

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# The first opset of torch's exporter, and the usual one: it has LayerNormalization, and every reader of today knows it.
OPSET = 18
Batch = dict[str, np.ndarray]
Compute = Callable[[Batch], Batch]


def needed_packages() -> dict[str, str]:
    """The versions of the packages that the export needs. Raises ValueError if one is not installed."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise UserError(f"the export needs {', '.join(missing)}, not installed here; pip install {' '.join(missing)}")
    return {name: importlib.metadata.version(name) for name in PACKAGES}


class _Named(torch.nn.Module):
    """A network that takes INPUTS in their order and returns the named outputs alone."""

    def __init__(self, model: PreTrainedModel, outputs: Sequence[str]):
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor) -> tuple:
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return tuple(found[name] for name in self.outputs)


def write_onnx(model: PreTrainedModel, outputs: Sequence[str], example: Batch, path: Path) -> None:
    """Write a network as ONNX in float32, for every batch size, length and number of choices.

    Args:
        example: a batch (B, L) or (B, C, L), in which no two sizes are alike.
    """
    import onnx

    names = ("batch_size", "num_choices", "sequence_length")
    longest = {"max": int(model.config.max_position_embeddings)}
    shape = example["input_ids"].shape
    named = names if len(shape) == 3 else (names[0], names[2])
    sizes = {place: torch.export.Dim(name, **(longest if name == names[2] else {})) for place, name in enumerate(named)}
    kwargs = {name: torch.from_numpy(example[name]) for name in INPUTS}
    model.set_attn_implementation("eager")  # the others leave operations that onnxruntime does not join
    with quiet(), torch.inference_mode():
        torch.onnx.export(
            _Named(model.eval(), outputs),
            (),
            path,
            kwargs=kwargs,
            input_names=list(INPUTS),
            output_names=list(outputs),
            dynamic_shapes=dict.fromkeys(INPUTS, sizes),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
            external_data=False,  # one file, unless it would have more than ONNX's two gigabytes
        )
    graph = onnx.load(path)
    del graph.graph.value_info[:]  # the shapes that torch writes there contradict those that onnxruntime infers
    onnx.save(graph, path)


class OnnxFile:
    """A file that is ready to compute, on the CPU, with as many threads as torch has. Several threads may call it."""

    def __init__(self, path: Path):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # errors
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.outputs = [one.name for one in self.session.get_outputs()]

    def __call__(self, batch: Batch) -> Batch:
        """The outputs by name."""
        return dict(zip(self.outputs, self.session.run(None, {name: batch[name] for name in INPUTS})))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the remarks of the exporter and the quantiser about their own code."""
    before = logging.root.manager.disable
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
