"""Two variants of AdamW and the schedules (paper, A.2; google-research/bert ``optimization.py``)."""

import re

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import ParamsT
from transformers import PreTrainedModel, get_scheduler
from transformers.utils import is_torch_xla_available

from tokenization.errors import UserError

# Parameters without weight decay; names such as bias_ih_l0 are those of an LSTM's biases.
EXEMPT = re.compile(r"(^|\.)(LayerNorm\.weight|bias(_[ih]h_l\d+(_reverse)?)?)$")
LAYER, EMBEDDINGS = re.compile(r"(^|\.)encoder\.layer\.(\d+)\."), re.compile(r"(^|\.)embeddings\.")
BETAS, EPS = (0.9, 0.999), 1e-6


class BertAdamW(torch.optim.Optimizer):
    """AdamW of google-research/bert (``AdamWeightDecayOptimizer``), which has no bias correction.

        m = b1 m + (1 - b1) g;    v = b2 v + (1 - b2) g^2
        w = w - lr (m / (sqrt(v) + eps) + weight_decay w)

    with weights w, gradients g, their running mean m and running mean square v, and betas b1 and b2.

    Without bias correction, step t is (1 - b1^t) / sqrt(1 - b2^t) times as long: 3.2 times at t = 1, 6.6 times at
    t = 12, 1.3 times at t = 1,000. In pre-training, the warm-up compensates for this; fine-tuning on small tasks
    becomes unstable (Zhang et al. 2020; Mosbach et al. 2020).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        betas: tuple[float, float] = BETAS,
        eps: float = EPS,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        assert closure is None  # the loop computes the gradients itself
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._step_group(group, weights)

    def _step_group(self, group: dict, weights: list[torch.Tensor]) -> None:
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {"exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        means = [self.state[weight]["exp_avg"] for weight in weights]
        squares = [self.state[weight]["exp_avg_sq"] for weight in weights]
        (beta1, beta2), lr = group["betas"], group["lr"]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_mul_(weights, 1 - lr * group["weight_decay"])
        torch._foreach_addcdiv_(weights, means, roots, -lr)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """All trainable parameters in two groups: with weight decay, and without (biases and LayerNorm weights)."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    exempt = [parameter for name, parameter in named if EXEMPT.search(name)]
    decayed = [parameter for name, parameter in named if not EXEMPT.search(name)]
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": exempt, "weight_decay": 0.0},
    ]


