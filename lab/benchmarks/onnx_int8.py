"""Score and time a fine-tuned classifier in torch, in ONNX and in ONNX with 8-bit integers, on a development set.

    python lab/benchmarks/onnx_int8.py --model runs/mrpc --task_name mrpc --data_dir MRPC

This needs pip install -e '.[train,onnx]'. Batches hold 32 rows of similar length. Seconds are CPU time, the best of
three passes. The record is written to results/onnx_int8.json.
"""

import argparse
import functools
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

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.engine.batches import Features
from bert_training.flags.fine_tuning import GlueArguments
from bert_training.networks.initial_weights import load_network
from bert_training.tasks.classification import glue, labelled_texts
from bert_training.tasks.classification.scores import score
from bert_training.tasks.classification.sources import load_data
from examples.export_onnx import main as export
from lab.benchmarks.provenance import provenance
from modeling_bert_repro import BertForSequenceClassification

BATCH_SIZE = 32
PASSES = 3  # of which the fastest counts
RESULTS = Path(__file__).parents[1] / "records" / "onnx_int8.json"


def batches(features: Features) -> list[tuple[np.ndarray, dict[str, torch.Tensor]]]:
    """For every batch the numbers of its rows, and the inputs of the network without labels, (B, L) each."""
    order = np.argsort(-features.lengths, kind="stable")
    pairs = []
    for start in range(0, len(order), BATCH_SIZE):
        rows = order[start : start + BATCH_SIZE]
        columns = features.collate(rows)
        pairs.append((rows, {name: columns[name] for name in ("input_ids", "token_type_ids", "attention_mask")}))
    return pairs


def measure(
    compute: Callable[[Any], np.ndarray], work: list[tuple[np.ndarray, Any]], task: glue.Task, labels: list
) -> dict[str, float]:
    """The task's scores and the CPU seconds of the fastest pass.

    Args:
        compute: takes the inputs of a batch and returns its logits (B, C).
        work: for every batch the numbers of its rows and its inputs.
        labels: of all rows, by their numbers.
    """
    best = float("inf")
    for _ in range(PASSES):
        start = time.process_time()
        outputs = [compute(batch) for _, batch in work]
        best = min(best, time.process_time() - start)
    row_numbers = np.concatenate([rows for rows, _ in work])
    logits = np.concatenate(outputs)[np.argsort(row_numbers)]
    return {**score(task, logits, labels), "cpu_seconds": round(best, 2)}


def first_output(session: onnxruntime.InferenceSession, batch: dict[str, np.ndarray]) -> np.ndarray:
    """The logits (B, C) of an exported classifier."""
    return session.run(None, batch)[0]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="an output folder of run_glue.py")
    parser.add_argument("--task_name", required=True, help="the task that it was fine-tuned on")
    parser.add_argument("--data_dir", required=True, help="the folder of the task's official files")
    args = parser.parse_args()
    origin = provenance("lab/benchmarks/onnx_int8.py")
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
        arrays = [(rows, {name: tensor.numpy() for name, tensor in batch.items()}) for rows, batch in work]
        for name in ("model", "model_int8"):
            session = onnxruntime.InferenceSession(Path(folder) / f"{name}.onnx", options)
            record[name] = measure(functools.partial(first_output, session), arrays, data.task, labels)
            record[name]["bytes"] = sum(path.stat().st_size for path in Path(folder).glob(f"{name}.onnx*"))
    print(json.dumps(record, indent=1))
    RESULTS.write_text(json.dumps(origin | source | {"threads": torch.get_num_threads()} | record, indent=1) + "\n")


if __name__ == "__main__":
    main()
