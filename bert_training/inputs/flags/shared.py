"""The flags of all training scripts, named as in transformers' examples.

Steps are always optimiser steps; lengths include the special tokens.
"""

from dataclasses import dataclass, field
from typing import Literal

from bert_training.inputs.flags.checks import at_least, refuse_idle
from bert_training.inputs.flags.natures import AFTERWARDS, CARD, CHOICE, EVALUATION, FIXED, FREE, SERIES, START, flag
from bert_training.inputs.flags.trackers import NONE, check_trackers
from tokenization.errors import UserError


@dataclass
class SharedArguments:
    """The flags of all training scripts. Values out of range, or without effect, raise ValueError here and below."""

    output_dir: str = field(
        metadata={"help": "Folder of this run: its logs, its checkpoints and the finished model.", "nature": FREE}
    )
    config: str | None = flag(
        None, "YAML or JSON file with flags, flat: 'learning_rate: 5e-5'. Flags on the command line win.", FREE
    )
    seed: int = flag(
        42, "Seed of the weights, the order of the data, the masks and dropout.", FIXED | CARD | SERIES | EVALUATION
    )
    num_train_epochs: float = flag(
        3.0, "Passes over the training data; the last batch is filled up from the next pass.", CARD
    )
    max_steps: int = flag(-1, "Number of optimiser steps; if positive, it overrides --num_train_epochs.", CARD)
    per_device_train_batch_size: int = flag(32, "Sequences per device in one forward pass.", CARD)
    per_device_eval_batch_size: int = flag(
        64, "Sequences per device in one forward pass of an evaluation.", FREE | EVALUATION
    )
    gradient_accumulation_steps: int = flag(1, "Forward passes per optimiser step.", CARD)
    learning_rate: float = flag(5e-5, "Peak learning rate, reached after the warm-up.", FIXED | CARD)
    weight_decay: float = flag(0.01, "Decoupled weight decay; biases and LayerNorm are exempt.", FIXED | CARD)
    optimizer: Literal["adamw", "bert_adamw"] = flag(
        "adamw",
        "adamw: torch's AdamW. bert_adamw: the AdamW of google-research/bert, without bias correction.",
        FIXED,
    )
    warmup_steps: float = flag(
        0.1, "Length of the linear warm-up: a number of steps or, below 1, a share of all steps.", FIXED | CARD
    )
    max_grad_norm: float = flag(1.0, "Global gradient norm to clip to; 0: no clipping.", FIXED | CARD)
    mixed_precision: Literal["no", "bf16", "fp16", "auto"] | None = flag(
        None,
        "Type of autocast. auto: bf16 where the machine is clearly faster with it, otherwise no; a run that is resumed "
        "keeps its type. Default: what accelerate launch was configured with, otherwise auto on a CPU for fine-tuning "
        "and for --recipe fast, and no (float32) for all else.",
        EVALUATION,
    )
    logging_steps: int = flag(50, "Number of steps between two training records.", FREE)
    eval_steps: int = flag(0, "Number of steps between two evaluations; 0: evaluate once per epoch.", CHOICE)
    save_steps: int = flag(500, "Steps between two checkpoints; 0: save only the finished model.", FREE)
    save_total_limit: int = flag(2, "Number of newest checkpoints to keep; 0: keep all.", FREE)
    resume_from_checkpoint: str | None = flag(None, "A checkpoint folder, or 'auto' for the newest one.", FREE)
    report_to: list[str] = flag(
        [NONE],
        "Where records are sent besides metrics.jsonl: one or more trackers of Accelerate that are installed, such as "
        "tensorboard, wandb, mlflow, trackio.",
        FREE,
        nargs="+",
    )
    dataloader_num_workers: int = flag(0, "Processes that prepare batches; 0: the training process.", FREE)
    torch_compile: bool = flag(False, "Compile the model with torch.compile.")
    gradient_checkpointing: bool = flag(False, "Recompute layers in the backward pass to save memory.")
    model_impl: Literal["repro", "transformers"] = flag(
        "repro", "The network: that of this project, or that of transformers as a control.", FIXED | START | EVALUATION
    )
    unpad_inputs: Literal["auto", "true", "false"] = flag(
        "auto",
        "auto: skip padding where that is faster: on a CPU if it is over a tenth of the batch; on a GPU any padding of "
        "a large batch in half precision, and several thousand tokens of others; true: always skip it; false: compute "
        "it. auto and true also leave padding out of the loss of question answering.",
        FIXED | EVALUATION,
    )
    fast_dropout: bool = flag(
        True,
        "On a CPU, draw fewer random numbers for dropout than torch does, and train attention in bf16 by separate "
        "products instead of torch's kernel.",
        FIXED,
    )
    push_to_hub: bool = flag(
        False, "Upload the finished model, its card and its records, but no predictions, to the Hub.", FREE | AFTERWARDS
    )
    hub_model_id: str | None = flag(None, "Repository name for --push_to_hub.", FREE | AFTERWARDS)
    hub_private_repo: bool = flag(
        True, "Whether a new repository is private; an existing one stays as it is.", FREE | AFTERWARDS
    )
    hub_dry_run: bool = flag(False, "With --push_to_hub, only list what would be uploaded.", FREE | AFTERWARDS)

    @property
    def leaves_type_to_cpu(self) -> bool:
        """Whether --mixed_precision is auto by default on a CPU."""
        return False

    @property
    def hub_repository(self) -> str | None:
        """The repository to which the finished folder is uploaded; None without --push_to_hub."""
        return self.hub_model_id if self.push_to_hub else None

    def __post_init__(self) -> None:
        check_trackers(self.report_to)
        at_least(self, 1, "per_device_train_batch_size", "per_device_eval_batch_size")
        at_least(self, 1, "gradient_accumulation_steps", "logging_steps")
        at_least(self, 0, "eval_steps", "save_steps", "save_total_limit", "dataloader_num_workers", "seed")
        at_least(self, 0, "learning_rate", "weight_decay", "warmup_steps", "max_grad_norm")
        if self.max_steps == 0 or self.max_steps < -1:
            raise UserError(f"--max_steps must be positive, or -1 to count epochs; got {self.max_steps}")
        if self.max_steps < 0 and self.num_train_epochs <= 0:
            raise UserError(f"--num_train_epochs must be above 0; got {self.num_train_epochs}")
        if self.push_to_hub and not self.hub_model_id:
            raise UserError("--push_to_hub needs --hub_model_id USER/NAME")
        hub = ("hub_dry_run", "hub_model_id", "hub_private_repo")
        refuse_idle(self, (not self.push_to_hub and "without --push_to_hub", hub))
