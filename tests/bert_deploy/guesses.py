"""What one reading says, with no other text beside it; of a classifier, class by class."""

from collections.abc import Callable
from typing import Any, NamedTuple

from bert_deploy import readings
from bert_deploy.folder import OpenedModel


class Guess(NamedTuple):
    """A label and its probability, or a score; where a text has several labels, whether it has this one."""

    text: str
    probability: float
    given: bool | None = None
    threshold: float | None = None
    lost: int = 0


def alone(reading: Callable[..., readings.Steps[Any]], opened: OpenedModel, *args: Any, **options: Any) -> Any:
    """The value of a reading; its error is raised."""
    (said,) = readings.run(opened, [reading(opened, *args, **options)])
    if isinstance(said, Exception):
        raise said
    return said


def classify(opened: OpenedModel, text: str, second: str | None = None) -> list[Guess]:
    """The classes of a text or a pair, most probable first, or its score."""
    said = alone(readings.verdict, opened, text, second).ranked()
    if said.score is not None:
        return [Guess(said.names[0], said.score, lost=said.lost)]
    given, limits = (said.given, said.thresholds) if said.thresholds else ([None] * len(said.names),) * 2
    return [Guess(*one, said.lost) for one in zip(said.names, said.shares.tolist(), given, limits, strict=True)]
