"""None of these: the probability below which a classifier gives a text none of its classes.

A softmax gives every text a class, also "what is the capital of France?" in a model of bank mails. With ``--calibrate
abstain`` the model abstains where its highest probability, over the temperature, is below a threshold
(Hendrycks and Gimpel 2017, arXiv:1610.02136). It passes through three stages:

1. Found on validation data by ``find_threshold``. Rows of the data without a label are texts of none of the classes;
   nothing is trained on them (``set_apart``).
2. Stored in the model's config, as ``fine_tuning["abstain_below"]``.
3. Read by ``stored_abstention`` for evaluations, predictions, ``bert-repro ask``, the service and its page.

``abstention`` says what a threshold costs and what it saves. An example with 4 rows of the classes and 2 of none:

    highest probability   0.9 right   0.8 none   0.7 right   0.6 wrong   0.4 right   0.3 none
    below 0.5             coverage 3/4, accuracy of the answered 2/3, right of all rows 2/4, of none left out 1/2
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from transformers import PretrainedConfig

from bert_training.tasks.classification.labelled_texts import Examples
from bert_training.tasks.classification.splits import part_of
from bert_training.tasks.classification.trained_for import ABSTAIN_BELOW, stored_facts

OTHER = "other"
"""The split of the texts of none of the classes in training and validation data; in test data, ``test_other``."""
KEPT = 0.95
COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)


def set_apart(splits: Mapping[str, Examples]) -> dict[str, Examples]:
    """The splits, with rows that have no label in splits of their own; a split without any label stays whole."""
    found: dict[str, Examples] = {}
    others: list[Examples] = []
    for split, part in splits.items():
        none = [row for row, label in enumerate(part.labels or []) if label in (None, "")]
        if not none or len(none) == len(part):
            found[split] = part
            continue
        labelled = sorted({*range(len(part))}.difference(none))
        found[split], other = part.select(labelled), part_of(part, none, "rows without a label")
        other.labels = other.weights = other.groups = None
        found[split].notes.append(f"texts of none of the classes: {len(none):,}, in a split of their own")
        if split.startswith("test"):
            found[f"{split}_{OTHER}"] = other
        else:
            others.append(other)
    return found | ({OTHER: Examples.joined(others)} if others else {})


def find_threshold(shares: np.ndarray, labels: Sequence[int], others: np.ndarray | None = None) -> float:
    """The threshold, from 0 to 1, of probabilities (rows, classes).

    With texts of none of the classes, the one with which most of all rows are treated rightly, as Larson et al. 2019
    (arXiv:1909.02027) choose it; so the share of such texts should be that of later use. Without them, the one that
    KEPT of the right answers reach.

    Args:
        labels: the classes of the rows.
        others: (rows, classes) the probabilities of texts of none of the classes.
    """
    highest = shares.max(axis=1)
    right = shares.argmax(axis=1) == np.asarray(labels)
    if others is None:
        return float(np.quantile(highest[right], 1 - KEPT, method="lower")) if right.any() else 0.0
    values = np.concatenate([[0.0], highest, others.max(axis=1)])
    gains = np.concatenate([[0], np.where(right, -1, 0), np.ones(len(others), dtype=int)])
    order = np.argsort(values, kind="stable")
    values, gained = values[order], gains[order].cumsum()
    last = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)  # of the rows with the same probability
    place = last[gained[last].argmax()]
    above = values[place + 1] if place + 1 < len(values) else 1.0
    return float((values[place] + above) / 2) if place else 0.0


def abstention(
    shares: np.ndarray, labels: Sequence[int], below: float, others: np.ndarray | None = None
) -> dict[str, Any]:
    """What the threshold ``below`` does, and as ``risk_coverage`` the same at the thresholds of COVERAGES.

    Each has the ``threshold``; ``coverage``, the share of the rows of the classes that are answered; ``accuracy``, that
    of these answers; ``right``, the share of all rows of the classes that are answered and right; and ``other_recall``,
    the share of the texts of none of the classes that get none.
    """
    highest = shares.max(axis=1)
    right = shares.argmax(axis=1) == np.asarray(labels)

    def effects(threshold: float) -> dict[str, float | None]:
        given = highest >= threshold
        found: dict[str, float | None] = {"threshold": threshold, "coverage": float(given.mean())}
        found |= {
            "accuracy": float(right[given].mean()) if given.any() else None,
            "right": float((right & given).mean()),
        }
        return found if others is None else found | {"other_recall": float((others.max(axis=1) < threshold).mean())}

    descending = np.sort(highest)[::-1]
    thresholds = [float(descending[max(0, round(share * len(descending)) - 1)]) for share in COVERAGES]
    return effects(below) | {"risk_coverage": [effects(threshold) for threshold in thresholds]}


def stored_abstention(config: PretrainedConfig) -> float | None:
    """The threshold that is stored with a model; None for one that gives every text a class."""
    return stored_facts(config).get(ABSTAIN_BELOW)
