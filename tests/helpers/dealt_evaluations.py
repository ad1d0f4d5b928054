"""Evaluations on any number of processes, whose results must not depend on that number."""

from types import SimpleNamespace

import numpy as np
import torch

import modeling_bert_repro
from bert_training.engine.batches import Features
from bert_training.engine.predict import predict
from bert_training.engine.run import Run
from bert_training.inputs.flags.objectives import NEXT_SENTENCE
from bert_training.networks.control import control_of
from bert_training.pretraining.evaluation import evaluate
from tests.helpers.small_networks import NO_DROPOUT, small_config
from tests.helpers.tiny_training import LabelledTokens

BATCH = 4
COUNTS = {"one": 3, "three": 10}  # the numbers of instances that make one batch and three


def classified(run: Run) -> list[dict]:
    """What the prediction of fine-tuning gives for transformers' network."""
    torch.manual_seed(0)
    model = modeling_bert_repro.BertForSequenceClassification(small_config(num_hidden_layers=1))
    model = run.accelerator.prepare(control_of(model))
    found = []
    for count in COUNTS.values():
        rng = np.random.default_rng(count)
        rows = [rng.integers(5, 99, length).tolist() for length in rng.integers(3, 16, count)]
        columns = {"input_ids": rows, "token_type_ids": [[0] * len(row) for row in rows], "labels": [0, 1] * 20}
        columns["labels"] = columns["labels"][:count]
        outputs = predict(run, model, Features(columns, 0), BATCH)
        found.append({"loss": outputs["loss"], "logits": outputs["logits"].tolist()})
    return found


def pretrained(run: Run) -> list[dict]:
    """What the evaluation of pre-training gives for transformers' network."""
    torch.manual_seed(0)
    model = run.accelerator.prepare(control_of(modeling_bert_repro.BertForPreTraining(small_config(**NO_DROPOUT))))
    found = []
    for count in COUNTS.values():
        run.args.max_eval_instances = count
        settings = SimpleNamespace(pairs=NEXT_SENTENCE)
        held_out = SimpleNamespace(epoch_size=lambda epoch: 100, batch=LabelledTokens().batch, settings=settings)
        found.append(evaluate(run, model, held_out))
    return found


CASES = {
    "predict": classified,
    "evaluate": pretrained,
}
