"""The table of a model card for a model that gives a text several labels: thresholds and scores of each label."""

from collections.abc import Mapping
from typing import Any

from bert_training.cards.markdown import plain

BY_LABEL = "eval_by_class"  # key of the results: label -> its scores
COLUMNS = ("threshold", "precision", "recall", "f1", "average_precision", "support")
ORIGINS = {
    "found": "The thresholds were chosen by F1 on the validation data on which the scores were measured, so these are "
    "slightly too good; a label that no text of that data has keeps 0.5. They are in `config.json`, as "
    '`fine_tuning["thresholds"]`, in the order of `id2label`.',
    "stored": "The thresholds are those stored in the model's `config.json`.",
    "usual": "The thresholds are 0.5, because the model stores none.",
}


def labels_table(results: Mapping[str, Any], origin: str | None) -> str:
    """What the thresholds are, and a row for each label; "" for a model that gives a text one class or a score.

    Args:
        results: the content of all_results.json.
        origin: where the thresholds are from, as run.json says; None for other models.
    """
    if origin is None:
        return ""
    text = "A text may have several labels: those whose probability, the logistic function of the output, reaches the "
    by_label = results.get(BY_LABEL)
    if not isinstance(by_label, Mapping):
        return f"{text}threshold of the label. Without validation data it is 0.5, unless the model stores another."
    lines = [
        f"{text}threshold of the label. {ORIGINS.get(origin, '')}",
        "",
        "| label | threshold | precision | recall | F1 | average precision | texts |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, scores in by_label.items():
        cells = (_cell(scores.get(column)) for column in COLUMNS)
        lines.append(f"| {plain(name)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "not defined" if value is None else str(value)
