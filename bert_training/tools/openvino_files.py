"""OpenVINO's files of a network: converted from ONNX, made smaller by nncf, and run.

openvino and nncf (the extra ``openvino``) are imported by those functions alone that need them.
"""

import importlib.metadata
import importlib.util
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from bert_training.tools.onnx_files import INPUTS, Batch, in_parts, quiet, real_lengths
from tokenization.errors import UserError

PACKAGES = ("openvino", "nncf")


def check_openvino(quantizes: bool) -> dict[str, str]:
    """The versions of the packages. Raises ValueError if one that is needed is missing."""
    needed = PACKAGES if quantizes else PACKAGES[:1]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"--format openvino needs {', '.join(missing)}, not installed here; pip install '.[train,export,openvino]'"
            f", or pip install {' '.join(missing)}"
        )
    return {name: importlib.metadata.version(name) for name in needed}


def write_openvino(onnx_file: Path, whole: Path) -> None:
    """Write the .xml and the .bin of an ONNX file, in float32."""
    import openvino

    with quiet():
        openvino.save_model(openvino.convert_model(onnx_file), whole, compress_to_fp16=False)


def quantize_openvino(whole: Path, small: Path, calibration: Sequence[Batch], in_float: Collection[str] = ()) -> None:
    """Write a file whose products have weights and activations in 8 bits, by nncf's post-training quantisation.

    Args:
        calibration: batches by which the ranges of the activations are found, row by row.
        in_float: names of products that stay in float32, as they are in the ONNX file.
    """
    import nncf
    import openvino

    rows: list[Batch] = []
    for batch in calibration:
        for row, length in enumerate(real_lengths(batch["attention_mask"])):
            rows.append({name: batch[name][row : row + 1, ..., :length] for name in INPUTS})
    network = openvino.Core().read_model(whole)
    left = {name for product in in_float for name in (product, f"{product}/WithoutBiases")}
    names = [name for name in (node.get_friendly_name() for node in network.get_ops()) if name in left]
    with quiet():
        smaller = nncf.quantize(
            network,
            nncf.Dataset(rows),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(rows),
            ignored_scope=nncf.IgnoredScope(names=names) if names else None,
        )
        openvino.save_model(smaller, small, compress_to_fp16=False)


class OpenVinoFile:
    """A file that is ready to compute, on the CPU, in float32 where it is not quantised. Several threads may call it.

    Args:
        path: the .xml.
        side_by_side: each of several threads computes on a core of its own; otherwise one call has torch's threads.
    """

    def __init__(self, path: Path, side_by_side: bool = False):
        import openvino

        # Without this, OpenVINO computes in bfloat16 where the processor has it.
        settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32"}
        core = openvino.Core()
        core.set_property({"ENABLE_MMAP": False})  # otherwise the network follows what becomes of its file
        if side_by_side:
            settings["PERFORMANCE_HINT"] = "THROUGHPUT"
        else:
            settings["INFERENCE_NUM_THREADS"] = torch.get_num_threads()
        self._compiled = core.compile_model(path, "CPU", settings)
        self._own = threading.local()  # a request computes for one thread at a time
        self.outputs = [one.get_any_name() for one in self._compiled.outputs]

    def __call__(self, batch: Batch) -> Batch:
        """The outputs by name; rows of similar length are computed together, see ``in_parts``."""
        return in_parts(self._whole, batch)

    def _whole(self, batch: Batch) -> Batch:
        if not hasattr(self._own, "request"):
            self._own.request = self._compiled.create_infer_request()
        found = self._own.request.infer({name: batch[name] for name in INPUTS})
        return {name: found[number].copy() for number, name in enumerate(self.outputs)}
