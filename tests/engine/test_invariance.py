"""--verify_invariance: which differences it accepts, which it finds, and that it leaves everything unchanged."""

import copy
import re

import pytest
import torch
import transformers

import run_pretraining
from bert_training.engine import invariance
from bert_training.engine.invariance import verify_invariance
from bert_training.engine.optimizer import create_optimizer
from bert_training.networks.control import with_exact_losses
from tests.helpers.tiny_training import LabelledTokens, state_with_optimizer


def differences(output: str) -> list[float]:
    (line,) = (line for line in output.splitlines() if "largest difference" in line)
    return [float(number) for number in re.findall(r"\d\.\de[-+]\d+", line)[:3]]


@pytest.mark.parametrize("optimizer", ["adamw", "bert_adamw"])
def test_every_division_into_micro_batches_gives_the_same_step(make_run, capsys, optimizer):
    state = state_with_optimizer(optimizer)
    model, optimizer = state.model, state.optimizer
    verify_invariance(
        make_run(per_device_train_batch_size=4, gradient_accumulation_steps=6), model, optimizer, LabelledTokens()
    )
    output = capsys.readouterr().out
    for cut in ("1 x 16 x 1", "1 x 8 x 2", "1 x 4 x 4", "1 x 2 x 8", "1 x 1 x 16"):
        assert f"processes x sequences x micro-batches {cut}:" in output
    assert all(found < bound for found, bound in zip(differences(output), (1e-5, 1e-5, 1e-2)))


def test_the_loop_gets_a_batch_that_is_not_on_the_device(make_run, monkeypatch):
    """Its loader pins memory, which tensors on a GPU do not have."""
    run, places = make_run(per_device_train_batch_size=2), {}
    run.device = torch.device("meta")

    def step(name, place):
        return lambda *given: places.update({name: given[place]["input_ids"].device.type}) or (0.0, 0.0)

    monkeypatch.setattr(invariance, "_plain_step", step("plain", 3))
    monkeypatch.setattr(invariance, "_loop_step", step("loop", 3))
    state = state_with_optimizer("adamw")
    verify_invariance(run, state.model, state.optimizer, LabelledTokens())
    assert places == {"plain": "meta", "loop": "cpu"}


def test_the_batch_is_no_larger_than_a_step(make_run, capsys):
    state = state_with_optimizer("adamw")
    model, optimizer = state.model, state.optimizer
    verify_invariance(make_run(per_device_train_batch_size=6), model, optimizer, LabelledTokens())
    cuts = re.findall(r"micro-batches (\d+ x \d+ x \d+)", capsys.readouterr().out)
    assert cuts == ["1 x 6 x 1", "1 x 3 x 2", "1 x 2 x 3", "1 x 1 x 6"]


def test_a_mean_of_means_is_refused(make_run):
    """transformers' heads average over each micro-batch. As our control they do not."""
    torch.manual_seed(0)
    config = state_with_optimizer("adamw").model.config
    stock = transformers.BertForPreTraining(config)
    run = make_run(per_device_train_batch_size=16)
    optimizer = create_optimizer(stock, 1e-3, 0.01)
    with pytest.raises(ValueError, match=r"depends on how its batch is split: loss \d\.\de[-+]0\d"):
        verify_invariance(run, stock, optimizer, LabelledTokens())
    exact = with_exact_losses(stock)
    verify_invariance(run, exact, optimizer, LabelledTokens())


def test_the_check_leaves_everything_as_it_was(make_run):
    """Weights, optimiser, learning rate and random numbers are restored: the training after the check is bit-equal to
    one without it.
    """
    run = make_run()
    state = state_with_optimizer("adamw")
    model, optimizer = state.model, state.optimizer
    model.bert.embeddings.dropout.p = 0.25
    model(**LabelledTokens().batch(0, 2)).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.param_groups[0]["lr"] = 0.5
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    verify_invariance(run, model, optimizer, LabelledTokens())
    for then, now in zip(before[0].values(), model.state_dict().values()):
        assert torch.equal(then, now)
    after = optimizer.state_dict()
    assert after["param_groups"] == before[1]["param_groups"]
    for number, state in before[1]["state"].items():
        assert all(torch.equal(state[name], after["state"][number][name]) for name in state)
    assert model.bert.embeddings.dropout.p == 0.25
    assert all(p.grad is None for p in model.parameters())


def test_half_precision_is_refused(make_run):
    run = make_run()
    run.accelerator.state._mixed_precision = "bf16"
    with pytest.raises(ValueError, match="run it with --mixed_precision no"):
        state = state_with_optimizer("adamw")
        verify_invariance(run, state.model, state.optimizer, LabelledTokens())


def test_it_is_refused_before_anything_is_prepared(tmp_path):
    """The corrected command must find a folder without a run."""
    flags = ["--verify_invariance", "--mixed_precision=bf16", f"--output_dir={tmp_path / 'run'}"]
    with pytest.raises(ValueError, match="run it with --mixed_precision no"):
        run_pretraining.main(flags)
    assert not (tmp_path / "run" / "run.json").exists()
