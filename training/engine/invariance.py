"""Is a step's result the same, however its batch is cut? The check behind ``--verify_invariance``.

A batch of 16 sequences is replayed by the training loop as 1 x 16, 2 x 8, 4 x 4, ... micro-batches, over all
processes, and once without the loop: the whole batch on one process, the loss as the model's heads compute it by
default, ``backward``, one step of the optimiser.

All of these add up the same float32 terms in another order, so they differ by rounding only: about 1e-7 for each
addition, of which a good part cancels. A mean of the micro-batches' means, the usual mistake, is off by percents.
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from training.arguments import SharedArguments
from training.engine.batches import TrainingData, step_batches
from training.engine.loop import training_steps
from training.engine.run import Run

SEQUENCES = 16
# Relative, of the loss and of the gradient's norm: a thousand roundings that all go one way stay below 1e-4.
LOSS_TOLERANCE = NORM_TOLERANCE = 1e-4
# In learning rates, of the weight that differs most. Adam divides a gradient by its own size plus 1e-6, so where a
# gradient is no larger than its rounding (1e-8 after clipping to 1) the quotient moves by 1e-2 of a learning rate.
WEIGHT_TOLERANCE = 5e-2
TOLERANCES = (LOSS_TOLERANCE, NORM_TOLERANCE, WEIGHT_TOLERANCE)


def verify_invariance(
    run: Run[SharedArguments],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    source: TrainingData,
    position: int = 0,
) -> None:
    """Print how far the cuts are from the plain computation; everything is put back as it was.

    Args:
        model, optimizer: as prepared by Accelerate.
        source: training data; the batch is at ``position`` and behind it.

    Raises:
        ValueError: a difference above the tolerance, or no float32 to measure it in.
    """
    if run.accelerator.mixed_precision != "no":
        raise ValueError("--verify_invariance compares float32 results; run it with --mixed_precision no")
    share = max(1, min(SEQUENCES, run.global_batch_size) // run.world_size)
    batch = {k: v.to(run.device) for k, v in source.batch(position, position + share * run.world_size).items()}
    dropouts = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    rates = [module.p for module in dropouts]
    weights, state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))

    def put_back() -> None:
        model.load_state_dict(weights)
        optimizer.load_state_dict(copy.deepcopy(state))  # an optimiser works on the tensors it is given

    def outcome(step: Callable[[], tuple[float, float]]) -> tuple[float, float, torch.Tensor]:
        put_back()
        for group in optimizer.param_groups:
            group["lr"] = run.args.learning_rate  # the schedule may stand at 0
        loss, norm = step()
        return loss, norm, torch.cat([p.detach().flatten() for p in model.parameters()])

    for module in dropouts:
        module.p = 0.0  # masks depend on the cut
    plain = outcome(lambda: _plain_step(run, model, optimizer, batch))
    run.say(f"invariance: {len(batch['input_ids'])} sequences on one process: loss {plain[0]:.6f}, norm {plain[1]:.6f}")
    worst = [0.0, 0.0, 0.0]
    for size in (size for size in range(share, 0, -1) if share % size == 0):
        found = outcome(partial(_loop_step, run, model, optimizer, batch, size, share // size))
        differences = _differences(plain, found, run.args.learning_rate)
        worst = [max(pair) for pair in zip(worst, differences)]
        cut = f"{run.world_size} x {size} x {share // size}"
        run.say(f"  processes x sequences x micro-batches {cut}: {_described(differences)}")
    put_back()
    for module, rate in zip(dropouts, rates):
        module.p = rate
    run.say(f"  largest difference: {_described(worst)}; tolerated: {_described(TOLERANCES)}")
    if any(found > bound for found, bound in zip(worst, TOLERANCES)):
        raise ValueError(f"--verify_invariance: the result of a step depends on how it is cut: {_described(worst)}")


def _plain_step(
    run: Run[SharedArguments], model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict
) -> tuple[float, float]:
    bare = run.accelerator.unwrap_model(model).train()
    with run.accelerator.no_sync(model):  # every process computes all of it
        loss = bare(**batch).loss
        loss.backward()
    norm = nn.utils.clip_grad_norm_(bare.parameters(), run.args.max_grad_norm or float("inf"))
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss.detach()), float(norm)


def _loop_step(
    run: Run[SharedArguments],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: dict,
    size: int,
    accumulation: int,
) -> tuple[float, float]:
    own_flags = copy.copy(run.args)  # not dataclasses.replace, which refuses --phases with the length made of it
    vars(own_flags)["dataloader_num_workers"] = 0
    cut = Run(own_flags, run.accelerator)
    batches = step_batches(_OneBatch(batch), cut, 0, 1, size, accumulation)
    schedule, limit = _Constant(run.args.learning_rate), run.args.max_grad_norm
    step = next(training_steps(cut, model, optimizer, schedule, batches, 1, max_grad_norm=limit))
    return step.loss, step.grad_norm


class _OneBatch:
    """Training data that ends with its first batch."""

    def __init__(self, whole: dict[str, torch.Tensor]):
        self.whole = whole

    def batch(self, start: int, stop: int) -> dict[str, torch.Tensor]:
        return {name: tensor[start:stop] for name, tensor in self.whole.items()}


class _Constant(LRScheduler):
    """A schedule that reports one learning rate and leaves the optimiser alone; hence no call of LRScheduler's."""

    def __init__(self, rate: float):
        self.rate = rate

    def get_last_lr(self) -> list[float | torch.Tensor]:
        return [self.rate]

    def step(self, epoch: int | None = None) -> None:
        pass


def _differences(plain: tuple, found: tuple, learning_rate: float) -> list[float]:
    """Of loss and norm, relative; of the weights, in learning rates."""
    loss, norm = (abs(b - a) / max(abs(a), 1e-12) for a, b in zip(plain[:2], found[:2]))
    return [loss, norm, float((found[2] - plain[2]).abs().max()) / (learning_rate or 1.0)]


def _described(values: Sequence[float]) -> str:
    return "loss {:.1e}, gradient norm {:.1e} (relative), weights {:.1e} (learning rates)".format(*values)
