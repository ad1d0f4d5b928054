"""torch's Muon for the matrices of the encoder's layers and AdamW for all other weights, as one optimiser.

Muon (Jordan et al. 2024) takes the running mean of a matrix's gradients and makes its singular values nearly equal,
by five steps of a Newton-Schulz iteration in bfloat16; a processor that does not compute in bfloat16 is slow at it.
Embeddings, biases, LayerNorm and heads are left to AdamW, as its authors advise. lab/notes/log.md has a first trial.
"""

import re
from typing import Any

import torch
from accelerate.utils import DistributedType
from torch import nn

from bert_training.engine.optimizer import BETAS, EPS, parameter_groups
from bert_training.engine.run import Run
from bert_training.inputs.flags.shared import SharedArguments
from tokenization.errors import UserError

MATRIX = re.compile(r"(^|\.)encoder\.layer\.\d+\..*weight$")


class MuonWithAdamW(torch.optim.Optimizer):
    """Two optimisers that are saved, restored and scheduled as one.

    They share the state and the groups of this object: the first groups are AdamW's, the last one is Muon's.
    """

    def __init__(self, adamw: torch.optim.AdamW, muon: torch.optim.Muon) -> None:
        self.parts: tuple[torch.optim.Optimizer, ...] = (adamw, muon)
        super().__init__([*adamw.param_groups, *muon.param_groups], {})
        self._share()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Let both optimisers take a step."""
        assert closure is None  # the loop computes the gradients itself
        for part in self.parts:
            part.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of both optimisers."""
        super().load_state_dict(state_dict)  # it replaces the state and the groups by new objects
        self._share()

    def _share(self) -> None:
        first = 0
        for part in self.parts:
            last = first + len(part.param_groups)
            part.state, part.param_groups = self.state, self.param_groups[first:last]
            first = last


def create_muon(
    model: nn.Module, learning_rate: float, muon_learning_rate: float, weight_decay: float
) -> MuonWithAdamW:
    """The optimiser of a network.

    Args:
        learning_rate: of AdamW.
        muon_learning_rate: of Muon, which multiplies it by the root of rows / columns where there are more rows.
        weight_decay: for the matrices and for AdamW's weights except biases and LayerNorm.
    """
    named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    matrices = [weight for name, weight in named if MATRIX.search(name) and weight.dim() == 2]
    known = set(map(id, matrices))
    groups = parameter_groups(model, weight_decay)
    for group in groups:
        group["params"] = [weight for weight in group["params"] if id(weight) not in known]
    adamw = torch.optim.AdamW(groups, lr=learning_rate, betas=BETAS, eps=EPS, fused=True)
    return MuonWithAdamW(adamw, torch.optim.Muon(matrices, lr=muon_learning_rate, weight_decay=weight_decay))


def check_muon(run: Run[SharedArguments]) -> None:
    """Raise ValueError under FSDP, where each process holds only a part of every matrix."""
    if run.accelerator.distributed_type == DistributedType.FSDP:
        raise UserError("--optimizer muon needs whole matrices, which FSDP divides; leave one of the two out")
