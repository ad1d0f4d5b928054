"""The metrics of GLUE and of named entities as ``evaluate.Metric``s that need no internet connection.

``evaluate.load("glue", "mrpc")`` downloads its code, because the package evaluate contains no metrics. Without a
network, these two classes give a loop of your own what evaluate is used for: ``add_batch``, ``compute`` and
``evaluate.combine``. No script needs them. ``bert_training.tasks.squad.metrics.squad_metric`` is the one of SQuAD.
"""

from collections.abc import Sequence

import datasets
import evaluate
from numpy.typing import ArrayLike

from bert_training.tasks.classification.glue import GLUE_TASKS
from bert_training.tasks.classification.metrics import METRICS
from bert_training.tasks.ner.metrics import span_scores
from tokenization.errors import UserError


class GlueMetric(evaluate.Metric):
    """The metrics of a task, ``GlueMetric("stsb")``, or a single one of METRICS, ``GlueMetric("f1")``.

    ``compute(predictions=..., references=...)`` returns the keys of ``evaluate.load("glue", task)``.

    Raises:
        ValueError: there is no such task or metric.
    """

    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("float64")
        return evaluate.MetricInfo(
            description=f"{', '.join(self._names())}, computed offline",
            citation="Wang et al. 2018, GLUE: A Multi-Task Benchmark and Analysis Platform, arXiv:1804.07461",
            inputs_description="equally many predictions and references: class numbers, or scores",
            features=datasets.Features({"predictions": number, "references": number}),
        )

    def _names(self) -> tuple[str, ...]:
        if self.config_name in METRICS:
            return (self.config_name,)
        if self.config_name not in GLUE_TASKS:
            known = ", ".join([*GLUE_TASKS, *METRICS])
            raise UserError(f"expected a task or a metric out of {known}; got {self.config_name!r}")
        return GLUE_TASKS[self.config_name].metrics

    def _compute(self, predictions: ArrayLike, references: ArrayLike) -> dict[str, float]:
        return {name: METRICS[name](predictions, references) for name in self._names()}


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
