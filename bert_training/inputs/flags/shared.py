"""The flags of all training scripts, named as in transformers' examples.

Steps are always optimiser steps; lengths include the special tokens.
"""

import itertools
import os
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from typing import Any, Literal

from bert_training.inputs.flags.parsing import APART, CARD, EVALUATION, FIXED, FREE, Flags, flag

NONE = "none"  # the value of --report_to without a tracker


@dataclass
class SharedArguments(Flags):
    """The flags of all training scripts.

    Attributes:
        output_dir: Folder of this run: its logs, its checkpoints and the finished model.
        config: YAML or JSON file with flags, flat: 'learning_rate: 5e-5'. Flags on the command line win.
        seed: Seed of the weights, the order of the data, the masks and dropout.
        num_train_epochs: Passes over the training data; the last batch is filled up from the next pass.
        max_steps: Number of optimiser steps; if positive, it overrides --num_train_epochs.
        per_device_train_batch_size: Sequences per device in one forward pass.
        per_device_eval_batch_size: Sequences per device in one forward pass of an evaluation.
        gradient_accumulation_steps: Forward passes per optimiser step.
        learning_rate: Peak learning rate, reached after the warm-up; its default, for 768 units, is scaled.
        weight_decay: Decoupled weight decay; biases and LayerNorm are exempt.
        warmup_steps: Length of the linear warm-up: a number of steps or, below 1, a share of all steps.
        max_grad_norm: Global gradient norm to clip to; 0: no clipping.
        mixed_precision: Type of autocast. auto: bf16 where the hardware multiplies in it, otherwise no; a run
            that is resumed keeps its type. Default: what accelerate launch was configured with, otherwise auto on a CPU
            for fine-tuning and for --recipe fast, and no (float32) for all else.
        logging_steps: Number of steps between two training records.
        eval_steps: Number of steps between two evaluations; 0: evaluate once per epoch.
        save_steps: Steps between two checkpoints; 0: save only the finished model.
        save_total_limit: Number of newest checkpoints to keep; 0: keep all.
        resume_from_checkpoint: A checkpoint folder, or 'auto' for the newest one.
        report_to: Where records are sent besides metrics.jsonl: one or more trackers of Accelerate that are installed,
            such as tensorboard, wandb, mlflow, trackio.
        dataloader_num_workers: Processes that prepare batches; 0: the training process.
        torch_compile: Compile the model with torch.compile.
        gradient_checkpointing: Recompute layers in the backward pass to save memory.
        model_impl: The network: that of this project, or that of transformers as a control.
        push_to_hub: Upload the finished model, its card and its records, but no predictions, to the Hub; a new
            repository is private.
        hub_model_id: Repository name for --push_to_hub.
    """

    output_dir: str = flag(MISSING, FREE)
    config: str | None = flag(None, FREE)
    seed: int = flag(42, FIXED | CARD | APART | EVALUATION, at_least=0)
    num_train_epochs: float = flag(3.0, CARD, above=0)
    max_steps: int = flag(-1, CARD, at_least=1)
    per_device_train_batch_size: int = flag(32, CARD, at_least=1)
    per_device_eval_batch_size: int = flag(64, FREE | EVALUATION, at_least=1)
    gradient_accumulation_steps: int = flag(1, CARD, at_least=1)
    learning_rate: float = flag(5e-5, FIXED | CARD, at_least=0)
    weight_decay: float = flag(0.01, FIXED | CARD, at_least=0)
    warmup_steps: float = flag(0.1, FIXED | CARD, at_least=0)
    max_grad_norm: float = flag(1.0, FIXED | CARD, at_least=0)
    mixed_precision: Literal["no", "bf16", "fp16", "auto"] | None = flag(None, EVALUATION)
    logging_steps: int = flag(50, FREE, at_least=1)
    eval_steps: int = flag(0, at_least=0)
    save_steps: int = flag(500, FREE, at_least=0)
    save_total_limit: int = flag(2, FREE, at_least=0)
    resume_from_checkpoint: str | None = flag(None, FREE)
    report_to: list[str] = flag([NONE], FREE)
    dataloader_num_workers: int = flag(0, FREE, at_least=0)
    torch_compile: bool = flag(False)
    gradient_checkpointing: bool = flag(False)
    model_impl: Literal["repro", "transformers"] = flag("repro", FIXED | APART | EVALUATION)
    push_to_hub: bool = flag(False, FREE | APART, needs=("hub_model_id",))
    hub_model_id: str | None = flag(None, FREE | APART, needs=("push_to_hub",))

    def choices_of_recipe(self) -> dict[str, Any]:
        """What a recipe has set of these flags, also where a flag that was given has won; {} without one."""
        return {}

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
        if self.report_to != [NONE]:
            yield from tracker_problems(self.report_to)


