"""The loss of a step is that of the global batch: what bert_training/engine/loop.py asks of the other processes.

Here both processes are played one after the other in this process. tests/scripts/test_run_pretraining.py and
tests/engine/test_distributed.py start real ones.
"""

import pytest
import torch

from bert_training.engine.batches import step_batches
from bert_training.engine.loop import labelled_items, training_steps
from tests.helpers.tiny_training import LENGTH, LabelledTokens, new_state

# The global batch has the positions 0 to 15. Their numbers of labelled tokens are 1, 2, ..., 12, 1, 2, 3, 4.
LABELS = sum(range(1, 13)) + 1 + 2 + 3 + 4


def first_step(make_run, small_config, monkeypatch, rank, world_size):
    """The first step, and the gradients of all parameters one after the other, of process number ``rank``."""
    run = make_run(per_device_train_batch_size=8 // world_size, gradient_accumulation_steps=2)
    run.rank, run.world_size, reduce = rank, world_size, run.accelerator.reduce

    def with_the_other_process(values, how):
        """Its counts are added; the sums of the losses are left alone, so that the share of this process is seen."""
        if world_size == 1 or values.is_floating_point():
            return reduce(values, how)
        return torch.tensor([LABELS, 16, 16 * LENGTH])

    monkeypatch.setattr(run.accelerator, "reduce", with_the_other_process)
    state, gradients = new_state(small_config), []
    state.model.double()
    state.optimizer.register_step_pre_hook(
        lambda *_: gradients.extend(weight.grad.flatten().clone() for weight in state.model.parameters())
    )
    step = next(training_steps(run, state, step_batches(LabelledTokens(), run, 0, 1), max_grad_norm=0))
    return step, torch.cat(gradients)


def test_the_mean_of_the_gradients_of_two_processes_is_that_of_one(make_run, small_config, monkeypatch):
    """Data parallelism averages the gradients, and every process divides by the labels of all processes."""
    alone, expected = first_step(make_run, small_config, monkeypatch, 0, 1)
    one, two = (first_step(make_run, small_config, monkeypatch, rank, 2) for rank in range(2))
    torch.testing.assert_close((one[1] + two[1]) / 2, expected, rtol=0, atol=1e-12)
    assert one[0].loss + two[0].loss == pytest.approx(alone.loss, rel=1e-6)
    assert (alone.counts.items, alone.counts.sequences, alone.counts.tokens) == (LABELS, 16, 16 * LENGTH)
    assert (one[0].counts.items, one[0].counts.sequences, one[0].counts.tokens) == (LABELS, 16, 16 * LENGTH)


def test_the_reported_loss_is_the_sum_over_all_processes(make_run, small_config, monkeypatch):
    """The other process contributes a loss of 10, 4 of it for masked tokens and 6 for next sentences."""
    run, state = make_run(), new_state(small_config)
    alone = next(training_steps(run, state, step_batches(LabelledTokens(), run, 0, 1), max_grad_norm=0))
    reduce, others = run.accelerator.reduce, torch.tensor([10.0, 4.0, 6.0, 0.0])

    def with_the_other_process(values, how):
        return reduce(values, how) + (others if values.is_floating_point() else 0)

    monkeypatch.setattr(run.accelerator, "reduce", with_the_other_process)
    state = new_state(small_config)
    both = next(training_steps(run, state, step_batches(LabelledTokens(), run, 0, 1), max_grad_norm=0))
    assert both.loss == pytest.approx(alone.loss + 10)
    assert both.parts["mlm_loss"] == pytest.approx(alone.parts["mlm_loss"] + 4)
    assert both.parts["nsp_loss"] == pytest.approx(alone.parts["nsp_loss"] + 6)


def test_labelled_items_counted_by_hand():
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    assert labelled_items({"input_ids": tokens, "labels": torch.tensor([[-100, 7, 0], [-100, -100, 5]])}) == 3
    assert labelled_items({"input_ids": tokens, "labels": torch.tensor([1, -100])}) == 1
    assert labelled_items({"input_ids": tokens, "start_positions": torch.tensor([1, 0])}) == 2


# --- Between two steps ------------------------------------------------------------------------------------


def test_every_step_begins_without_gradients_and_in_training_mode(make_run, small_config):
    """An evaluation between two steps leaves the network in evaluation mode, in which it has no dropout."""
    run, state = make_run(), new_state(small_config, dropout=0.3)
    modes = []
    state.model.bert.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    for _ in training_steps(run, state, step_batches(LabelledTokens(), run, 0, 3), max_grad_norm=1.0):
        assert all(weight.grad is None for weight in state.model.parameters())
        state.model.eval()
    assert modes == [True, True, True]


def test_the_reported_rate_is_the_one_of_the_step(make_run, small_config):
    """The schedule multiplies 0.1 by 0, 1 and 2. A step with the rate 0 leaves the weights alone."""
    run, state = make_run(), new_state(small_config, factor=lambda step: step)
    before = state.model.bert.pooler.dense.weight.detach().clone()
    rates = []
    for step in training_steps(run, state, step_batches(LabelledTokens(), run, 0, 3), max_grad_norm=1.0):
        rates.append(step.lr)
        assert torch.equal(before, state.model.bert.pooler.dense.weight) == (step.index == 1)
    assert rates == pytest.approx([0.0, 0.1, 0.2])
