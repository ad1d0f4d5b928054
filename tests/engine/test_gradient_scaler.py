"""--mixed_precision fp16: a gradient that overflows skips its step, and a checkpoint keeps the gradient scaler."""

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from bert_training.engine.batches import step_batches
from bert_training.engine.checkpoint import UNKNOWN, TrainingState, load_checkpoint, save_checkpoint
from bert_training.engine.loop import LEAST_SCALE, training_steps
from tests.helpers.tiny_training import LabelledTokens, new_state, state_with_optimizer


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


def scaled(run, scale: float):
    """Give the run a gradient scaler with the numbers of --mixed_precision fp16, on the CPU."""
    scaler = run.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)

    def unscale_gradients(optimizer=None):
        for one in run.accelerator._optimizers if optimizer is None else [optimizer]:
            scaler.unscale_(getattr(one, "optimizer", one))

    run.accelerator.unscale_gradients = unscale_gradients


def test_a_fused_optimiser_that_skips_does_not_advance_the_schedule(make_run):
    """torch calls a fused optimiser also for a step to skip, which Accelerate takes for a step that was done."""
    run, state = make_run(), state_with_optimizer()
    scaled(run, 1024.0)
    model, prepared = run.accelerator.prepare(state.model, state.optimizer)
    schedule = LambdaLR(state.optimizer, lambda step: 1 / (1 + step))
    state = TrainingState(model, prepared, schedule, 4, UNKNOWN)
    state.model.bert.pooler.dense.bias.register_hook(lambda gradient: gradient * float("inf"))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    steps = list(training_steps(run, state, step_batches(LabelledTokens(), run, 0, 2), max_grad_norm=1.0))
    assert [step.lr for step in steps] == [1e-3, 1e-3]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_gradients_that_no_scale_makes_finite_stop_the_run(make_run):
    run, state = make_run(), state_with_optimizer()
    scaled(run, 2 * LEAST_SCALE)
    model, prepared = run.accelerator.prepare(state.model, state.optimizer)
    state = TrainingState(model, prepared, state.scheduler, 4, UNKNOWN)
    model.bert.pooler.dense.bias.register_hook(lambda gradient: gradient * float("inf"))
    steps = training_steps(run, state, step_batches(LabelledTokens(), run, 0, 4), max_grad_norm=1.0)
    next(steps)
    with pytest.raises(FloatingPointError, match=r"step 2: .* the weights are still those of step 1"):
        next(steps)
