"""Export a fine-tuned classifier to ONNX, in floats and in 8-bit integers, and compare their outputs with torch's.

python examples/export_onnx.py DIR OUT      # DIR: an output folder of run_glue.py; needs pip install -e '.[deploy]'
"""

import sys
from pathlib import Path

import onnx
import torch
from onnxruntime import InferenceSession
from onnxruntime.quantization import quantize_dynamic
from transformers import AutoConfig, AutoTokenizer

from modeling_bert_repro import BertForSequenceClassification

TEXTS = ["One short sentence.", "A longer one, so that the first is padded.", "This one was not there at the export."]


def main(folder: str, target: str) -> None:
    """Write model.onnx and model_int8.onnx to ``target``, and print the largest difference between the logits."""
    if (found := AutoConfig.from_pretrained(folder).architectures) != ["BertForSequenceClassification"]:
        sys.exit(f"{folder}: expected a BertForSequenceClassification, which run_glue.py saves, got {found}")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), BertForSequenceClassification.from_pretrained(folder)
    seen, new = (dict(tokenizer(texts, padding=True, return_tensors="pt")) for texts in (TEXTS[:2], TEXTS))
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=model.config.max_position_embeddings)}
    options = {"kwargs": seen, "dynamic_shapes": dict.fromkeys(seen, sizes), "output_names": ["logits"]}
    whole, small = Path(target) / "model.onnx", Path(target) / "model_int8.onnx"
    whole.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(model.eval(), (), whole, dynamo=True, **options)
    graph = onnx.load(whole)
    del graph.graph.value_info[:]  # the shapes that torch writes there contradict those that onnxruntime infers
    quantize_dynamic(graph, small)
    for path in (whole, small):
        (logits,) = InferenceSession(path).run(None, {name: tensor.numpy() for name, tensor in new.items()})
        print(f"{path}: largest difference to torch {abs(logits - model(**new).logits.detach().numpy()).max():.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
