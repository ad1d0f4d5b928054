"""Mistakes in learning from a teacher. Each is planted in a copy, and a test of the files above its row must turn red.

A row has the place, the code of the project and what stands there instead. When you rename or rewrite a function,
update its row here.
"""

from tests.helpers.planting import faults_in

FAULTS = {
    **faults_in(
        "bert_training/networks/distillation.py",
        "tests/networks/test_distillation.py",
        rows={
            "no square of the temperature": ("divergence", "temperature**2", "1"),
            "the divergence the other way round": (
                "divergence",
                "expected.exp() * (expected - student.log_softmax(-1))",
                "student.softmax(-1) * (student.log_softmax(-1) - expected)",
            ),
            "padding among the places of a span": (
                "teacher_term",
                "divergence(outputs[side], teacher[side], temperature, real)",
                "divergence(outputs[side], teacher[side], temperature)",
            ),
            "ignored tokens are learnt": ("teacher_term", "is_labelled(labels).to(items)", "torch.ones_like(items)"),
            "rows weigh their labels alone": (
                "teacher_term",
                "weights * given.reshape(*given.shape, *[1] * (labels.dim() - given.dim()))",
                "weights",
            ),
            "the term divided by the count of a micro-batch": (
                "teacher_term",
                'batch.get("num_items_in_batch", weights.sum())',
                "weights.sum()",
            ),
            "the weights of the terms exchanged": (
                "learn_from",
                "(1 - weight) * of_labels + weight * term",
                "weight * of_labels + (1 - weight) * term",
            ),
        },
    ),
    **faults_in(
        "bert_training/pretraining/teacher.py",
        "tests/pretraining/test_teacher.py",
        rows={
            "hidden states of padding": ("hidden_distance", "squares.mean(-1) * real", "squares.mean(-1)"),
            "hidden states divided by the tokens of a micro-batch": (
                "extend",
                "real.sum() if num_tokens_in_batch is None else num_tokens_in_batch",
                "real.sum()",
            ),
            "evaluations with a teacher": (
                "extend",
                'not model.training or "labels" not in batch',
                '"labels" not in batch',
            ),
            "the projection in the finished network": ("remove_projection", "delattr(model, PROJECTION)", "None"),
        },
    ),
    **faults_in(
        "bert_training/networks/initial_weights.py",
        "tests/pretraining/test_teacher.py",
        rows={
            "layers in another order": ("with_layers", "enumerate(kept)", "enumerate(reversed(kept))"),
        },
    ),
}
