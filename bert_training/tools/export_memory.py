"""The largest memory of a process that opens one exported file, or torch's network, and computes one batch.

    torch FOLDER BertForSequenceClassification batch.npz
    onnx FILE - batch.npz

These are its arguments. It is a program of its own and imports nothing of this project, so that its memory is that of
its library alone.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np


def compute(kind: str, path: str, name: str, batch: dict[str, np.ndarray]) -> Any:
    """Open what ``path`` names and compute the batch."""
    if kind == "torch":
        import torch
        import transformers

        network = getattr(transformers, name).from_pretrained(path, local_files_only=True).eval()
        with torch.inference_mode():
            return network(**{key: torch.from_numpy(values) for key, values in batch.items()})
    if kind == "onnx":
        import onnxruntime

        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, batch)
    import openvino

    return openvino.Core().compile_model(path, "CPU").create_infer_request().infer(batch)


def peak() -> int:
    """Bytes of the largest memory of this process so far."""
    status = Path("/proc/self/status")
    if status.is_file():  # Linux, where getrusage begins with the memory of the process that started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    kind, path, name, file = sys.argv[1:]
    compute(kind, path, name, dict(np.load(file)))
    print(peak())
