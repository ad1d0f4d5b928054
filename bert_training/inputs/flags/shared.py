"""The flags of all training scripts, named as in transformers' examples.

Steps are always optimiser steps; lengths include the special tokens.
"""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from typing import Literal

from bert_training.inputs.flags.checks import Flags
from bert_training.inputs.flags.natures import APART, CARD, EVALUATION, FIXED, FREE, flag
from bert_training.inputs.flags.trackers import NONE, tracker_problems


@dataclass
class SharedArguments(Flags):
    """The flags of all training scripts."""

    output_dir: str = flag(MISSING, "Folder of this run: its logs, its checkpoints and the finished model.", FREE)
    config: str | None = flag(
        None, "YAML or JSON file with flags, flat: 'learning_rate: 5e-5'. Flags on the command line win.", FREE
    )
    seed: int = flag(
        42,
        "Seed of the weights, the order of the data, the masks and dropout.",
        FIXED | CARD | APART | EVALUATION,
        at_least=0,
    )
    num_train_epochs: float = flag(
        3.0, "Passes over the training data; the last batch is filled up from the next pass.", CARD, above=0
    )
    max_steps: int = flag(
        -1, "Number of optimiser steps; if positive, it overrides --num_train_epochs.", CARD, at_least=1
    )
    per_device_train_batch_size: int = flag(32, "Sequences per device in one forward pass.", CARD, at_least=1)
    per_device_eval_batch_size: int = flag(
        64, "Sequences per device in one forward pass of an evaluation.", FREE | EVALUATION, at_least=1
    )
    gradient_accumulation_steps: int = flag(1, "Forward passes per optimiser step.", CARD, at_least=1)
    learning_rate: float = flag(5e-5, "Peak learning rate, reached after the warm-up.", FIXED | CARD, at_least=0)
    weight_decay: float = flag(
        0.01, "Decoupled weight decay; biases and LayerNorm are exempt.", FIXED | CARD, at_least=0
    )
    warmup_steps: float = flag(
        0.1,
        "Length of the linear warm-up: a number of steps or, below 1, a share of all steps.",
        FIXED | CARD,
        at_least=0,
    )
    max_grad_norm: float = flag(1.0, "Global gradient norm to clip to; 0: no clipping.", FIXED | CARD, at_least=0)
    mixed_precision: Literal["no", "bf16", "fp16", "auto"] | None = flag(
        None,
        "Type of autocast. auto: bf16 where the machine is clearly faster with it, otherwise no; a run that is resumed "
        "keeps its type. Default: what accelerate launch was configured with, otherwise auto on a CPU for fine-tuning "
        "and for --recipe fast, and no (float32) for all else.",
        EVALUATION,
    )
    logging_steps: int = flag(50, "Number of steps between two training records.", FREE, at_least=1)
    eval_steps: int = flag(0, "Number of steps between two evaluations; 0: evaluate once per epoch.", at_least=0)
    save_steps: int = flag(500, "Steps between two checkpoints; 0: save only the finished model.", FREE, at_least=0)
    save_total_limit: int = flag(2, "Number of newest checkpoints to keep; 0: keep all.", FREE, at_least=0)
    resume_from_checkpoint: str | None = flag(None, "A checkpoint folder, or 'auto' for the newest one.", FREE)
    report_to: list[str] = flag(
        [NONE],
        "Where records are sent besides metrics.jsonl: one or more trackers of Accelerate that are installed, such as "
        "tensorboard, wandb, mlflow, trackio.",
        FREE,
    )
    dataloader_num_workers: int = flag(0, "Processes that prepare batches; 0: the training process.", FREE, at_least=0)
    torch_compile: bool = flag(False, "Compile the model with torch.compile.")
    gradient_checkpointing: bool = flag(False, "Recompute layers in the backward pass to save memory.")
    model_impl: Literal["repro", "transformers"] = flag(
        "repro", "The network: that of this project, or that of transformers as a control.", FIXED | APART | EVALUATION
    )
    push_to_hub: bool = flag(
        False,
        "Upload the finished model, its card and its records, but no predictions, to the Hub; a new repository is "
        "private.",
        FREE | APART,
        needs=("hub_model_id",),
    )
    hub_model_id: str | None = flag(None, "Repository name for --push_to_hub.", FREE | APART, needs=("push_to_hub",))

    @property
    def leaves_type_to_cpu(self) -> bool:
        """Whether --mixed_precision is auto by default on a CPU."""
        return False

    @property
    def hub_repository(self) -> str | None:
        """The repository to which the finished folder is uploaded; None without --push_to_hub."""
        return self.hub_model_id if self.push_to_hub else None

    def problems(self) -> Iterator[str]:
        """The trackers that are not known or not installed."""
        yield from tracker_problems(self.report_to)
