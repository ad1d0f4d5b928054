"""Weights in 8 bits: onnxruntime's quantiser, on a network whose operations are joined before.

Static ranges of activations are found by onnxruntime's calibrator. Its own static format becomes products of float32
activations with unpacked weights when onnxruntime 1.32 loads it, which is half as fast; the products of integers that
the dynamic format has stay, and only the step that finds the ranges anew is replaced.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_training.tools.onnx_files import Batch, OnnxFile, quiet

# What has weights; Gather reads the embeddings, which are half of a small network.
WITH_WEIGHTS = ["MatMul", "Gemm", "Gather"]
CONTRIB = "com.microsoft"
SENSITIVITY_BATCHES = 4


def join(whole: Path, joined: Path) -> None:
    """Write a network with GELU and the bias before it as one operation, and normalisations that stay as they are."""
    import onnx
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    options = FusionOptions("bert")
    options.enable_attention = options.enable_embed_layer_norm = False
    options.enable_skip_layer_norm = options.enable_bias_skip_layer_norm = False
    with quiet():
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
        for node, layer in [*_products(graph)]:
            node.name = layer
        _know_contrib(graph)
        onnx.save(graph, joined)


def _products(graph: Any) -> Iterator[tuple[Any, str]]:
    """Every product and the layer whose bias is added to it, such as "bert.encoder.layer.0.output.dense".

    torch writes biases that are equal once, as those of a new network are; then a number makes the names unique.
    """
    given: Counter[str] = Counter()
    users = defaultdict(list)
    for node in graph.graph.node:
        for name in node.input:
            users[name].append(node)
    for node in graph.graph.node:
        if node.op_type not in ("MatMul", "Gemm"):
            continue
        biases = [*node.input, *(name for user in users[node.output[0]] for name in user.input)]
        bias = next((name for name in biases if name.endswith(".bias")), None)
        name = bias.removesuffix(".bias").removeprefix("model.") if bias else "product"
        given[name] += 1
        yield node, name if given[name] == 1 else f"{name}_{given[name]}"


def names_of_products(whole: Path) -> dict[str, str]:
    """The name that the product of each layer has in a file that torch wrote."""
    import onnx

    return {layer: node.name for node, layer in _products(onnx.load(whole))}


def quantize(
    whole: Path, small: Path, calibration: Sequence[Batch] | None = None, in_float: Collection[str] = ()
) -> None:
    """Write a file with weights in 8 bits, each output channel with a scale of its own.

    Args:
        calibration: batches by which the ranges of the activations are found; None finds them anew for every batch.
        in_float: names of layers that stay in float32, see ``layers_of``.
    """
    with tempfile.TemporaryDirectory(prefix="bert-repro-export-") as place:
        joined = Path(place) / "joined.onnx"
        join(whole, joined)
        ranges = None if calibration is None else find_ranges(joined, calibration)
        quantize_joined(joined, small, ranges, in_float)


def quantize_joined(
    joined: Path, small: Path, ranges: Mapping[str, tuple[float, float]] | None, in_float: Collection[str] = ()
) -> None:
    """Write a joined network with weights in 8 bits; with ``ranges``, those of the activations are fixed."""
    import onnx
    from onnxruntime import quantization

    with quiet():
        quantization.quantize_dynamic(
            joined,
            small,
            op_types_to_quantize=WITH_WEIGHTS,
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
            nodes_to_exclude=list(in_float),
            # The products of attention, of two activations, stay as they are.
            extra_options={"MatMulConstBOnly": True, "DefaultTensorType": onnx.TensorProto.FLOAT},
        )
        if ranges is not None:
            graph = onnx.load(small)
            _fix_ranges(graph, ranges)
            onnx.save(graph, small)


def find_ranges(joined: Path, calibration: Sequence[Batch]) -> dict[str, tuple[float, float]]:
    """The smallest and the largest number of every activation that a layer multiplies."""
    from onnxruntime import quantization
    from onnxruntime.quantization.calibrate import create_calibrator

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no annotations
        def __init__(self) -> None:
            self.rest = iter(calibration)

        def get_next(self) -> Batch | None:
            return next(self.rest, None)

    with quiet(), tempfile.TemporaryDirectory(prefix="bert-repro-export-") as place:
        calibrator = create_calibrator(joined, ["MatMul", "Gemm"], augmented_model_path=f"{place}/augmented.onnx")
        calibrator.collect_data(Reader())
        found = calibrator.compute_data().data
    ends = {name: [float(np.asarray(end).min()) for end in one.range_value] for name, one in found.items()}
    return {name: (low, high) for name, (low, high) in ends.items()}


def _fix_ranges(graph: Any, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Put fixed ranges in the place of those that are found anew, and one operation in the place of each product."""
    from onnx import helper, numpy_helper

    nodes = list(graph.graph.node)
    users = defaultdict(list)
    for node in nodes:
        for name in node.input:
            users[name].append(node)
    producers = {name: node for node in nodes for name in node.output}
    replaced: dict[int, list[Any]] = {}
    for node in nodes:
        if node.op_type == "DynamicQuantizeLinear":
            quantized, scale, zero = node.output
            low, high = (min(ranges[node.input[0]][0], 0.0), max(ranges[node.input[0]][1], 0.0))
            step = np.float32((high - low) / 255 or 1.0)
            point = np.uint8(np.clip(round(-low / float(step)), 0, 255))
            for name, value in ((scale, step), (zero, point)):
                graph.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
            replaced[id(node)] = [helper.make_node("QuantizeLinear", [node.input[0], scale, zero], [quantized])]
        elif node.op_type == "MatMulInteger":
            (cast,) = users[node.output[0]]
            (product,) = users[cast.output[0]]
            scales = producers[next(name for name in product.input if name != cast.output[0])]
            of_activation = producers[node.input[0]].output[1]
            of_weight = next(name for name in scales.input if name != of_activation)
            inputs = [node.input[0], node.input[1], of_activation, of_weight, node.input[2], node.input[3]]
            whole = helper.make_node("MatMulIntegerToFloat", inputs, list(product.output), domain=CONTRIB)
            replaced |= {id(cast): [], id(scales): [], id(product): [], id(node): [whole]}
    kept = [new for node in nodes for new in replaced.get(id(node), [node])]
    del graph.graph.node[:]
    graph.graph.node.extend(kept)
    _know_contrib(graph)


