"""ONNX files of a network: written by torch, in 8 bits by onnxruntime's dynamic quantiser, and run by onnxruntime.

onnx, onnxscript and onnxruntime (the extra ``deploy``) are imported by those functions alone that need them.

B: batch, C: choices, L: length.
"""

import contextlib
import importlib.metadata
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import ModelOutput

from bert_deploy.export_record import SMALL, WHOLE
from tokenization.errors import UserError

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# The first opset of torch's exporter, and the usual one: it has LayerNormalization, and every reader of today knows it.
OPSET = 18
# What has weights; Gather reads the embeddings, which are half of a small network.
WITH_WEIGHTS = ["MatMul", "Gemm", "Gather"]
CONTRIB = "com.microsoft"
TORCH, ONNX = BACKENDS = ("torch", "onnx")
FILES = (SMALL, WHOLE, "model.onnx")  # in the order in which they are served: 8 bits first, because they were asked for
Batch = dict[str, np.ndarray]
Compute = Callable[[Batch], Batch]


def needed_packages() -> dict[str, str]:
    """The versions of the packages that the export needs. Raises UserError if one is not installed."""
    try:
        return {name: importlib.metadata.version(name) for name in PACKAGES}
    except importlib.metadata.PackageNotFoundError as error:
        given = 'run pip install "modeling-bert-repro[deploy]"'
        raise UserError(f"needs the package {error.name}, which is not installed; {given}") from None


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


def quantize(whole: Path, small: Path) -> None:
    """Write a file with weights in 8 bits, each output channel with a scale of its own."""
    import onnx
    from onnxruntime import quantization

    with quiet(), tempfile.TemporaryDirectory(prefix="bert-repro-export-") as place:
        joined = Path(place) / "joined.onnx"
        join(whole, joined)
        quantization.quantize_dynamic(
            joined,
            small,
            op_types_to_quantize=WITH_WEIGHTS,
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
            reduce_range=not has_vnni(),
            # The products of attention, of two activations, stay as they are.
            extra_options={"MatMulConstBOnly": True, "DefaultTensorType": onnx.TensorProto.FLOAT},
        )


def has_vnni() -> bool:
    """Whether this processor adds products of 8 bits in 32; others of x86 do it in 16, which 7 bits do not overflow."""
    found = torch.cpu.get_capabilities()
    return found.get("architecture") != "x86_64" or bool(found.get("avx512_vnni") or found.get("avx_vnni"))


def join(whole: Path, joined: Path) -> None:
    """Write a network with GELU and the bias before it as one operation, and normalisations that stay as they are."""
    import onnx
    from onnx import TensorProto, helper
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    options = FusionOptions("bert")
    options.enable_attention = options.enable_embed_layer_norm = False
    options.enable_skip_layer_norm = options.enable_bias_skip_layer_norm = False
    # 0 operators of onnxruntime itself: these would depend on this processor
    found = optimizer.optimize_model(
        str(whole), model_type="bert", num_heads=0, hidden_size=0, optimization_options=options, opt_level=0
    )
    graph = found.model
    producers = {name: node for node in graph.graph.node for name in node.output}
    for node in graph.graph.node:
        # onnxruntime joins Add and LayerNormalization to an operation that is several times slower on CPUs.
        before = producers.get(node.input[0]) if node.op_type == "LayerNormalization" else None
        if before is not None and before.op_type == "Add":
            before.op_type = "Sum"
        if node.domain == CONTRIB:  # its outputs, which ONNX does not know, are float32
            outputs = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output)
            graph.graph.value_info.extend(outputs)
    if all(one.domain != CONTRIB for one in graph.opset_import):
        graph.opset_import.append(helper.make_opsetid(CONTRIB, 1))
    onnx.save(graph, joined)


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


class ExportedNetwork:
    """A file that computes, with a config, and called as a network of transformers is.

    A file whose activations are quantised anew for every batch gives a text other digits beside other texts.

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
    return ExportedNetwork(config, file, OnnxFile(folder / file))


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
