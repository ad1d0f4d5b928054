"""Weights in 8 bits: onnxruntime's dynamic quantiser, on a network whose operations are joined before."""

import tempfile
from pathlib import Path

from bert_deploy.onnx_files import quiet

# What has weights; Gather reads the embeddings, which are half of a small network.
WITH_WEIGHTS = ["MatMul", "Gemm", "Gather"]
CONTRIB = "com.microsoft"


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
            # The products of attention, of two activations, stay as they are.
            extra_options={"MatMulConstBOnly": True, "DefaultTensorType": onnx.TensorProto.FLOAT},
        )


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