def layer_groups(model: nn.Module, weight_decay: float, learning_rate: float, layer_decay: float) -> list[dict]:
    """The groups of ``parameter_groups``, divided by their distance from the head, which comes first.

    Everything but embeddings and layers is the head: the pooler, too. Its learning rate is multiplied by
    ``layer_decay`` for the highest layer, once more for each layer below it, and once more for the embeddings.
    """
    named = {parameter: name for name, parameter in model.named_parameters()}
    layers = 1 + max((int(found[2]) for name in named.values() if (found := LAYER.search(name))), default=-1)

    def distance(parameter: nn.Parameter) -> int:
        if found := LAYER.search(named[parameter]):
            return layers - int(found[2])
        return layers + 1 if EMBEDDINGS.search(named[parameter]) else 0

    groups = []
    for group in parameter_groups(model, weight_decay):
        parts: dict[int, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            parts.setdefault(distance(parameter), []).append(parameter)
        groups += [
            (far, {**group, "params": part, "lr": learning_rate * layer_decay**far}) for far, part in parts.items()
        ]
    return [group for _, group in sorted(groups, key=lambda pair: pair[0])]


def with_own_rate(groups: list[dict], weight: object, learning_rate: float) -> list[dict]:
    """``groups``, and one more of ``weight`` alone, which has a learning rate of its own."""
    (home,) = (group for group in groups if any(one is weight for one in group["params"]))
    rest = {**home, "params": [one for one in home["params"] if one is not weight]}
    return [*(rest if group is home else group for group in groups), {**home, "params": [weight], "lr": learning_rate}]


def create_optimizer(
    model: nn.Module,
    learning_rate: float,
    weight_decay: float,
    name: str = "adamw",
    layer_decay: float | None = None,
    embedding_learning_rate: float | None = None,
) -> torch.optim.Optimizer:
    """torch's AdamW, or ``BertAdamW`` if ``name`` is "bert_adamw"; both with the betas and eps of google-research/bert.

    The parameters are in the two groups of ``parameter_groups`` or, with ``layer_decay``, in those of ``layer_groups``.
    With ``embedding_learning_rate``, the word embeddings are a group of their own.
    """
    groups = parameter_groups(model, weight_decay)
    if layer_decay is not None:
        groups = layer_groups(model, weight_decay, learning_rate, layer_decay)
    if embedding_learning_rate is not None:
        assert isinstance(model, PreTrainedModel)
        groups = with_own_rate(groups, model.get_input_embeddings().weight, embedding_learning_rate)
    if name == "bert_adamw":
        return BertAdamW(groups, lr=learning_rate)
    return torch.optim.AdamW(groups, lr=learning_rate, betas=BETAS, eps=EPS, fused=not is_torch_xla_available())


def linear_schedule(
    optimizer: torch.optim.Optimizer, warmup_steps: float, total_steps: int, decay_steps: float | None = None
) -> LambdaLR:
    """A schedule that raises the learning rate linearly from 0 in the warm-up, then lowers it to 0 at ``total_steps``.

    Args:
        warmup_steps: a number of optimiser steps or, below 1, a share of ``total_steps``.
        decay_steps: the number or the share of the last steps in which the rate falls; it is constant between warm-up
            and decay. None: all steps after the warm-up.

    Raises:
        ValueError: the warm-up, or warm-up and decay together, are longer than the run.
    """
    warmup, decay = warmup_and_decay(warmup_steps, total_steps, decay_steps)

    def factor(step: int) -> float:
        if step < warmup:
            return step / warmup
        return min(1.0, max(0.0, (total_steps - step) / max(1, decay)))

    return LambdaLR(optimizer, factor)


def warmup_and_decay(warmup_steps: float, total_steps: int, decay_steps: float | None = None) -> tuple[int, int]:
    """The steps of both; arguments and errors are those of ``linear_schedule``."""
    warmup = _warmup(warmup_steps, total_steps)
    decay = total_steps - warmup if decay_steps is None else _steps_of(decay_steps, total_steps)
    if decay_steps and max(warmup_steps, decay_steps) < 1 and warmup_steps + decay_steps <= 1:
        decay = min(decay, total_steps - warmup)  # both may have been rounded up
    if warmup + decay > total_steps:
        raise UserError(
            f"--warmup_steps {warmup} and --decay_steps {decay} add up to more than the {total_steps} steps of the run"
        )
    return warmup, decay


def create_schedule(name: str, optimizer: torch.optim.Optimizer, warmup_steps: float, total_steps: int) -> LambdaLR:
    """``linear_schedule``, or transformers' schedule "cosine" or "constant"; all of them begin with the warm-up.

    Raises:
        ValueError: the warm-up is longer than the run.
    """
    if name == "linear":
        return linear_schedule(optimizer, warmup_steps, total_steps)
    kind = {"cosine": "cosine", "constant": "constant_with_warmup"}[name]
    return get_scheduler(kind, optimizer, _warmup(warmup_steps, total_steps), total_steps)


def _warmup(steps: float, total_steps: int) -> int:
    warmup = _steps_of(steps, total_steps)
    if warmup > total_steps:
        raise UserError(f"--warmup_steps {warmup} is more than the {total_steps} steps of the run")
    return warmup


def _steps_of(steps: float, total_steps: int) -> int:
    """A number of steps that is given as such or, below 1, as a share of all."""
    return round(steps * total_steps) if steps < 1 else round(steps)
