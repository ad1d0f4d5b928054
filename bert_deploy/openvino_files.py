"""OpenVINO's files of a network: converted from ONNX, and run. openvino is imported where it is needed."""

import threading
from pathlib import Path
from typing import Any

import torch

from bert_deploy.onnx_files import INPUTS, Batch, quiet


def write_openvino(onnx_file: Path, whole: Path) -> None:
    """Write the .xml and the .bin of an ONNX file, in float32."""
    import openvino

    with quiet():
        openvino.save_model(openvino.convert_model(onnx_file), whole, compress_to_fp16=False)


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
        """The outputs by name."""
        if not hasattr(self._own, "request"):
            self._own.request = self._compiled.create_infer_request()
        found = self._own.request.infer({name: batch[name] for name in INPUTS})
        return {name: found[number].copy() for number, name in enumerate(self.outputs)}
