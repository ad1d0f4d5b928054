"""ONNX Runtime computes every class of ours, in floats and in 8-bit integers."""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.bert_pairs import CLASSES, make_inputs, ours
from tests.helpers.ecosystem import needed

onnx = needed("onnx")
onnxruntime = needed("onnxruntime")
quantization = needed("onnxruntime.quantization")
needed("onnxscript")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # torch's exporter warns of its own code.
ROWS = 64  # whose best scores are compared


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Callable[[str], tuple[torch.nn.Module, Path]]:
    """A function that exports a class for any batch size and length, once, from two rows with padding."""

    @functools.cache
    def export(name: str) -> tuple[torch.nn.Module, Path]:
        model, path = ours(name, "sdpa").float(), tmp_path_factory.mktemp("onnx") / "model.onnx"
        example = make_inputs(name, batch=2)
        example["attention_mask"][0, ..., 5:] = 0
        sizes = {0: torch.export.Dim("batch"), example["input_ids"].dim() - 1: torch.export.Dim("length", max=12)}
        options = {"kwargs": example, "dynamic_shapes": dict.fromkeys(example, sizes)}
        torch.onnx.export(model, (), path, dynamo=True, verbose=False, **options)
        return model, path

    return export


def other_inputs(name: str) -> list[dict[str, torch.Tensor]]:
    """Batches of other sizes and lengths than at the export, the last one without padding."""
    short, long = make_inputs(name, length=3, batch=1), make_inputs(name, length=12, batch=ROWS, seed=5)
    long["attention_mask"][: ROWS // 2, ..., 7:] = 0
    return [short, long, make_inputs(name, length=6, batch=3, seed=6)]


def compute(path: Path, inputs: dict[str, torch.Tensor]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {name: values.numpy() for name, values in inputs.items()})


@pytest.mark.tried("onnxruntime", "every class of ours exported in float32, at other batch sizes and lengths")
@pytest.mark.parametrize("name", CLASSES)
def test_floats_give_the_same_numbers(name, exported, record_property):
    model, path = exported(name)
    for inputs in other_inputs(name):
        with torch.no_grad():
            expected = model(**inputs).to_tuple()
        found = compute(path, inputs)
        assert [array.shape for array in found] == [tuple(tensor.shape) for tensor in expected]
        for array, tensor in zip(found, expected):
            record_property("largest difference", difference := float(np.abs(array - tensor.numpy()).max()))
            assert difference < 1e-4


@pytest.mark.tried("onnxruntime", "every head of ours with 8-bit integers: how often the best score is torch's")
@pytest.mark.parametrize("name", CLASSES[1:])
def test_integers_choose_nearly_the_same(name, exported, tmp_path, record_property):
    model, path = exported(name)
    graph = onnx.load(path)
    del graph.graph.value_info[:]  # the shapes that torch writes there contradict those that onnxruntime infers
    quantization.quantize_dynamic(graph, tmp_path / "small.onnx")
    inputs = other_inputs(name)[1]
    with torch.no_grad():
        expected = model(**inputs).to_tuple()
    for array, tensor in zip(compute(tmp_path / "small.onnx", inputs), expected):
        assert np.abs(array - tensor.numpy()).max() > 0
        share = float((array.argmax(-1) == tensor.numpy().argmax(-1)).mean())
        record_property("smallest share of equal choices", share)
        assert share > 0.8
    whole = sum(part.stat().st_size for part in path.parent.glob("model.onnx*"))
    assert (tmp_path / "small.onnx").stat().st_size < whole
