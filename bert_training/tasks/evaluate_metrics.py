"""The metrics of GLUE and of named entities as ``evaluate.Metric``s that need no internet connection.

``evaluate.load("glue", "mrpc")`` downloads its code; ``GlueMetric("mrpc")`` is called in the same way and returns the
same keys. It needs the package ``evaluate``; the scripts use ``bert_training.tasks.classification.metrics`` directly.
"""

from collections.abc import Sequence

import datasets
import evaluate
from numpy.typing import ArrayLike

from bert_training.tasks.classification.glue import GLUE_TASKS
from bert_training.tasks.classification.metrics import METRICS
from bert_training.tasks.ner.metrics import span_scores

_CITATION = "Wang et al. 2018, GLUE: A Multi-Task Benchmark and Analysis Platform, arXiv:1804.07461"


class _NumberMetric(evaluate.Metric):
    """A metric over numbers; ``names`` are the entries of METRICS to compute."""

    names: tuple[str, ...] = ()

    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("float64")
        return evaluate.MetricInfo(
            description=f"{', '.join(self._names())}, computed offline",
            citation=_CITATION,
            inputs_description="equally many predictions and references: class numbers, or scores",
            features=datasets.Features({"predictions": number, "references": number}),
        )

    def _names(self) -> tuple[str, ...]:
        return self.names

    def _compute(self, predictions: ArrayLike, references: ArrayLike) -> dict[str, float]:
        return {name: METRICS[name](predictions, references) for name in self._names()}


class Accuracy(_NumberMetric):
    """The share of correct class numbers, from 0 to 1."""

    names = ("accuracy",)


class F1(_NumberMetric):
    """F1 of class 1."""

    names = ("f1",)


class MatthewsCorrelation(_NumberMetric):
    """The Matthews correlation coefficient of class numbers, from -1 to 1."""

    names = ("matthews_correlation",)


class Pearson(_NumberMetric):
    """Pearson's r of scores, from -1 to 1; NaN if they are constant."""

    names = ("pearson",)


class Spearman(_NumberMetric):
    """Spearman's rho of scores, from -1 to 1; NaN if they are constant."""

    names = ("spearmanr",)


class GlueMetric(_NumberMetric):
    """The metrics of one task: ``GlueMetric("stsb").compute(predictions=..., references=...)``.

    Raises:
        ValueError: the task is unknown.
    """

    def _names(self) -> tuple[str, ...]:
        if self.config_name not in GLUE_TASKS:
            raise ValueError(f"expected a task out of {', '.join(GLUE_TASKS)}; got {self.config_name!r}")
        return GLUE_TASKS[self.config_name].metrics


class Seqeval(evaluate.Metric):
    """Entities in sentences of tags, with the keys of ``evaluate.load("seqeval")`` in its default mode."""

    def _info(self) -> evaluate.MetricInfo:
        tags = datasets.Sequence(datasets.Value("string"))
        return evaluate.MetricInfo(
            description="precision, recall and F1 of whole entities, computed offline",
            citation="Tjong Kim Sang and De Meulder 2003, Introduction to the CoNLL-2003 Shared Task",
            inputs_description="predictions and references: sentences of tags (IOB1, BIO or BIOES)",
            features=datasets.Features({"predictions": tags, "references": tags}),
        )

    def _compute(self, predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict:
        scores = span_scores(predictions, references)
        types = scores.pop("types")
        return types | {f"overall_{name}": value for name, value in scores.items()}
