"""OpenVINO's files of a network: converted from ONNX, made smaller by nncf, and run.

openvino and nncf (the extra ``openvino``) are imported by those functions alone that need them.
"""

import importlib.metadata
import importlib.util
from collections.abc import Sequence
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


def quantize_openvino(whole: Path, small: Path, calibration: Sequence[Batch]) -> None:
    """Write a file whose products have weights and activations in 8 bits, by nncf's post-training quantisation.

    Args:
        calibration: batches by which the ranges of the activations are found, row by row.
    """
    import nncf
    import openvino

    rows: list[Batch] = []
    for batch in calibration:
        for row, length in enumerate(real_lengths(batch["attention_mask"])):
            rows.append({name: batch[name][row : row + 1, ..., :length] for name in INPUTS})
    with quiet():
        smaller = nncf.quantize(
            openvino.Core().read_model(whole),
            nncf.Dataset(rows),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(rows),
        )
        openvino.save_model(smaller, small, compress_to_fp16=False)


class OpenVinoFile:
    """A file that is ready to compute, on the CPU, in float32 where it is not quantised, as many threads as torch."""

    def __init__(self, path: Path):
        import openvino

        # Without the second one, OpenVINO computes in bfloat16 where the processor has it.
        settings: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": "f32",
        }
        compiled = openvino.Core().compile_model(path, "CPU", settings)
        self.request = compiled.create_infer_request()
        self.outputs = [one.get_any_name() for one in compiled.outputs]

    def __call__(self, batch: Batch) -> Batch:
        """The outputs by name; rows of similar length are computed together, see ``in_parts``."""
        return in_parts(self._whole, batch)

    def _whole(self, batch: Batch) -> Batch:
        found = self.request.infer({name: batch[name] for name in INPUTS})
        return {name: found[number].copy() for number, name in enumerate(self.outputs)}
