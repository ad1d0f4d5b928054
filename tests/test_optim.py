import pytest
import torch
from transformers import BertForPreTraining as Stock
from transformers import get_linear_schedule_with_warmup

from modeling_bert_repro import BertForPreTraining
from training.optim import create_optimizer, linear_schedule, parameter_groups


def test_decay_spares_biases_and_layer_norm_only(small_config):
    model = BertForPreTraining(small_config)
    names = {p: name for name, p in model.named_parameters()}
    decayed, exempt = parameter_groups(model, 0.01)
    assert (decayed["weight_decay"], exempt["weight_decay"]) == (0.01, 0.0)
    spared = {names[p] for p in exempt["params"]}
    assert {"bert.embeddings.LayerNorm.weight", "bert.pooler.dense.bias", "cls.predictions.bias"} <= spared
    assert all(name.split(".")[-1] == "bias" or "LayerNorm" in name for name in spared)
    matrices = {names[p] for p in decayed["params"]}
    assert all(name.endswith("weight") and "LayerNorm" not in name for name in matrices)
    assert "bert.embeddings.word_embeddings.weight" in matrices
    assert sorted(names.values()) == sorted(spared | matrices) and not spared & matrices


def test_stock_parameters_fall_into_the_same_groups(small_config):
    ours, theirs = (parameter_groups(cls(small_config), 0.01) for cls in (BertForPreTraining, Stock))
    assert [sum(p.numel() for p in g["params"]) for g in ours] == [sum(p.numel() for p in g["params"]) for g in theirs]


def test_frozen_parameters_are_left_out(small_config):
    model = BertForPreTraining(small_config)
    model.bert.embeddings.requires_grad_(False)
    held = {p for group in parameter_groups(model, 0.01) for p in group["params"]}
    assert not held & set(model.bert.embeddings.parameters())


def test_biases_of_an_lstm_are_spared_too():
    groups = parameter_groups(torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True), 0.01)
    assert [len(group["params"]) for group in groups] == [8, 8]


def test_one_step_by_hand():
    """AdamW's first step moves each weight by lr * sign(gradient), after the decay lr * wd * weight."""
    layer = torch.nn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(3.0)
    optimizer = create_optimizer(layer, learning_rate=0.1, weight_decay=0.5)
    layer(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    assert layer.weight.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5) - 0.1, abs=1e-5)
    assert layer.bias.item() == pytest.approx(3.0 - 0.1, abs=1e-5)


@pytest.mark.parametrize(("warmup", "steps"), [(0, 10), (4, 10), (0.1, 30), (10, 10)])
def test_schedule_equals_transformers(warmup, steps):
    def rates(make):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
        scheduler = make(optimizer)
        rates = []
        for _ in range(steps):
            rates.append(scheduler.get_last_lr()[0])
            optimizer.step()
            scheduler.step()
        return rates

    count = round(warmup * steps) if warmup < 1 else warmup
    expected = rates(lambda o: get_linear_schedule_with_warmup(o, count, steps))
    assert rates(lambda o: linear_schedule(o, warmup, steps)) == pytest.approx(expected)


def test_warmup_longer_than_the_run_is_refused():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(ValueError, match="--warmup_steps 20 is more than the 10 steps"):
        linear_schedule(optimizer, 20, 10)
