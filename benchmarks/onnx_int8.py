"""Scores on a development set and times of a fine-tuned classifier in torch, in ONNX and in ONNX with 8-bit integers.

    python benchmarks/onnx_int8.py --model runs/mrpc --task_name mrpc --data_dir MRPC

It needs pip install -e '.[train,onnx]'. Batches hold 32 rows of similar length. Seconds are CPU time, the best of three
passes. The record is written to results/onnx_int8.json.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from transformers import AutoTokenizer

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.provenance import provenance
from examples.export_onnx import main as export
from modeling_bert_repro import BertForSequenceClassification
from training.engine.batches import Features
from training.flags.fine_tuning import GlueArguments
from training.networks.initial_weights import load_network
from training.tasks.classification import glue, labelled_texts
from training.tasks.classification.scores import score
from training.tasks.classification.sources import load_data

RESULTS = Path(__file__).parent / "results" / "onnx_int8.json"


def batches(features: Features) -> list[tuple[np.ndarray, dict[str, torch.Tensor]]]:
    """For every batch the indices of its rows, and the inputs of the network without labels."""
    order = np.argsort(-features.lengths, kind="stable")
    parts = [order[i : i + 32] for i in range(0, len(order), 32)]
    names = ("input_ids", "token_type_ids", "attention_mask")
    return [(rows, {name: features.collate(rows)[name] for name in names}) for rows in parts]


def measure(
    compute: Callable[[Any], np.ndarray], work: list[tuple[np.ndarray, Any]], task: glue.Task, labels: list
) -> dict[str, float]:
    """The task's scores and the CPU seconds; `compute` takes a batch and returns its logits (B, C)."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        found = [compute(batch) for _, batch in work]
        best = min(best, time.process_time() - start)
    logits = np.concatenate(found)[np.argsort(np.concatenate([rows for rows, _ in work]))]
    return {**score(task, logits, labels), "cpu_seconds": round(best, 2)}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--model", "--task_name", "--data_dir"):
        parser.add_argument(name, required=True)
    args = parser.parse_args()
    origin = provenance("benchmarks/onnx_int8.py")
    model = load_network(BertForSequenceClassification, args.model).model.eval()
    source = {"task_name": args.task_name, "data_dir": args.data_dir}
    data = load_data(GlueArguments(output_dir="", model_name_or_path=args.model, **source), None)
    features = labelled_texts.features(data, AutoTokenizer.from_pretrained(args.model), 128)["validation"]
    work, labels = batches(features), features.columns["labels"]
    with torch.inference_mode():
        record = {"torch": measure(lambda batch: model(**batch).logits.numpy(), work, data.task, labels)}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        export(args.model, folder)
        for name in ("model", "model_int8"):
            session = onnxruntime.InferenceSession(Path(folder) / f"{name}.onnx", options)
            numpy = [(rows, {key: value.numpy() for key, value in batch.items()}) for rows, batch in work]
            record[name] = measure(lambda batch, run=session.run: run(None, batch)[0], numpy, data.task, labels)
            record[name]["bytes"] = sum(path.stat().st_size for path in Path(folder).glob(f"{name}.onnx*"))
    print(json.dumps(record, indent=1))
    RESULTS.write_text(json.dumps(origin | source | {"threads": torch.get_num_threads()} | record, indent=1) + "\n")


if __name__ == "__main__":
    main()
