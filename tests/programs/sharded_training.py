"""Train a network that torch's ``fully_shard`` (FSDP2) shards over 2 processes.

tests/engine/test_sharding.py starts this program:

    torchrun --nproc_per_node 2 tests/programs/sharded_training.py FOLDER OPTIMIZER

It saves FOLDER/whole/checkpoint-2, goes on to step 4 and saves the model in FOLDER/whole. Then it resumes from that
checkpoint and does the same in FOLDER/resumed.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from accelerate import Accelerator
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import LambdaLR
from transformers import BertConfig

from modeling_bert_repro import BertForPreTraining
from training.engine.batches import step_batches
from training.engine.checkpoint import UNKNOWN, TrainingState, resume, save_checkpoint, save_model_folder
from training.engine.loop import training_steps
from training.engine.optimizer import create_optimizer
from training.engine.run import Run
from training.flags.shared import SharedArguments

TOTAL = 4


class Source:
    """Random instances whose numbers of labels differ a lot."""

    def batch(self, start, stop):
        draws = [torch.Generator().manual_seed(position) for position in range(start, stop)]
        ids = torch.stack([torch.randint(5, 99, (16,), generator=draw) for draw in draws])
        chosen = torch.stack(
            [torch.rand(16, generator=draw) < 0.1 + 0.2 * (position % 4) for position, draw in enumerate(draws, start)]
        )
        chosen[:, 3] = True
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": torch.where(chosen, ids, -100),
            "next_sentence_label": ids[:, 1] % 2,
        }


def prepared(optimizer_name: str, shard: bool):
    """Model, optimiser and schedule. The random weights are the same for any number of processes."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=37,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForPreTraining(config)
    if shard:
        mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        for layer in model.bert.encoder.layer:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = create_optimizer(model, 1e-3, 0.01, optimizer_name)
    return TrainingState(model, optimizer, LambdaLR(optimizer, lambda step: 1.0), TOTAL, UNKNOWN)


def train(run: Run, optimizer_name: str, shard: bool) -> None:
    state = prepared(optimizer_name, shard)
    done = resume(run, state)
    batches = step_batches(Source(), run, done, TOTAL)
    for step in training_steps(run, state, batches, done, max_grad_norm=1.0):
        run.log(event="train", step=step.index, loss=step.loss, grad_norm=step.grad_norm)
        if step.index == 2:
            save_checkpoint(run, 2, state)
    save_model_folder(run, state.model)


def main(folder: str, optimizer_name: str) -> None:
    accelerator = Accelerator(cpu=True)
    sizes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "seed": 0}
    for name, resumed in (("whole", None), ("resumed", f"{folder}/whole/checkpoint-2")):
        run = Run(SharedArguments(output_dir=f"{folder}/{name}", resume_from_checkpoint=resumed, **sizes), accelerator)
        run.output_dir.mkdir(parents=True, exist_ok=True)
        train(run, optimizer_name, shard=True)
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    # All results are written. An ordinary exit aborts about once in 20 times ("terminate called without an active
    # exception"), because FSDP2 on gloo leaves threads behind (torch 2.13).
    os._exit(0)
