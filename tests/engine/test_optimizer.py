"""bert_training/engine/optimizer.py: AdamW with and without bias correction, weight decay, and the schedule."""

import copy

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from transformers import BertForPreTraining as Stock
from transformers import get_linear_schedule_with_warmup, get_scheduler

from bert_training.engine.optimizer import (
    BertAdamW,
    create_optimizer,
    create_schedule,
    linear_schedule,
    parameter_groups,
)
from modeling_bert_repro import BertForPreTraining, BertForSequenceClassification


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


def test_stock_parameters_fall_into_the_same_groups(small_config):
    ours, theirs = (parameter_groups(cls(small_config), 0.01) for cls in (BertForPreTraining, Stock))
    assert [sum(weight.numel() for weight in group["params"]) for group in ours] == [
        sum(weight.numel() for weight in group["params"]) for group in theirs
    ]


def test_frozen_parameters_are_left_out(small_config):
    model = BertForPreTraining(small_config)
    model.bert.embeddings.requires_grad_(False)
    held = {weight for group in parameter_groups(model, 0.01) for weight in group["params"]}
    assert not held & set(model.bert.embeddings.parameters())


@pytest.mark.parametrize("name", ["adamw", "bert_adamw"])
def test_word_embeddings_may_have_a_rate_of_their_own(small_config, name):
    """Every weight is there once, with the decay that it has without; the schedule multiplies each rate."""
    model = BertForPreTraining(small_config)
    optimizer = create_optimizer(model, 1e-3, 0.01, name, embedding_learning_rate=3e-3)
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [
        *((1e-3, 0.01), (1e-3, 0.0), (3e-3, 0.01)),
    ]  # fmt: skip
    assert optimizer.param_groups[2]["params"][0] is model.cls.predictions.decoder.weight
    held = [id(weight) for group in optimizer.param_groups for weight in group["params"]]
    assert sorted(held) == sorted(map(id, model.parameters()))
    schedule = linear_schedule(optimizer, 2, 10)
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.5e-3, 0.5e-3, 1.5e-3]


def test_biases_of_an_lstm_are_spared_too():
    groups = parameter_groups(torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True), 0.01)
    assert [len(group["params"]) for group in groups] == [8, 8]


@pytest.mark.parametrize("frozen", [False, True])
def test_layer_decay_has_a_rate_for_every_distance_from_the_head(small_config, frozen):
    """Two layers: 0.5 for the higher one, 0.25 for the lower, 0.125 for the embeddings; every weight is there once."""
    model = BertForSequenceClassification(small_config)
    model.bert.embeddings.requires_grad_(not frozen)
    names = {weight: name for name, weight in model.named_parameters() if weight.requires_grad}
    groups = create_optimizer(model, 1.0, 0.01, "bert_adamw", layer_decay=0.5).param_groups
    held = [names[weight] for group in groups for weight in group["params"]]
    assert sorted(held) == sorted(names.values())
    rates = {"classifier": 1.0, "bert.pooler": 1.0, "bert.encoder.layer.1": 0.5, "bert.encoder.layer.0": 0.25}
    rates["bert.embeddings"] = 0.125
    plain = [{*group["params"]} for group in parameter_groups(model, 0.01)]
    for group in groups:
        for weight in group["params"]:
            assert group["lr"] == next(rate for prefix, rate in rates.items() if names[weight].startswith(prefix))
            assert weight in plain[0 if group["weight_decay"] else 1]
    scheduler = create_schedule("linear", torch.optim.SGD(groups, lr=1.0), 0, 10)
    assert scheduler.get_last_lr()[0] == 1.0  # The first one is logged.
    assert len(groups) == (6 if frozen else 8)


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


@pytest.mark.parametrize(("name", "gradient", "moved"), [("adamw", 1e-6, 0.05), ("bert_adamw", 1e-5, 0.0759747)])
def test_eps_of_both_optimizers_is_that_of_google(name, gradient, moved):
    """The first step from 0 is lr * m / (sqrt(v) + 1e-6), with lr 0.1.

    With bias correction m and sqrt(v) are the gradient: 0.1 * 1e-6 / (1e-6 + 1e-6). Without it they are 0.1 and
    sqrt(0.001) times the gradient: 0.1 * 1e-6 / (3.16228e-7 + 1e-6). torch's eps is 1e-8.
    """
    layer = torch.nn.Linear(1, 1).double()
    torch.nn.init.zeros_(layer.weight)
    optimizer = create_optimizer(layer, learning_rate=0.1, weight_decay=0.0, name=name)
    layer.weight.grad = torch.full_like(layer.weight, gradient)
    optimizer.step()
    assert layer.weight.item() == pytest.approx(-moved, rel=1e-5)


def test_googles_adam_worked_by_hand():
    """Two steps of one weight at lr 0.1, decay 0.01, gradients 2 and -1.

    m = 0.2, v = 0.004: 0.2 / (0.06324555 + 1e-6) = 3.16222766; w = 1 - 0.1 (3.16222766 + 0.01) = 0.68277723.
    m = 0.08, v = 0.004996: 0.08 / (0.07068239 + 1e-6) = 1.13180755; w -= 0.1 (1.13180755 + 0.0068277723).
    """
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = BertAdamW([weight], lr=0.1, weight_decay=0.01)
    for gradient, expected in ((2.0, 0.682777234), (-1.0, 0.568913702)):
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
        assert weight.item() == pytest.approx(expected, abs=2e-8)


