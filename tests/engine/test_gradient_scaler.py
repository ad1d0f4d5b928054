"""--mixed_precision fp16: a gradient that overflows skips its step, and a checkpoint keeps the gradient scaler."""

import pytest
import torch

from tests.helpers.tiny_training import LabelledTokens, new_state
from training.engine.batches import step_batches
from training.engine.checkpoint import load_checkpoint, save_checkpoint
from training.engine.loop import training_steps


def test_a_skipped_step_does_not_advance_the_schedule(make_run, small_config, monkeypatch):
    """The scaler skips step 2 of 4. The rates are 0.1 / 1, 0.1 / 2, again 0.1 / 2, and 0.1 / 3."""
    run, state = make_run(), new_state(small_config, factor=lambda step: 1 / (1 + step))
    skipped = iter([False, True, False, False])
    monkeypatch.setattr(type(run.accelerator), "optimizer_step_was_skipped", property(lambda _: next(skipped)))
    steps = list(training_steps(run, state, step_batches(LabelledTokens(), run, 0, 4), max_grad_norm=1.0))
    assert [step.lr for step in steps] == pytest.approx([0.1, 0.05, 0.05, 0.1 / 3])


def test_a_gradient_that_overflows_is_left_to_the_scaler(make_run, small_config):
    """Without a scaler it stops the run; with one it is an ordinary event, which a lower scale repairs."""
    run, state = make_run(), new_state(small_config)
    state.model.bert.pooler.dense.bias.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(FloatingPointError, match="the gradient norm"):
        next(training_steps(run, state, step_batches(LabelledTokens(), run, 0, 1), max_grad_norm=1.0))
    run.accelerator.scaler = torch.amp.GradScaler("cpu")
    step = next(training_steps(run, state, step_batches(LabelledTokens(), run, 0, 1), max_grad_norm=1.0))
    assert not torch.isfinite(torch.tensor(step.grad_norm)) and torch.isfinite(torch.tensor(step.loss))


def test_the_scale_is_restored(make_run, small_config):
    run, state = make_run(), new_state(small_config)
    run.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    folder = save_checkpoint(run, 3, state)
    resumed = make_run()
    resumed.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    assert load_checkpoint(resumed, folder, new_state(small_config)) == 3
    assert resumed.accelerator.scaler.get_scale() == 1024.0
