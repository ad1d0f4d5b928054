"""What a checkpoint was fine-tuned for, as far as its folder says it; without training data, the model decides."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # columns are checked before torch and transformers are loaded
    from transformers import BertConfig, PretrainedConfig

STORED = "fine_tuning"
"""The field of a finished model's config.json that says what the model was trained with."""
SEVERAL_LABELS = "multi_label_classification"
TEMPERATURE = "temperature"
"""Of what is stored, the number by which logits are divided before the softmax (``calibration.py``)."""
ABSTAIN_BELOW = "abstain_below"
"""Of what is stored, the probability below which a text gets no class (``abstention.py``)."""


@dataclass(frozen=True)
class TrainedFor:
    """What is known of a checkpoint's head; by default nothing.

    Attributes:
        names: the names of its classes, or of its score; None if they are transformers' LABEL_0, LABEL_1, ...
        outputs: the number of its outputs if it is a head for texts; 0 if it is not known to be one.
        scores: whether it predicts a score (a regression).
        several_labels: whether it gives a text several labels.
        other_head: the name of the class of the checkpoint if that is a head for something else, or none at all.
        texts: how many texts an example had, if that is known.
        text_columns, label_column, id_column: the columns that it was trained on, if they are known.
        hot_columns: the columns of 0 and 1 that it was trained on, one for each label, if the labels were such.
        label_separator: what stood between the labels of a cell, if the labels were such.
        delimiter: what separated the cells of their .csv.
        abstains: whether it gives some texts none of its classes.
    """

    names: tuple[str, ...] | None = None
    outputs: int = 0
    scores: bool = False
    several_labels: bool = False
    other_head: str = ""
    texts: int | None = None
    text_columns: tuple[str, ...] = ()
    label_column: str | None = None
    hot_columns: tuple[str, ...] = ()
    label_separator: str | None = None
    id_column: str | None = None
    delimiter: str | None = None
    abstains: bool = False

    @property
    def unnamed(self) -> bool:
        """Whether it has classes without names of their own."""
        return self.names is None and self.outputs > 1

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, LABEL_0 and so on if they have no others; () if there are none."""
        if self.scores:
            return ()
        return self.names or tuple(f"LABEL_{number}" for number in range(self.outputs if self.unnamed else 0))


def trained_for(config: "BertConfig", name: str | None, class_name: str) -> TrainedFor:
    """What the checkpoint ``name`` was trained for.

    Args:
        config: its configuration; of a network with random weights, if ``name`` is None.
        class_name: the class of network that reads texts as the flags say, such as BertForSequenceClassification.
    """
    from bert_training.inputs.models import config_labels

    names = config_labels(config)
    if name is None:
        return TrainedFor(names)
    architectures = config.architectures or []
    fits = class_name in architectures or not architectures
    stored = stored_facts(config) if fits else {}
    label = stored.get("label_column")
    return TrainedFor(
        names=names,
        outputs=len(config.id2label or {}) if fits else 0,
        scores=fits and (len(config.id2label or {}) == 1 or config.problem_type == "regression"),
        several_labels=config.problem_type == SEVERAL_LABELS,
        other_head="" if fits else ", ".join(map(str, architectures)),
        texts=stored.get("texts_per_example"),
        text_columns=tuple(stored.get("text_columns") or ()),
        label_column=label if isinstance(label, str) else None,
        hot_columns=tuple(label) if isinstance(label, list) else (),
        label_separator=stored.get("label_separator"),
        id_column=stored.get("id_column"),
        delimiter=stored.get("delimiter"),
        abstains=stored.get(ABSTAIN_BELOW) is not None,
    )


def stored_facts(config: "PretrainedConfig") -> dict[str, Any]:
    """What a finished model's config stores of its training; {} for other models."""
    stored = getattr(config, STORED, None)
    return dict(stored) if isinstance(stored, Mapping) else {}


def store_facts(config: "PretrainedConfig", **facts: Any) -> None:
    """Add to what the config stores of the training."""
    setattr(config, STORED, stored_facts(config) | facts)


def stored_temperature(config: "PretrainedConfig") -> float | None:
    """The temperature of the model's probabilities; None if it has none."""
    return stored_facts(config).get(TEMPERATURE)
