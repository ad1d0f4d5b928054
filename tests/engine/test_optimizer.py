"""bert_training/engine/optimizer.py: AdamW, weight decay, and the schedules."""

import pytest
import torch
from transformers import get_scheduler

from bert_training.engine.optimizer import create_optimizer, create_schedule, parameter_groups
from modeling_bert_repro import BertForPreTraining


def test_decay_spares_biases_and_layer_norm_only(small_config):
    model = BertForPreTraining(small_config)
    names = {weight: name for name, weight in model.named_parameters()}
    decayed, exempt = parameter_groups(model, 0.01)
    assert (decayed["weight_decay"], exempt["weight_decay"]) == (0.01, 0.0)
    spared = {names[weight] for weight in exempt["params"]}
    assert {"bert.embeddings.LayerNorm.weight", "bert.pooler.dense.bias", "cls.predictions.bias"} <= spared
    assert all(name.split(".")[-1] == "bias" or "LayerNorm" in name for name in spared)
    matrices = {names[weight] for weight in decayed["params"]}
    assert all(name.endswith("weight") and "LayerNorm" not in name for name in matrices)
    assert "bert.embeddings.word_embeddings.weight" in matrices
    assert sorted(names.values()) == sorted(spared | matrices) and not spared & matrices


def test_frozen_parameters_are_left_out(small_config):
    model = BertForPreTraining(small_config)
    model.bert.embeddings.requires_grad_(False)
    held = {weight for group in parameter_groups(model, 0.01) for weight in group["params"]}
    assert not held & set(model.bert.embeddings.parameters())


def test_biases_of_an_lstm_are_spared_too():
    groups = parameter_groups(torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True), 0.01)
    assert [len(group["params"]) for group in groups] == [8, 8]


def test_one_step_worked_by_hand():
    """The first step of AdamW subtracts lr * weight_decay * weight, and then lr * sign(gradient)."""
    layer = torch.nn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(3.0)
    optimizer = create_optimizer(layer, learning_rate=0.1, weight_decay=0.5)
    layer(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    assert layer.weight.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5) - 0.1, abs=1e-5)
    assert layer.bias.item() == pytest.approx(3.0 - 0.1, abs=1e-5)


def test_eps_is_that_of_google():
    """The first step from 0 is lr * m / (sqrt(v) + 1e-6), with lr 0.1; m and sqrt(v) are the gradient: 0.1 * 1e-6 /
    (1e-6 + 1e-6). torch's eps is 1e-8.
    """
    layer = torch.nn.Linear(1, 1).double()
    torch.nn.init.zeros_(layer.weight)
    optimizer = create_optimizer(layer, learning_rate=0.1, weight_decay=0.0)
    layer.weight.grad = torch.full_like(layer.weight, 1e-6)
    optimizer.step()
    assert layer.weight.item() == pytest.approx(-0.05, rel=1e-5)


@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
def test_other_schedules_are_those_of_transformers(name):
    """The rate rises for four steps; it then falls or, if constant, stays."""

    def rates(make):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
        scheduler = make(optimizer)
        return [(scheduler.get_last_lr()[0], optimizer.step(), scheduler.step())[0] for _ in range(10)]

    known = {"constant": "constant_with_warmup"}.get(name, name)
    expected = rates(lambda optimizer: get_scheduler(known, optimizer, 4, 10))
    assert rates(lambda optimizer: create_schedule(name, optimizer, 0.4, 10)) == pytest.approx(expected)
    with pytest.raises(ValueError, match="--warmup_steps 20 is more than the 10 steps"):
        rates(lambda optimizer: create_schedule(name, optimizer, 20, 10))
