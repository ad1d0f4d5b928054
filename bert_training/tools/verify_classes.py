"""Whether the scores by class of a finished folder are those of the counts that it holds."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bert_training.cards.confusion import COUNTS, matrix_of, read_confusion
from bert_training.files.records import nearly_equal
from bert_training.tasks.classification.by_class import BY_CLASS, scores_by_class
from bert_training.tasks.classification.scores import metric_prefix
from bert_training.tools.findings import Finding, differs, unknown, verified


def check_confusion(folder: Path, results: dict) -> Iterator[Finding]:
    """The scores by class and their macro means, computed again from the counts of who was taken for whom."""
    for split, counts in read_confusion(folder).items():
        matrix, prefix = matrix_of(counts), metric_prefix(split)
        if prefix + BY_CLASS not in results:
            yield unknown(COUNTS, f"an older version evaluated the weights that were kept, without {prefix}{BY_CLASS}")
            continue
        true, predicted = np.indices(matrix.shape).reshape(2, -1)
        again = scores_by_class(predicted.repeat(matrix.ravel()), true.repeat(matrix.ravel()), list(counts))
        wrong = [name for name, value in again.items() if not nearly_equal(results.get(prefix + name), value)]
        for name in wrong:
            yield differs(f"{prefix}{name}", f"{COUNTS} gives another value for {split}")
        if not wrong:
            yield verified(COUNTS, f"its counts of {split} give the scores by class in all_results.json")
