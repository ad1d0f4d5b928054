"""ONNX files of a network: written by torch, and run by onnxruntime.

onnx, onnxscript and onnxruntime (the extra ``export``) are imported by those functions alone that need them.

B: batch, C: choices, L: length.
"""

import contextlib
import functools
import importlib.metadata
import importlib.util
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from tokenization.errors import UserError

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# The first opset of torch's exporter, and the usual one: it has LayerNormalization, and every reader of today knows it.
OPSET = 18
PER_TOKEN = ("last_hidden_state", "start_logits", "end_logits")
PART, PART_ALONE = 8, 4  # rows that all threads compute together, and those of one thread of several
Batch = dict[str, np.ndarray]
Compute = Callable[[Batch], Batch]


def needed_packages(of_format: str) -> dict[str, str]:
    """The versions of the packages that a format needs. Raises ValueError if one is not installed."""
    names = (*PACKAGES, *(["openvino"] if of_format == "openvino" else []))
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        raise UserError(f"the export needs {', '.join(missing)}, not installed here; pip install {' '.join(missing)}")
    return {name: importlib.metadata.version(name) for name in names}


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
    """A file that is ready to compute, on the CPU, with as many threads as torch has. Several threads may call it.

    Args:
        side_by_side: each thread computes a part of a large batch, for which the file is opened a second time;
            otherwise all threads compute one part after another.
    """

    def __init__(self, path: Path, side_by_side: bool = True):
        self._threads = torch.get_num_threads()
        self.session = _session(path, self._threads)
        self._alone = _session(path, 1) if side_by_side and self._threads > 1 else None
        self.outputs = [one.name for one in self.session.get_outputs()]

    def __call__(self, batch: Batch) -> Batch:
        """The outputs by name; rows of similar length are computed together, see ``in_parts``."""
        size = PART if self._threads == 1 else PART_ALONE
        alone = functools.partial(self._run, self._alone) if self._alone else None
        return in_parts(functools.partial(self._run, self.session), batch, size, alone, self._threads)

    def _run(self, session: Any, batch: Batch) -> Batch:
        return dict(zip(self.outputs, session.run(None, {name: batch[name] for name in INPUTS})))


def _session(path: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def real_lengths(mask: np.ndarray) -> np.ndarray:
    """The place behind the last real token of every row, of the longest choice, (B,), from a mask (B, L), (B, C, L)."""
    rows = mask.reshape(len(mask), -1, mask.shape[-1]).max(1)
    return mask.shape[-1] - rows[:, ::-1].argmax(1)


def in_parts(
    compute: Compute, batch: Batch, size: int = PART, side_by_side: Compute | None = None, threads: int = 1
) -> Batch:
    """The outputs of a batch that is computed ``size`` rows at a time, rows of similar length together.

    Little of the work is then for padding. In the outputs of tokens, padding is 0.

    Args:
        compute: computes a batch that is a single part.
        side_by_side: computes a part of several, in one thread of ``threads``. None: ``compute`` does, one by one.
    """
    mask = batch["attention_mask"]
    if len(mask) <= size:
        return compute(batch)
    width = mask.shape[-1]
    lengths = real_lengths(mask)
    order = np.argsort(-lengths, kind="stable")
    parts = [order[begin : begin + size] for begin in range(0, len(order), size)]

    def of_rows(rows: np.ndarray) -> Batch:
        longest = int(lengths[rows].max())
        part = {key: np.ascontiguousarray(batch[key][rows][..., :longest]) for key in INPUTS}
        return (side_by_side or compute)(part)

    outputs: Batch = {}
    with contextlib.ExitStack() as stack:
        each: Callable[..., Iterator[Batch]] = map
        if side_by_side:
            each = stack.enter_context(ThreadPoolExecutor(threads)).map
        for rows, found in zip(parts, each(of_rows, parts), strict=True):
            for name, values in found.items():
                of_tokens = name in PER_TOKEN or values.ndim == 3
                shape = (len(mask), width, *values.shape[2:]) if of_tokens else (len(mask), *values.shape[1:])
                whole = outputs.setdefault(name, np.zeros(shape, dtype=values.dtype))
                if of_tokens:
                    whole[rows, : values.shape[1]] = values
                else:
                    whole[rows] = values
    return outputs


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