def _know_contrib(graph: Any) -> None:
    """Say that the graph has operations of onnxruntime's own, whose outputs, which ONNX does not know, are float32."""
    from onnx import TensorProto, helper

    known = {one.name for one in graph.graph.value_info}
    for node in graph.graph.node:
        for name in set(node.output) - known if node.domain == CONTRIB else ():
            graph.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    if all(one.domain != CONTRIB for one in graph.opset_import):
        graph.opset_import.append(helper.make_opsetid(CONTRIB, 1))


def layers_of(joined: Path) -> list[str]:
    """The names of the layers whose products can stay in float32, from the input to the output."""
    import onnx

    graph = onnx.load(joined).graph
    weights = {one.name for one in graph.initializer}
    kinds = ("MatMul", "Gemm")
    return [node.name for node in graph.node if node.op_type in kinds and node.input[1] in weights and node.name]


def most_harmful(whole: Path, calibration: Sequence[Batch]) -> list[str]:
    """The layers in the order of how much each of them alone, in 8 bits, changes the outputs for training text."""
    with tempfile.TemporaryDirectory(prefix="bert-repro-export-") as place:
        joined, small = Path(place) / "joined.onnx", Path(place) / "small.onnx"
        join(whole, joined)
        ranges, layers, batches = find_ranges(joined, calibration), layers_of(joined), calibration[:SENSITIVITY_BATCHES]
        exact = OnnxFile(joined)
        expected = [exact(batch) for batch in batches]
        harm = {}
        for layer in layers:
            quantize_joined(joined, small, ranges, [other for other in layers if other != layer])
            file = OnnxFile(small)
            differences = (
                float(np.square(found - outputs[name]).mean())
                for batch, outputs in zip(batches, expected, strict=True)
                for name, found in file(batch).items()
            )
            harm[layer] = sum(differences)
    return sorted(harm, key=lambda name: -harm[name])
