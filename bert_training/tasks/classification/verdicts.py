"""From the logits of a text to what a finished model says of it: its class, its labels, or its score.

``bert-repro ask``, the page and the service say what ``judge_of`` finds, with the temperature and the thresholds that
are stored with the model.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from transformers import PretrainedConfig

from bert_training.tasks.classification.abstention import stored_abstention
from bert_training.tasks.classification.calibration import probabilities as softmax
from bert_training.tasks.classification.multi_label_scores import (
    USUAL,
    gives,
    labels_of,
    probabilities,
    stored_thresholds,
)
from bert_training.tasks.classification.trained_for import ABSTAIN_BELOW, SEVERAL_LABELS, stored_temperature
from tokenization.errors import UserError

DIGITS = 6


class Verdict(NamedTuple):
    """What a model says of a text.

    Attributes:
        names: of its classes, or of its score.
        shares: their probabilities; of a score, nothing.
        thresholds: of a model that gives a text several labels, those of the labels; None for others.
        score: of a regression.
        lost: how many tokens of the text were not read.
        below: the highest probability below which the text has none of the classes.
    """

    names: list[str]
    shares: np.ndarray
    thresholds: list[float] | None = None
    score: float | None = None
    lost: int = 0
    below: float | None = None

    @property
    def given(self) -> list[bool]:
        """Of several labels, which the text has."""
        return gives(self.shares, self.thresholds or ()).tolist()

    def ranked(self) -> "Verdict":
        """The same with the most probable class or label first."""
        if self.score is not None:
            return self
        order = np.argsort(-self.shares, kind="stable")
        limits = None if self.thresholds is None else [self.thresholds[number] for number in order]
        names = [self.names[number] for number in order]
        return self._replace(names=names, shares=self.shares[order], thresholds=limits)

    def record(self) -> dict[str, Any]:
        """The fields that programs read, with rounded numbers."""
        if self.score is not None:
            return {"score": round(self.score, DIGITS)} | not_read(self.lost)
        shares = {name: round(float(share), DIGITS) for name, share in zip(self.names, self.shares, strict=True)}
        if self.thresholds is None:
            best, none = int(self.shares.argmax()), self.shares.max() < (self.below or 0)
            said: dict[str, Any] = {"label": None if none else self.names[best]}
            said |= {} if self.below is None else {ABSTAIN_BELOW: round(self.below, DIGITS)}
        else:
            said = {"labels": labels_of(self.shares, self.thresholds, self.names)}
        return said | {"probabilities": shares} | not_read(self.lost)


def not_read(lost: int) -> dict[str, int]:
    """The field of an answer about a text of which so many tokens were not read; none if all were."""
    return {"tokens_not_read": lost} if lost else {}


def judge_of(config: PretrainedConfig) -> Callable[[np.ndarray], Verdict]:
    """A function from the logits (C,) of a text to what the model says of it; what is stored is read once.

    Raises:
        ValueError: what is stored of temperatures and thresholds is damaged, or the model gives several scores; the
            function, if logits are not finite.
    """
    names = class_names(config)
    several, score = config.problem_type == SEVERAL_LABELS, is_regression(config)
    if score and len(names) > 1:
        listed = ", ".join(names)
        raise UserError(f"the model gives {len(names)} scores ({listed}), and one is expected here; use transformers")
    thresholds = stored_thresholds(config) or [USUAL] * len(names) if several else None
    temperature = None if several or score else stored_temperature(config)
    below = None if several or score else stored_abstention(config)

    def judge(logits: np.ndarray) -> Verdict:
        if not np.isfinite(logits).all():
            raise UserError(
                "the outputs of the model are not finite; its training diverged, or its weights are damaged"
            )
        if several:
            return Verdict(names, probabilities(logits), thresholds)
        if score:
            return Verdict(names, np.zeros(0), score=float(logits[0]))
        (shares,) = softmax(logits[None], temperature)
        return Verdict(names, shares, below=below)

    return judge


def class_names(config: PretrainedConfig) -> list[str]:
    """The names of the outputs, as the config has them."""
    names = cast("dict[int, str]", config.id2label)
    return [str(names.get(number, f"LABEL_{number}")) for number in range(cast("int", config.num_labels))]


def is_regression(config: PretrainedConfig) -> bool:
    """Whether a model gives one score instead of classes."""
    return config.problem_type != SEVERAL_LABELS and (config.num_labels == 1 or config.problem_type == "regression")
