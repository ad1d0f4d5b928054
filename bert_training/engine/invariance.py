"""Check that the result of a step does not depend on how its batch is split: ``--verify_invariance``.

The training loop computes one step of up to 16 sequences several times, with all processes and with every number of
micro-batches that divides each process's sequences. The results are compared with a computation without the loop: the
whole batch on one process, with the loss that the model's heads compute by default, ``backward``, and one step of the
optimiser.

All of these add up the same float32 terms in different orders, so their results differ by rounding only: by a relative
1e-7 per addition, and most of these errors cancel. The usual mistake, to average the means of the micro-batches,
changes the result by several per cent.
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from bert_training.engine.batches import TrainingData, step_batches
from bert_training.engine.loop import training_steps
from bert_training.engine.run import Run
from bert_training.engine.state import UNKNOWN, TrainingState
from bert_training.inputs.flags.shared import SharedArguments
from tokenization.errors import UserError

SEQUENCES = 16
# Relative differences of the loss and of the gradient norm: even a thousand rounding errors of equal sign stay below.
LOSS_TOLERANCE = NORM_TOLERANCE = 1e-4
# The difference of the weight that differs most, in units of the learning rate. Adam divides a gradient by its own size
# plus 1e-6. If a gradient is as small as its rounding error (1e-8 after clipping to norm 1), the quotient changes by
# 1e-2.
WEIGHT_TOLERANCE = 5e-2
TOLERANCES = (LOSS_TOLERANCE, NORM_TOLERANCE, WEIGHT_TOLERANCE)


def demand_float32(run: Run[SharedArguments]) -> None:
    """Raise ValueError if the run uses mixed precision, in which differences are larger."""
    if run.accelerator.mixed_precision != "no":
        raise UserError("--verify_invariance compares float32 results; run it with --mixed_precision no")


def verify_invariance(
    run: Run[SharedArguments],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    source: TrainingData,
) -> None:
    """Print the differences between the loop's results and the plain computation; restore model and optimiser.

    Args:
        model, optimizer: as prepared by Accelerate.
        source: training data with ``batch(start, stop)``, of which the first instances are taken.

    Raises:
        ValueError: a difference is above its tolerance, or as in ``demand_float32``.
    """
    demand_float32(run)
    share = max(1, min(SEQUENCES, run.global_batch_size) // run.world_size)
    batch = source.batch(0, share * run.world_size)
    on_device = {name: tensor.to(run.device) for name, tensor in batch.items()}
    dropouts = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    rates = [module.p for module in dropouts]
    weights, state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))

    def restore() -> None:
        model.load_state_dict(weights)
        optimizer.load_state_dict(copy.deepcopy(state))  # an optimiser modifies the tensors that it is given

    def outcome(step: Callable[[], tuple[float, float]]) -> tuple[float, float, torch.Tensor]:
        restore()
        for group in optimizer.param_groups:
            group["lr"] = run.args.learning_rate  # at the start of the warm-up, the schedule's rate is 0
        loss, norm = step()
        return loss, norm, torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    for module in dropouts:
        module.p = 0.0  # dropout masks depend on how the batch is split
    plain = outcome(lambda: _plain_step(run, model, optimizer, on_device))
    loss, norm, _ = plain
    run.say(f"invariance: {len(batch['input_ids'])} sequences on one process: loss {loss:.6f}, norm {norm:.6f}")
    worst = [0.0, 0.0, 0.0]
    for size in (size for size in range(share, 0, -1) if share % size == 0):
        found = outcome(partial(_loop_step, run, model, optimizer, batch, size, share // size))
        differences = _differences(plain, found, run.args.learning_rate)
        worst = [max(pair) for pair in zip(worst, differences)]
        split = f"{run.world_size} x {size} x {share // size}"
        run.say(f"  processes x sequences x micro-batches {split}: {_described(differences)}")
    restore()
    for module, rate in zip(dropouts, rates):
        module.p = rate
    run.say(f"  largest difference: {_described(worst)}; tolerated: {_described(TOLERANCES)}")
    if any(found > bound for found, bound in zip(worst, TOLERANCES)):
        raise UserError(
            f"--verify_invariance: the result of a step depends on how its batch is split: {_described(worst)}; look "
            "for a loss that is averaged over each micro-batch"
        )


def _plain_step(
    run: Run[SharedArguments], model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict
) -> tuple[float, float]:
    unwrapped = run.accelerator.unwrap_model(model).train()
    with run.accelerator.no_sync(model):  # every process computes the whole batch
        loss = unwrapped(**batch).loss
        loss.backward()
    norm = nn.utils.clip_grad_norm_(unwrapped.parameters(), run.args.max_grad_norm or float("inf"))
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
    # Not dataclasses.replace: it repeats the checks, which refuse --phases together with the length computed from it.
    own_flags = copy.copy(run.args)
    vars(own_flags)["dataloader_num_workers"] = 0
    split_run = Run(own_flags, run.accelerator)
    batches = step_batches(_OneBatch(batch), split_run, 0, 1, size, accumulation)
    state = TrainingState(model, optimizer, _Constant(run.args.learning_rate), 1, UNKNOWN)
    step = next(training_steps(split_run, state, batches, max_grad_norm=run.args.max_grad_norm))
    return step.loss, step.grad_norm


class _OneBatch:
    """Training data that ends with its first batch."""

    def __init__(self, whole: dict[str, torch.Tensor]):
        self.whole = whole

    def batch(self, start: int, stop: int) -> dict[str, torch.Tensor]:
        return {name: tensor[start:stop] for name, tensor in self.whole.items()}


class _Constant(LRScheduler):
    """A constant learning rate. LRScheduler's own __init__ is not called, because it would change the optimiser."""

    def __init__(self, rate: float):
        self.rate = rate

    def get_last_lr(self) -> list[float | torch.Tensor]:
        return [self.rate]

    def step(self, epoch: int | None = None) -> None:
        pass


def _differences(plain: tuple, found: tuple, learning_rate: float) -> list[float]:
    """The relative differences of loss and gradient norm; the largest difference of a weight, in learning rates."""
    *expected, plain_weights = plain
    *actual, found_weights = found
    loss, norm = (abs(got - wanted) / max(abs(wanted), 1e-12) for wanted, got in zip(expected, actual))
    return [loss, norm, float((found_weights - plain_weights).abs().max()) / (learning_rate or 1.0)]


def _described(values: Sequence[float]) -> str:
    return "loss {:.1e}, gradient norm {:.1e} (relative), weights {:.1e} (learning rates)".format(*values)
