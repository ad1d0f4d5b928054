"""The teacher of a fine-tuning (``--teacher``): what it may be, and what it says of the training data.

A teacher never changes, and reads the rows that the student reads, so its outputs for the training data are computed
once, before the first step: in float32 whatever ``--mixed_precision`` says, by all processes together, rows of like
length in one batch. They become columns of the data (``PREFIX``).
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import transformers
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.batches import Features
from bert_training.engine.predict import predict
from bert_training.engine.run import Run
from bert_training.files.processes import say
from bert_training.inputs.flags.shared import TEMPERATURE, StudentArguments
from bert_training.inputs.models import checkpoint_config, config_labels
from bert_training.networks.distillation import PREFIX, Kind, check_inputs, learn_from
from bert_training.networks.initial_weights import as_implementation, class_in, load_network, weights_sha256
from bert_training.tasks.task_data import ProblemType
from tokenization.errors import UserError

BATCH = 32  # rows of one forward pass; not a flag, because the rounding of the outputs depends on it
KINDS: dict[ProblemType | None, Kind] = {
    "single_label_classification": "classes",
    "multi_label_classification": "labels",
    "regression": "score",
}


class Teacher(NamedTuple):
    """A teacher that fits the data; its weights are not loaded yet.

    Attributes:
        name: as the user gave it.
        head: the class of its network.
        weights: file -> SHA-256.
        order: the numbers of its outputs in the order of the data's classes.
    """

    name: str
    head: type[PreTrainedModel]
    config: BertConfig
    weights: dict[str, str]
    kind: Kind
    order: list[int]


# --- what a teacher may be ---------------------------------------------------------------------------------------


def find_teacher(
    args: StudentArguments,
    head: type[PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    labels: tuple[str, ...] = (),
    problem_type: ProblemType | None = None,
) -> Teacher:
    """The teacher that the flags name, checked as far as its files other than the weights allow.

    Args:
        args: the flags of a script whose longest input is ``max_seq_length``.
        head: the class of the student's network.
        tokenizer: the student's.
        labels: the names of the classes; none for spans.
        problem_type: of classes, as in a config.

    Raises:
        ValueError: it is no model of this class, or one for other classes, with another vocabulary, or with too few
            positions; or a flag of teachers has no effect on these data.
    """
    assert args.teacher is not None
    kind: Kind = KINDS[problem_type] if labels else "span"
    config = checkpoint_config(args.teacher, "--teacher")
    _check_head(args.teacher, config, head)
    check_inputs(args.teacher, config, tokenizer, getattr(args, "max_seq_length", 1))
    order = _order_of_labels(args.teacher, config, labels, kind) if labels else []
    return Teacher(args.teacher, head, config, weights_sha256(args.teacher), kind, order)


def _check_head(name: str, config: BertConfig, head: type[PreTrainedModel]) -> None:
    found = class_in(config) or ", ".join(map(str, config.architectures or []))
    if not hasattr(transformers, head.__name__) or (found and found != head.__name__):
        raise UserError(
            f"--teacher {name}: expected a finished model as this command trains one, a network of transformers; this "
            f"command trains a {head.__name__}, got a {found or 'model'} by its config.json; fine-tune it on this task "
            "first, with this command and without --teacher"
        )


def _order_of_labels(name: str, config: BertConfig, labels: tuple[str, ...], kind: Kind) -> list[int]:
    """The numbers of the teacher's outputs in the order of the labels, which are matched by name."""
    several = config.problem_type == "multi_label_classification"
    found = "several labels a text" if several else "a score" if config.num_labels == 1 else "one class a text"
    wanted = {"labels": "several labels a text", "score": "a score", "classes": "one class a text"}[kind]
    fits = found == wanted or (kind == "classes" and config.num_labels == len(labels) == 1)
    theirs, listed = config_labels(config), f"the classes {', '.join(labels)[:400]}"
    if fits and kind == "score":
        return [0]
    if fits and theirs is None and config.num_labels == len(labels):
        say(
            f"warning: --teacher {name} does not name its classes, so they are taken in the order of their numbers: "
            f"{listed}"
        )
        return [*range(len(labels))]
    if not fits or theirs is None or {*theirs} != {*labels}:
        known = (
            f"{config.num_labels} classes without names" if theirs is None else f"the classes {', '.join(theirs)[:400]}"
        )
        raise UserError(
            f"--teacher {name}: it gives {found} of {known}, and this data has {wanted} of {listed}; give a "
            "teacher that was trained on the same classes"
        )
    return [theirs.index(label) for label in labels]


# --- what it says of the data ------------------------------------------------------------------------------------


def give_lesson(
    run: Run[Any],
    teacher: Teacher,
    model: PreTrainedModel,
    train: Features,
    per_token: bool = False,
    prepare: Callable[[PreTrainedModel], None] = lambda _: None,
) -> Features:
    """Let a network learn from the teacher; return the training data with what the teacher says of it.

    All processes call it.

    Args:
        model: the student, not yet prepared by Accelerate.
        per_token: the network gives every token an output of its own.
        prepare: does to the teacher's network what was done to the student's, such as ``pool_windows``.

    Raises:
        ValueError: the teacher's weights cannot be used.
        FloatingPointError: its outputs are not finite.
    """
    args = run.args
    assert args.teacher_weight is not None
    learn_from(model, teacher.kind, TEMPERATURE, args.teacher_weight)
    run.add_facts(teacher_weights=teacher.weights)
    temperature = "" if teacher.kind == "score" else f", at temperature {TEMPERATURE:g}"
    run.say(f"teacher {teacher.name}: {args.teacher_weight:g} of the loss{temperature}")
    config = copy.deepcopy(teacher.config)
    vars(config).pop("auto_map", None)
    network = as_implementation(load_network(teacher.head, teacher.name, config=config).model, args)
    prepare(network)
    network.requires_grad_(False).eval().to(run.device)
    rows = type(train)({name: train.columns[name] for name in ("input_ids", "token_type_ids")}, train.pad_token_id)
    outputs = predict(run, network, rows, BATCH, per_token)
    run.say(f"teacher {teacher.name}: it has read {len(rows):,} rows")
    columns = {f"{PREFIX}{name}": _ordered(values, teacher.order) for name, values in outputs.items()}
    return type(train)(train.columns | columns, train.pad_token_id)


def _ordered(values: Any, order: list[int]) -> Any:
    if not order:
        return values
    return values[:, order] if isinstance(values, np.ndarray) else [row[:, order] for row in values]
