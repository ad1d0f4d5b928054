"""Evaluate on 2 processes when the number of batches is odd.

tests/engine/test_dealt_evaluation.py starts this program:

    torchrun --nproc_per_node 2 tests/programs/dealt_evaluation.py FOLDER CASE

It writes FOLDER/result.json, which holds the results of the evaluation CASE for 1 batch and for 3.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
from accelerate import Accelerator
from transformers import BertConfig

import modeling_bert_repro
from tests.programs.sharded_training import Source, prepared
from training.engine.batches import Features
from training.engine.predict import predict
from training.engine.run import Run
from training.flags.shared import SharedArguments
from training.networks.control import control_of
from training.pretraining.evaluation import evaluate

BATCH = 4
COUNTS = {"one": 3, "three": 10}  # the numbers of instances that make one batch and three


def classified(run: Run) -> list[dict]:
    """What the prediction of fine-tuning gives for transformers' network."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=37)
    model = run.accelerator.prepare(control_of(modeling_bert_repro.BertForSequenceClassification(config)))
    found = []
    for count in COUNTS.values():
        rng = np.random.default_rng(count)
        rows = [rng.integers(5, 99, length).tolist() for length in rng.integers(3, 16, count)]
        columns = {"input_ids": rows, "token_type_ids": [[0] * len(row) for row in rows], "labels": [0, 1] * 20}
        columns["labels"] = columns["labels"][:count]
        outputs = predict(run, model, Features(columns, 0), BATCH)
        found.append({"loss": outputs["loss"], "logits": outputs["logits"].tolist()})
    return found


def pretrained(run: Run, sharded: bool) -> list[dict]:
    """What the evaluation of pre-training gives for transformers' network, or for ours when FSDP2 shards it."""
    model = prepared("adamw", shard=sharded and run.world_size > 1).model
    if not sharded:
        model = run.accelerator.prepare(control_of(model))
    found = []
    for count in COUNTS.values():
        run.args.max_eval_instances = count
        held_out = SimpleNamespace(epoch_size=lambda epoch: 100, batch=Source().batch)
        found.append(evaluate(run, model, held_out))
    return found


CASES = {
    "predict": classified,
    "evaluate": lambda run: pretrained(run, sharded=False),
    "sharded": lambda run: pretrained(run, sharded=True),
}


def main(folder: str, case: str) -> None:
    accelerator = Accelerator(cpu=True)
    run = Run(SharedArguments(output_dir=folder, per_device_eval_batch_size=BATCH), accelerator)
    found = CASES[case](run)
    if run.is_main:
        (run.output_dir / "result.json").write_text(json.dumps(found))
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
