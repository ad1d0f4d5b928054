"""The mean of the weights at the last evaluations of a run (``--average_last``; Izmailov et al. 2018).

The steps of these evaluations are known from the start, so the mean is updated at each of them and needs the memory of
one more set of weights, however many there are. Checkpoints contain it, so that a resumed run ends with the same mean.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from bert_training.engine.batches import evaluation_due
from bert_training.engine.run import Run
from bert_training.inputs.flags.controls import ControlArguments
from tokenization.errors import UserError


@dataclass
class Average:
    """The mean of the trainable weights over steps of which some are done.

    Attributes:
        steps: the optimiser steps whose weights are averaged.
        count: how many of them are in ``mean``.
        mean: the mean of these, on the CPU, by the names of the parameters.
    """

    steps: list[int]
    count: int = 0
    mean: dict[str, torch.Tensor] = field(default_factory=dict)

    @torch.no_grad()
    def add(self, step: int, model: torch.nn.Module) -> None:
        """Include the weights of ``model`` (not wrapped) if ``step`` is one of ``steps``."""
        if step not in self.steps:
            return
        self.count += 1
        for name, weight in _trained(model).items():
            value = weight.detach().to("cpu", copy=True)
            # Weights that do not change stay as they are, to the last bit.
            self.mean[name] = value if self.count == 1 else torch.lerp(self.mean[name], value, 1 / self.count)

    @torch.no_grad()
    def restore(self, model: torch.nn.Module) -> None:
        """Give ``model`` (not wrapped) the mean of its weights."""
        assert self.count == len(self.steps)
        for name, weight in _trained(model).items():
            weight.copy_(self.mean[name])

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint preserves."""
        return {"steps": self.steps, "count": self.count, "mean": self.mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what a checkpoint has preserved."""
        self.count, self.mean = state["count"], dict(state["mean"])


def average_of(run: Run[ControlArguments], total_steps: int, examples: int) -> Average | None:
    """The average that ``--average_last`` asks for; None without the flag.

    Raises:
        ValueError: the run has fewer evaluations.
    """
    wanted = run.args.average_last
    if wanted is None:
        return None
    before_last = (step for step in range(1, total_steps) if evaluation_due(run, step, examples))
    steps = [*before_last, total_steps]
    if len(steps) < wanted:
        raise UserError(
            f"--average_last {wanted}: the run has only {len(steps)} evaluation{'s' * (len(steps) > 1)} in "
            f"{total_steps} steps; give a smaller number, or smaller --eval_steps"
        )
    return Average(steps[-wanted:])


def _trained(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
