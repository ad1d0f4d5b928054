"""The flags of a student: which teacher it learns from, and which layers it begins with (docs/distil.md)."""

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_training.inputs.flags.natures import CARD, FIXED, FREE, flag
from bert_training.inputs.flags.shared import SharedArguments
from tokenization.errors import UserError

# transformers' examples distil DistilBERT with these numbers, in pre-training (Sanh et al. 2019; 5 parts of the
# teacher's term to 2 parts of the masked LM) and on SQuAD.
TEMPERATURE = 2.0
WEIGHT_OF_PRETRAINING, WEIGHT_OF_FINE_TUNING = round(5 / 7, 2), 0.5
# TinyBERT gives all its terms, hidden states among them, the weight 1 (Jiao et al. 2020, section 3).
WEIGHT_OF_HIDDEN_STATES = 1.0
OF_STUDENTS = ("teacher", "keep_layers")


@dataclass
class StudentArguments(SharedArguments):
    """The flags of all scripts that train a student."""

    teacher: str | None = flag(
        None,
        "A finished model to learn from: folder or Hub name, with the head, the vocabulary and, if there are classes, "
        "the classes of this training.",
        FIXED | CARD,
    )
    teacher_temperature: float | None = flag(
        None,
        "What the scores of teacher and student are divided by before they are compared; more shows more of what the "
        f"teacher holds for unlikely. Default with --teacher: {TEMPERATURE:g}.",
        FIXED | CARD,
    )
    teacher_weight: float | None = flag(
        None,
        "Weight of the teacher's term in the loss, above 0; the labels have the rest, up to 1. Default with --teacher: "
        f"{WEIGHT_OF_FINE_TUNING:g}, in pre-training {WEIGHT_OF_PRETRAINING:g}.",
        FIXED | CARD,
    )
    keep_layers: str | None = flag(
        None,
        "Begin with these layers of --model_name_or_path, or without it of --teacher, counted from 0: 0,2,4. "
        "Embeddings, pooler and head are kept. Default: all layers.",
        FIXED | CARD,
    )

    @property
    def default_weight(self) -> float:
        """The default of --teacher_weight."""
        return WEIGHT_OF_FINE_TUNING

    @property
    def kept_layers(self) -> tuple[int, ...] | None:
        """The numbers in --keep_layers; None for all layers."""
        return None if self.keep_layers is None else layer_numbers(self.keep_layers)

    def __post_init__(self) -> None:
        given: Any = self  # the two scripts declare the names of weights themselves
        if self.keep_layers is not None:
            self.keep_layers = ",".join(map(str, layer_numbers(self.keep_layers)))
            if given.config_name:
                raise UserError("--keep_layers keeps given weights, but --config_name makes new ones; drop one")
            given.model_name_or_path = given.model_name_or_path or self.teacher
            if not given.model_name_or_path:
                raise UserError("--keep_layers needs the layers of a model: give --model_name_or_path or --teacher")
        super().__post_init__()
        self._check_teacher()

    def _check_teacher(self) -> None:
        if self.teacher is None:
            for name in ("teacher_temperature", "teacher_weight", *self.others_of_teacher()):
                if getattr(self, name) is not None:
                    raise UserError(f"--{name} has no effect without --teacher; leave it out")
            return
        self.teacher_temperature = TEMPERATURE if self.teacher_temperature is None else self.teacher_temperature
        self.teacher_weight = self.default_weight if self.teacher_weight is None else self.teacher_weight
        if not 0 < self.teacher_temperature < float("inf"):
            raise UserError(f"--teacher_temperature must be above 0 and finite; got {self.teacher_temperature}")
        if not 0 < self.teacher_weight <= 1:
            raise UserError(f"--teacher_weight must be above 0 and at most 1; got {self.teacher_weight}")
        if os.path.realpath(self.teacher) == os.path.realpath(self.output_dir):
            raise UserError(
                f"--teacher {self.teacher} is the output folder, which would be overwritten; give another --output_dir"
            )

    def others_of_teacher(self) -> tuple[str, ...]:
        """Further flags, None by default, that have no effect without a teacher."""
        return ()


@dataclass
class TaughtArguments(StudentArguments):
    """The flags of the scripts that fine-tune a student."""

    teacher_cache: str | None = flag(
        None, "Folder for what the teacher says of the training data. Default: OUTPUT_DIR/features.", FREE
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher and self.teacher_cache is None:
            # The runs of a series, which are made from these flags, share it.
            self.teacher_cache = str(Path(self.output_dir) / "features")

    def others_of_teacher(self) -> tuple[str, ...]:
        """The cache of a teacher's outputs."""
        return ("teacher_cache",)


def layer_numbers(text: str) -> tuple[int, ...]:
    """The numbers in a value of --keep_layers. Raises ValueError for other than ascending numbers from 0."""
    words = [word.strip() for word in text.split(",")]
    numbers = tuple(int(word) for word in words if word.isascii() and word.isdigit())
    if len(numbers) < len(words) or any(after <= before for before, after in itertools.pairwise(numbers)):
        raise UserError(f"--keep_layers: expected ascending numbers of layers from 0, such as 0,2,4; got {text!r:.60}")
    return numbers
