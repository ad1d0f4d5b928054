"""What a classifier says of a text, class by class."""

from typing import NamedTuple

from bert_deploy import readings
from bert_deploy.folder import OpenedModel


class Guess(NamedTuple):
    """A label and its probability, or a score; where a text has several labels, whether it has this one."""

    text: str
    probability: float
    given: bool | None = None
    threshold: float | None = None
    lost: int = 0


def classify(opened: OpenedModel, text: str, second: str | None = None) -> list[Guess]:
    """The classes of a text or a pair, most probable first, or its score."""
    said = readings.verdict(opened, text, second).ranked()
    if said.score is not None:
        return [Guess(said.names[0], said.score, lost=said.lost)]
    given, limits = (said.given, said.thresholds) if said.thresholds else ([None] * len(said.names),) * 2
    return [Guess(*one, said.lost) for one in zip(said.names, said.shares.tolist(), given, limits, strict=True)]
