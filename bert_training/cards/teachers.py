"""What a model card says of the teacher that a model has learnt from."""

from typing import Any

from bert_training.cards.markdown import code


def teacher_lines(run: dict[str, Any]) -> list[str]:
    """The teacher, the hash of its weights, and its part of the loss; [] if there was none.

    Args:
        run: the content of run.json in its published form.
    """
    flags, weights = run["flags"], run.get("teacher_weights")
    if not flags.get("teacher") or not isinstance(weights, dict):
        return []
    files = ", ".join(f"{file}, SHA-256 {digest}" for file, digest in weights.items())
    weight = f"weight {flags['teacher_weight']:g}"
    return [f"Teacher: {code(flags['teacher'])} ({files}), whose predictions were learnt as well: {weight}."]
