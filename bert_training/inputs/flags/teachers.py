"""The flags of a student: which teacher it learns from, and which layers it begins with (docs/distil.md)."""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bert_training.inputs.flags.natures import CARD, FIXED, flag
from bert_training.inputs.flags.shared import SharedArguments

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
