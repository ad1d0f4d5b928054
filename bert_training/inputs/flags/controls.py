"""The flags of the fine-tuning scripts that control how a network is trained (docs/classify.md, "Controls")."""

from dataclasses import dataclass
from typing import Literal

from bert_training.inputs.flags.checks import at_least
from bert_training.inputs.flags.natures import CARD, FIXED, flag
from bert_training.inputs.flags.shared import SharedArguments
from bert_training.inputs.flags.teachers import OF_STUDENTS
from tokenization.errors import UserError

CONTROLS = ("layer_decay", "freeze_layers", "average_last", "lr_scheduler")


@dataclass
class ControlArguments(SharedArguments):
    """The flags that say which weights are trained, how fast, and which are kept."""

    layer_decay: float | None = flag(
        None,
        "Factor by which the learning rate falls from the head to the highest layer, and from each layer to the next "
        "below, down to the embeddings. Default: all have the same rate.",
        FIXED | CARD,
    )
    freeze_layers: int | None = flag(
        None,
        "Train neither the embeddings nor this many of the lowest layers; 0: only the embeddings are frozen. "
        "Default: everything is trained.",
        FIXED | CARD,
    )
    average_last: int | None = flag(
        None, "Keep the mean of the weights at this many last evaluations instead of the last weights.", FIXED | CARD
    )
    lr_scheduler: Literal["linear", "cosine", "constant"] = flag(
        "linear",
        "How the learning rate goes on after the warm-up: linear or cosine to 0, or constant.",
        FIXED | CARD,
        aliases=["--lr_scheduler_type"],
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            raise UserError(f"--layer_decay must be above 0 and at most 1; got {self.layer_decay}")
        if self.freeze_layers is not None:
            at_least(self, 0, "freeze_layers")
        if self.average_last is not None:
            at_least(self, 2, "average_last")


def refuse_without_training(args: ControlArguments) -> None:
    """Raise ValueError for a flag of CONTROLS or of a student in a command without training data."""
    for name in (*CONTROLS, *OF_STUDENTS):
        default = getattr(type(args), name, None)  # not every script has a teacher
        if getattr(args, name, default) != default:
            raise UserError(f"--{name} has no effect without training data; leave it out")
