"""What a flag means for resume, model cards and reports: its nature, which is written next to its default."""

import enum
from dataclasses import Field, field, fields
from typing import Any, ClassVar, Protocol


class Nature(enum.Flag):
    """Natures of a flag, by which the rest of the project treats it; they are combined with ``|``.

    The report averages runs that agree in every flag except those marked FREE, START, DATA, AFTERWARDS or SERIES.
    Flags marked CHOICE must agree only if the best of several evaluations is kept. A flag that is neither FIXED nor
    FREE may change while the run is unfinished, unless that changes the number of steps or the global batch, which the
    checkpoint compares; a finished run refuses the change.

    Attributes:
        FIXED: must not change between a checkpoint and the run that resumes from it, because the data, the learning
            rate or the dropout masks of a step depend on it.
        FREE: may differ between two starts of a run, because the finished model does not depend on it.
        CARD: is listed among the hyperparameters of the model card.
        INSTANCE: decides, with the seed and the corpus, what the instances of pre-training are.
        START: says from which weights and which tokenizer a run started; the report has a column for each such start.
        DATA: says where the data is; whether two runs have the same data is decided by its hash.
        AFTERWARDS: concerns test data or uploads only; the scores that the report compares do not depend on it.
        SERIES: differs between the runs of a series, or describes the series.
        CHOICE: has an effect only if the best of several evaluations is chosen.
        EVALUATION: decides, besides the data, how finished weights are evaluated; ``verify`` gives these flags when it
            evaluates a folder again.
        STORED: says how the texts reach a fine-tuned model and which network reads them. It is stored in the config of
            the model and is the default of later commands that start from it (bert_training/tasks/stored_flags.py).
    """

    NONE = 0
    FIXED = enum.auto()
    FREE = enum.auto()
    CARD = enum.auto()
    INSTANCE = enum.auto()
    START = enum.auto()
    DATA = enum.auto()
    AFTERWARDS = enum.auto()
    SERIES = enum.auto()
    CHOICE = enum.auto()
    EVALUATION = enum.auto()
    STORED = enum.auto()


# Imported one by one, so that the list of flags stays readable.
FIXED, FREE, CARD, INSTANCE = Nature.FIXED, Nature.FREE, Nature.CARD, Nature.INSTANCE
START, DATA, SERIES, CHOICE = Nature.START, Nature.DATA, Nature.SERIES, Nature.CHOICE
AFTERWARDS, EVALUATION, STORED = Nature.AFTERWARDS, Nature.EVALUATION, Nature.STORED


class Dataclass(Protocol):
    """Any dataclass, such as the flags of a script."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def flag(default: Any, help_text: str, nature: Nature = Nature.NONE, **options: Any) -> Any:
    """A field of a dataclass of flags.

    Args:
        nature: what the flag means for the rest of the project. A class that redefines a flag of its base class, for
            example with another default, need not repeat it.
        options: for ``ArgumentParser.add_argument``.
    """
    metadata = {"help": help_text, "nature": nature, **options}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def natures(cls: type[Dataclass]) -> dict[str, Nature]:
    """The natures of every flag of a dataclass, including those that a base class gives to a flag of the same name."""
    found = {one.name: Nature.NONE for one in fields(cls)}
    for base in cls.__mro__:
        for name, one in vars(base).get("__dataclass_fields__", {}).items():
            found[name] |= one.metadata.get("nature", Nature.NONE)
    return found
