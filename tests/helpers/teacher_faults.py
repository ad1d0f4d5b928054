"""Mistakes in learning from a teacher. Each is planted in a copy, and a test of the files of its row must turn red.

When you rename or rewrite a function, update its row here.
"""

from tests.helpers.planting import Fault

DISTILLATION = "bert_training/networks/distillation.py"
LAYERS = "bert_training/networks/initial_weights.py"
PRETRAINING = "bert_training/pretraining/teacher.py"
OF_THE_LOSS = ("tests/networks/test_distillation.py",)
OF_PRETRAINING = ("tests/pretraining/test_teacher.py",)

FAULTS = {
    "no square of the temperature": Fault(
        file=DISTILLATION, places="divergence", correct="temperature**2", faulty="1", tests=OF_THE_LOSS
    ),
    "the divergence the other way round": Fault(
        file=DISTILLATION,
        places="divergence",
        correct="expected.exp() * (expected - student.log_softmax(-1))",
        faulty="student.softmax(-1) * (student.log_softmax(-1) - expected)",
        tests=OF_THE_LOSS,
    ),
    "padding among the places of a span": Fault(
        file=DISTILLATION,
        places="teacher_term",
        correct="divergence(outputs[side], teacher[side], temperature, real)",
        faulty="divergence(outputs[side], teacher[side], temperature)",
        tests=OF_THE_LOSS,
    ),
    "ignored tokens are learnt": Fault(
        file=DISTILLATION,
        places="teacher_term",
        correct="is_labelled(labels).to(items)",
        faulty="torch.ones_like(items)",
        tests=OF_THE_LOSS,
    ),
    "rows weigh their labels alone": Fault(
        file=DISTILLATION,
        places="teacher_term",
        correct="weights * given.reshape(*given.shape, *[1] * (labels.dim() - given.dim()))",
        faulty="weights",
        tests=OF_THE_LOSS,
    ),
    "the term divided by the count of a micro-batch": Fault(
        file=DISTILLATION,
        places="teacher_term",
        correct='batch.get("num_items_in_batch", weights.sum())',
        faulty="weights.sum()",
        tests=OF_THE_LOSS,
    ),
    "the weights of the terms exchanged": Fault(
        file=DISTILLATION,
        places="learn_from",
        correct="(1 - weight) * of_labels + weight * term",
        faulty="weight * of_labels + (1 - weight) * term",
        tests=OF_THE_LOSS,
    ),
    "hidden states of padding": Fault(
        file=PRETRAINING,
        places="hidden_distance",
        correct="squares.mean(-1) * real",
        faulty="squares.mean(-1)",
        tests=OF_PRETRAINING,
    ),
    "hidden states divided by the tokens of a micro-batch": Fault(
        file=PRETRAINING,
        places="extend",
        correct="real.sum() if num_tokens_in_batch is None else num_tokens_in_batch",
        faulty="real.sum()",
        tests=OF_PRETRAINING,
    ),
    "evaluations with a teacher": Fault(
        file=PRETRAINING,
        places="extend",
        correct='not model.training or "labels" not in batch',
        faulty='"labels" not in batch',
        tests=OF_PRETRAINING,
    ),
    "the projection in the finished network": Fault(
        file=PRETRAINING, places="remove_projection", correct="delattr(model, PROJECTION)", faulty="None",
        tests=OF_PRETRAINING,
    ),
    "layers in another order": Fault(
        file=LAYERS,
        places="with_layers",
        correct="enumerate(kept)",
        faulty="enumerate(reversed(kept))",
        tests=OF_PRETRAINING,
    ),
}  # fmt: skip
