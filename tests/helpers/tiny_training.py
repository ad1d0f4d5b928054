"""A training of a few steps without a script: instances that are a function of their position, and a small network."""

import torch
from torch.optim.lr_scheduler import LambdaLR

from bert_training.engine.checkpoint import UNKNOWN, TrainingState
from bert_training.engine.optimizer import create_optimizer
from modeling_bert_repro import BertForPreTraining
from tests.helpers.small_networks import NO_DROPOUT, small_config

LENGTH = 24


class LabelledTokens:
    """The instance at position n has 1 + n % 12 labelled tokens, so that a mean of means would be wrong."""

    def batch(self, start, stop):
        rows = []
        for position in range(start, stop):
            draw = torch.Generator().manual_seed(position)
            ids = torch.randint(5, 99, (LENGTH,), generator=draw)
            labels = torch.full((LENGTH,), -100)
            chosen = torch.randperm(LENGTH, generator=draw)[: 1 + position % 12]
            labels[chosen] = ids[chosen]
            rows.append((ids, labels, torch.randint(0, 2, (), generator=draw)))
        ids, labels, next_sentence = map(torch.stack, zip(*rows))
        return {
            "input_ids": ids,
            "token_type_ids": torch.zeros_like(ids),
            "attention_mask": torch.ones_like(ids),
            "labels": labels,
            "next_sentence_label": next_sentence,
        }


def new_state(config, dropout=0.0, factor=lambda step: 1.0) -> TrainingState:
    """A network with the same random weights in every call, SGD with the learning rate 0.1, and a schedule."""
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
    torch.manual_seed(0)
    model = BertForPreTraining(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainingState(model, optimizer, LambdaLR(optimizer, factor), total_steps=10, origin=UNKNOWN)


def state_with_optimizer() -> TrainingState:
    """The same network with our optimiser."""
    torch.manual_seed(0)
    model = BertForPreTraining(small_config(**NO_DROPOUT))
    optimizer = create_optimizer(model, 1e-3, 0.01)
    return TrainingState(model, optimizer, LambdaLR(optimizer, lambda step: 1.0), 4, UNKNOWN)