def tracker_problems(names: list[str]) -> Iterator[str]:
    """What is wrong unless the names are those of trackers that are installed, each once."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers  # takes seconds, for this flag only

    installed = sorted(map(str, get_available_trackers()))
    has = f"installed: {', '.join(installed)}" if installed else "none is installed here"
    for name in names:
        if name not in LOGGER_TYPE_TO_CLASS and name != NONE:
            known = ", ".join(sorted(LOGGER_TYPE_TO_CLASS))
            yield f"--report_to {name}: expected {NONE} or trackers out of {known} ({has})"
        elif name != NONE and name not in installed:
            yield f"--report_to {name}: not installed; pip install {name}, or leave it out ({has})"
    if NONE in names or len({*names}) < len(names):
        yield f"--report_to {' '.join(names)}: expected {NONE} alone, or every tracker once"


# transformers' examples distil DistilBERT with these numbers, in pre-training (Sanh et al. 2019; 5 parts of the
# teacher's term to 2 parts of the masked LM) and on SQuAD.
TEMPERATURE = 2.0
WEIGHT_OF_PRETRAINING, WEIGHT_OF_FINE_TUNING = round(5 / 7, 2), 0.5


@dataclass
class StudentArguments(SharedArguments):
    """The flags of all scripts that train a student.

    Attributes:
        teacher: A finished model to learn from: folder or Hub name, with the head, the vocabulary and, if there are
            classes, the classes of this training.
        teacher_weight: Weight of the teacher's term in the loss, above 0; the labels have the rest, up to 1. Default
            with --teacher: 0.5, in pre-training 0.71.
        keep_layers: Begin with these layers of --model_name_or_path, or without it of --teacher, counted from 0: 0,2,4.
            Embeddings, pooler and head are kept. Default: all layers.
    """

    teacher: str | None = flag(None, FIXED | CARD)
    teacher_weight: float | None = flag(None, FIXED | CARD, above=0, at_most=1, needs=("teacher",))
    keep_layers: str | None = flag(
        None, FIXED | CARD, needs=("model_name_or_path or teacher",), excludes=("config_name",)
    )

    @property
    def default_weight(self) -> float:
        """The default of --teacher_weight."""
        return WEIGHT_OF_FINE_TUNING

    @property
    def kept_layers(self) -> tuple[int, ...] | None:
        """The numbers in --keep_layers; None for all layers."""
        return None if self.keep_layers is None else layer_numbers(self.keep_layers)

    def problems(self) -> Iterator[str]:
        """Layers that are no ascending numbers, and a teacher that would be overwritten."""
        yield from super().problems()
        if self.keep_layers is not None and not layer_numbers(self.keep_layers):
            yield f"--keep_layers: expected ascending numbers of layers from 0, such as 0,2,4; got {self.keep_layers!r}"
        if self.teacher and os.path.realpath(self.teacher) == os.path.realpath(self.output_dir):
            yield f"--teacher {self.teacher} is the output folder, which is overwritten; give another --output_dir"

    def settle(self) -> None:
        """The weight of a teacher, and the model whose layers are kept."""
        super().settle()
        if self.teacher and self.teacher_weight is None:
            self.teacher_weight = self.default_weight
        if self.kept_layers:
            given: Any = self  # the two scripts declare the names of weights themselves
            self.keep_layers = ",".join(map(str, self.kept_layers))
            given.model_name_or_path = given.model_name_or_path or self.teacher


def layer_numbers(text: str) -> tuple[int, ...]:
    """The numbers in a value of --keep_layers; empty for other than ascending numbers from 0."""
    words = [word.strip() for word in text.split(",")]
    numbers = tuple(int(word) for word in words if word.isascii() and word.isdigit())
    ascending = all(before < after for before, after in itertools.pairwise(numbers))
    return numbers if len(numbers) == len(words) and ascending else ()