def google_step(parameters, gradients, m, v, learning_rate, weight_decay_rate, names):
    """A translation of google-research/bert's ``AdamWeightDecayOptimizer.apply_gradients`` to NumPy, in float64."""
    beta_1, beta_2, epsilon = 0.9, 0.999, 1e-6
    for name in names:
        grad, param = gradients[name], parameters[name]
        next_m = np.multiply(beta_1, m[name]) + np.multiply(1.0 - beta_1, grad)
        next_v = np.multiply(beta_2, v[name]) + np.multiply(1.0 - beta_2, np.square(grad))
        update = next_m / (np.sqrt(next_v) + epsilon)
        if not any(part in name for part in ("LayerNorm", "layer_norm", "bias")):
            update += weight_decay_rate * param
        update_with_lr = learning_rate * update
        parameters[name], m[name], v[name] = param - update_with_lr, next_m, next_v


def test_twenty_steps_as_google_ran_them(small_config):
    """The whole network takes the same steps, with clipped gradients of very different sizes, a schedule, and one
    parameter without a gradient.
    """
    torch.manual_seed(0)
    model = BertForPreTraining(small_config).double()
    optimizer = create_optimizer(model, 1e-3, 0.01, "bert_adamw")
    scheduler = linear_schedule(optimizer, 5, 20)
    named = dict(model.named_parameters())
    idle = "bert.pooler.dense.weight"
    expected = {name: weight.detach().numpy().copy() for name, weight in named.items()}
    # Google calls the running mean of the gradients m, and that of their squares v.
    m, v = ({name: np.zeros(weight.shape) for name, weight in named.items()} for _ in range(2))
    draw = np.random.default_rng(0)
    for step in range(20):
        gradients = {
            name: draw.normal(size=weight.shape) * 10.0 ** draw.uniform(-9, 0) for name, weight in named.items()
        }
        norm = np.sqrt(sum(np.sum(gradient**2) for name, gradient in gradients.items() if name != idle))
        gradients = {name: gradient / max(1.0, norm) for name, gradient in gradients.items()}
        for name, weight in named.items():
            weight.grad = None if name == idle else torch.from_numpy(gradients[name].copy())
        lr = 1e-3 * (step / 5 if step < 5 else (20 - step) / 15)
        google_step(expected, gradients, m, v, lr, 0.01, [name for name in named if name != idle])
        optimizer.step()
        scheduler.step()
    for name, weight in named.items():
        np.testing.assert_allclose(weight.detach().numpy(), expected[name], rtol=0, atol=1e-14, err_msg=name)
    assert not optimizer.state[named[idle]]


@pytest.mark.parametrize("name", ["adamw", "bert_adamw"])
def test_state_comes_back_bit_by_bit(small_config, name):
    """The optimiser is wrapped by Accelerate, as in the scripts."""
    accelerator = Accelerator(cpu=True)

    def prepared(model):
        return accelerator.prepare(model, create_optimizer(model, 1e-3, 0.01, name))

    def step(model, optimizer, seed):
        for number, weight in enumerate(model.parameters()):
            weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed + number))
        optimizer.step()

    first = prepared(torch.nn.Linear(5, 3))
    step(*first, 0)
    second = prepared(copy.deepcopy(first[0]))
    second[1].load_state_dict(copy.deepcopy(first[1].state_dict()))
    for model, optimizer in (first, second):
        step(model, optimizer, 100)
    assert torch.equal(first[0].weight, second[0].weight) and torch.equal(first[0].bias, second[0].bias)


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
    expected = rates(lambda optimizer: get_linear_schedule_with_warmup(optimizer, count, steps))
    assert rates(lambda optimizer: linear_schedule(optimizer, warmup, steps)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        (None, [0, 0.5, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        (8, [0, 0.5, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        (0.4, [0, 0.5, 1, 1, 1, 1, 1, 3 / 4, 2 / 4, 1 / 4]),
        (1, [0, 0.5, 1, 1, 1, 1, 1, 1, 1, 1]),
        (0, [0, 0.5, 1, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_the_rate_is_constant_until_the_decay_begins(decay, expected):
    """Ten steps, of which two are warm-up; the factors were worked out by hand."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, rates = linear_schedule(optimizer, 2, 10, decay), []
    for _ in range(10):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx(expected)


def test_warm_up_and_decay_fit_into_the_run():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    linear_schedule(optimizer, 0.5, 10, 5)
    with pytest.raises(ValueError, match="--warmup_steps 5 and --decay_steps 6 add up to more than the 10 steps"):
        linear_schedule(optimizer, 0.5, 10, 6)


@pytest.mark.parametrize(("warmup", "decay", "steps"), [(0.5, 0.5, 7), (0.1, 0.9, 15), (0.1, 0.9, 35)])
def test_shares_of_the_whole_run_fit_into_any_number_of_steps(warmup, decay, steps):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    factor = linear_schedule(optimizer, warmup, steps, decay).lr_lambdas[0]
    rates = [factor(step) for step in range(steps + 1)]
    top = rates.index(1.0)
    assert rates[0] == rates[-1] == 0 and rates[: top + 1] == sorted(rates[: top + 1])
    with pytest.raises(ValueError, match="add up to more than"):
        linear_schedule(optimizer, 0.5, steps, 0.7)
