"""The scores of probes in the records of a pre-training run: their names, their curves, and what they say.

``bert_training/tasks/classification/probes.py`` computes them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bert_training.cards.markdown import plain

VIEWS = ("cls", "mean")  # the vectors of a text: the last hidden state of [CLS], and the mean over its tokens
KEY = re.compile(rf"eval_probe_(.+)_({'|'.join(VIEWS)})")
FELL = 0.1  # nats; the loss of a model that has learnt something has fallen by more
FEWEST = 3  # evaluations before anything is said


def key_of(name: str, view: str) -> str:
    """The key of a score in all_results.json and metrics.jsonl."""
    return f"eval_probe_{name}_{view}"


def label_of(key: str) -> str | None:
    """The name of a score for a reader, such as "law, mean"; None for a key of something else."""
    match = KEY.fullmatch(key)
    return f"{match[1]}, {match[2]}" if match else None


def probe_curves(events: Sequence[Mapping[str, Any]]) -> dict[str, tuple[list[int], list[float]]]:
    """label -> (steps, accuracies); if a step is repeated, the last record counts."""
    found: dict[str, dict[int, float]] = {}
    for event in events:
        for key, value in event.items() if event.get("event") == "probe" else ():
            if label := label_of(key):
                found.setdefault(label, {})[event["step"]] = value
    return {label: (sorted(values), [values[step] for step in sorted(values)]) for label, values in found.items()}


def probe_table(events: Sequence[Mapping[str, Any]], probes: Mapping[str, Mapping[str, Any]]) -> str:
    """The scores at the first and the last step as a table of Markdown; "" without probes.

    Args:
        probes: of run.json: name -> facts, with the share of the most frequent class.
    """
    curves = probe_curves(events)
    if not curves:
        return ""
    first = min(steps[0] for steps, _ in curves.values())
    last = max(steps[-1] for steps, _ in curves.values())

    def cell(value: float, rows: int, step: int, usual: int) -> str:
        """A score; with its step if the probe was added later, or left out, when the run was resumed."""
        return with_error(value, rows) + (f" (step {step:,})" if step != usual else "")

    rows = []
    for label, (steps, values) in curves.items():
        facts = probes.get(label.rpartition(", ")[0], {})
        frequent = facts.get("most_frequent_class")
        by_chance = f"{frequent:.1%}" if isinstance(frequent, int | float) else ""
        held_out = facts.get("held_out", 0)
        scores = f"{cell(values[0], held_out, steps[0], first)} | {cell(values[-1], held_out, steps[-1], last)}"
        rows.append(f"| {plain(label)} | {scores} | {by_chance} |")
    what = "accuracy of a logistic regression on frozen vectors, ± its standard error"
    head = f"| {what} | step {first:,} | step {last:,} | most frequent class |"
    return "\n".join([head, "|---|---|---|---|", *rows])


def probe_scores_text(results: Mapping[str, Any], probes: Mapping[str, Mapping[str, Any]]) -> str:
    """The scores in one line: "law, cls 71.0% ± 3.2%; law, mean 74.5% ± 3.1%"; for ``probes`` see ``probe_table``."""
    scores = ((label, value) for key, value in results.items() if (label := label_of(key)))
    return "; ".join(
        f"{label} {with_error(value, probes[label.rpartition(', ')[0]]['held_out'])}" for label, value in scores
    )


def standard_error(accuracy: float, rows: int) -> float:
    """That of an accuracy on so many rows."""
    return math.sqrt(accuracy * (1 - accuracy) / rows)


def with_error(accuracy: float, rows: int) -> str:
    """An accuracy with its standard error, if the number of rows is known."""
    return f"{accuracy:.1%}" + (f" ± {standard_error(accuracy, rows):.1%}" if rows else "")


def not_more_useful(events: Sequence[Mapping[str, Any]], probes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """A sentence for a run whose held-out loss falls while no probe rises; None for any other run.

    A probe has risen if its better vector is above its first score by more than one standard error of an accuracy. One
    that began so high that it cannot rise says nothing.

    Args:
        probes: of run.json: name -> facts, with the number of rows held out.
    """
    evaluated = [event.get("eval_mlm_loss") for event in events if event.get("event") == "eval"]
    losses = [loss for loss in evaluated if loss is not None]
    curves = probe_curves(events)
    if len(losses) < 2 or not curves or min(len(steps) for steps, _ in curves.values()) < FEWEST:
        return None
    if losses[0] - losses[-1] < FELL:
        return None
    said = []
    for name, facts in probes.items():
        values = [curves[f"{name}, {view}"][1] for view in VIEWS if f"{name}, {view}" in curves]
        if not values:  # a probe that was added when the run was resumed
            continue
        before, now = max(found[0] for found in values), max(found[-1] for found in values)
        risen = before + standard_error(before, facts["held_out"])
        if now > risen:
            return None
        if risen >= 1:  # too good at first for any score to be higher
            continue
        said.append(f"{name} {before:.1%} at first, {now:.1%} now")
    if not said:
        return None
    return (
        f"the held-out loss has fallen from {losses[0]:.2f} to {losses[-1]:.2f}, but no probe has risen by more than "
        f"its standard error ({'; '.join(said)}): the training may not help these tasks; compare fine-tuned models "
        "before it goes on"
    )
