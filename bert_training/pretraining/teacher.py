"""The teacher of a pre-training (``--teacher``): what it may be, and what the student's loss contains of it.

The loss is

    (1 - w) masked LM + w T^2 KL(teacher / T || student / T) + hidden states + pairs

The second term is that of DistilBERT (Sanh et al. 2019): the distributions over the vocabulary at the positions whose
word is asked for; the paper's masks say which. The third is that of TinyBERT (Jiao et al. 2020, equation 8): the mean
squared difference of the hidden states at all real tokens, of which a student of another width has a learnt projection.
DistilBERT compares the directions of the last hidden states instead, which needs equal widths; TinyBERT's attention
maps are left out, because fused attention never computes them. Pairs of sentences are learnt from their labels alone.

A student's layer learns from the teacher's last layer before the one from which the student's next layer was copied
(``paired_layers``), so that the last layers are a pair. Nothing is kept on disk: every step has other masks. The
teacher computes beside the student, without dropout, in the type of ``--mixed_precision``. To compare hidden states,
the student computes padding as well.
"""

import dataclasses
import functools
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import ModelOutput

import bert_training.networks.distillation as terms
from bert_training.engine.batches import IGNORED
from bert_training.engine.checkpoint import Origin
from bert_training.engine.loop import COUNTS_TOKENS
from bert_training.engine.run import Run
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.flags.shared import TEMPERATURE
from bert_training.inputs.models import checkpoint_config
from bert_training.networks.initial_weights import as_implementation, draw_classifier, load_network, weights_sha256
from tokenization.errors import UserError

PROJECTION = "teacher_projection"  # the attribute of the student, and the prefix of its tensors in checkpoints


def check_teacher(args: PretrainingArguments, tokenizer: PreTrainedTokenizerBase) -> None:
    """Check all of a teacher but its weights.

    Raises:
        ValueError: it is no BERT, has another vocabulary or too few positions, or attends in other directions.
    """
    assert args.teacher is not None and args.max_seq_length is not None
    config = checkpoint_config(args.teacher, "--teacher")
    terms.check_inputs(args.teacher, config, tokenizer, args.max_seq_length)
    if config.is_decoder != objective_of(vars(args)).left_to_right:
        ways = ("in both directions", "left to right")
        raise UserError(
            f"--teacher {args.teacher}: it attends {ways[config.is_decoder]}, but with --objective {args.objective} "
            f"the student attends {ways[not config.is_decoder]}; give another teacher"
        )


def learn_from_teacher(
    run: Run[PretrainingArguments], model: PreTrainedModel, head: type[PreTrainedModel], origin: Origin
) -> Origin:
    """Let a network learn from the teacher; it gets a projection if the widths differ.

    Args:
        model: the student, before it has an optimiser.
        head: the class of a network that predicts words.
        origin: what the run began with.

    Returns:
        The same with the teacher's weights.

    Raises:
        ValueError: the teacher's weights cannot be used, for example because it has no head that predicts words.
    """
    args = run.args
    assert args.teacher is not None and args.teacher_weight is not None
    config = checkpoint_config(args.teacher, "--teacher")
    vars(config).pop("auto_map", None)
    teacher: Any = load_network(head, args.teacher, config=config).model
    weights = weights_sha256(args.teacher, local_files_only=True)
    teacher = as_implementation(teacher, args).requires_grad_(False).eval().to(run.device)
    pairs = paired_layers(model.config.num_hidden_layers, teacher.config.num_hidden_layers, _kept_of(args, config))
    if pairs and model.config.hidden_size != teacher.config.hidden_size:
        add_projection(model, teacher.config.hidden_size, args.seed)
    extend(model, teacher, pairs, TEMPERATURE, args.teacher_weight)
    run.add_facts(teacher_weights=weights, paired_layers=pairs)
    run.say(f"teacher {args.teacher}: {args.teacher_weight:g} of the masked LM, at temperature {TEMPERATURE:g}")
    named = ", ".join(f"{student}-{other}" for student, other in pairs)
    run.say(f"hidden states: layers of student and teacher {named}")
    return dataclasses.replace(origin, teacher=weights)


def _kept_of(args: PretrainingArguments, teacher: Any) -> tuple[int, ...] | None:
    """The kept layers, if they are of a network with as many layers as the teacher."""
    if args.kept_layers is None or args.model_name_or_path is None:
        return None
    source = checkpoint_config(args.model_name_or_path)
    return args.kept_layers if source.num_hidden_layers == teacher.num_hidden_layers else None


def paired_layers(student: int, teacher: int, kept: tuple[int, ...] | None = None) -> list[tuple[int, int]]:
    """Pairs (layer of the student, layer of the teacher), counted from 1; each learns what the other puts out.

    A layer that was copied from layer k of the teacher stands for all layers from k to the next one that was copied,
    and is paired with the last of them. Without copied layers, the student's are spread evenly (TinyBERT's "uniform").

    Args:
        kept: the numbers, from 0, of the teacher's layers that the student's began with.
    """
    if kept is not None:
        return list(enumerate((*kept[1:], teacher), 1))
    return [(layer, -(-layer * teacher // student)) for layer in range(1, student + 1)]


def add_projection(model: PreTrainedModel, width: int, seed: int) -> None:
    """Give a network a learnt projection of its hidden states to those of a teacher; checkpoints contain it."""
    projection = nn.Linear(model.config.hidden_size, width, device="cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        draw_classifier(projection, model.config.initializer_range)
    model.add_module(PROJECTION, projection)


def remove_projection(model: nn.Module) -> None:
    """Remove the projection from a finished network, which is saved without it."""
    if hasattr(model, PROJECTION):
        delattr(model, PROJECTION)


def extend(
    model: PreTrainedModel,
    teacher: PreTrainedModel,
    pairs: list[tuple[int, int]],
    temperature: float,
    weight: float,
) -> None:
    """Put the terms of a teacher into the loss of a network in training; an evaluation is not changed.

    The output names all terms, each without its weight: ``mlm_loss``, ``teacher_loss``, ``hidden_loss``, ``nsp_loss``.

    Args:
        model: the student, a network for masked LM with or without a head for pairs, of this project or transformers'.
        teacher: a BertForMaskedLM of either.
        pairs: see ``paired_layers``.
    """
    stock_forward = model.forward
    setattr(model, COUNTS_TOKENS, True)

    @functools.wraps(stock_forward)
    def forward(num_tokens_in_batch: int | torch.Tensor | None = None, **batch: Any) -> ModelOutput:
        if not model.training or "labels" not in batch:
            return stock_forward(**batch)
        outputs = stock_forward(**batch, output_hidden_states=True)
        labelled, real = batch["labels"] != IGNORED, batch["attention_mask"].bool()
        states, expected = _of_teacher(teacher, batch, labelled)
        scores = outputs["prediction_logits" if "prediction_logits" in outputs else "logits"]
        scores = scores[labelled] if scores.dim() == 3 else scores
        count = batch.get("num_items_in_batch", labelled.sum())
        soft = terms.per_item(word_divergence(scores, expected, temperature).sum(), count)
        mlm_loss: torch.Tensor = getattr(outputs, "mlm_loss", None)  # type: ignore[assignment]
        if mlm_loss is None:  # nothing but words is predicted
            mlm_loss = outputs["loss"]
        others = outputs["loss"] - mlm_loss  # the loss of pairs
        tokens = real.sum() if num_tokens_in_batch is None else num_tokens_in_batch
        project = getattr(model, PROJECTION, nn.Identity())
        own = outputs["hidden_states"]
        distances = [hidden_distance(project(own[layer]), states[other], real) for layer, other in pairs]
        hidden_loss = terms.per_item(torch.stack(distances).mean(), tokens)
        loss = (1 - weight) * mlm_loss + weight * soft + others + hidden_loss
        terms.set_loss(outputs, loss, mlm_loss=mlm_loss, teacher_loss=soft, hidden_loss=hidden_loss)
        return outputs

    model.forward = forward


@torch.no_grad()
def _of_teacher(
    teacher: Any, batch: dict[str, Any], labelled: torch.Tensor
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """The hidden states of a teacher's layers, embeddings first, and its scores (M, V) at the labelled positions."""
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in batch}
    found = teacher.bert(**inputs, output_hidden_states=True)
    return found.hidden_states, teacher.cls.predictions(found.last_hidden_state[labelled])


def word_divergence(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """T^2 KL(teacher || student) of every position, (M,), from scores (M, V).

    Either may have further rows that round the vocabulary up and stand for no piece. What a student expects there, it
    does not expect of a piece; the teacher's are left out.
    """
    missing = student.shape[-1] - teacher.shape[-1]
    if missing < 0:
        teacher = teacher[..., : student.shape[-1]]
    elif missing > 0:
        lowest = torch.finfo(teacher.dtype).min * min(0.5, temperature / 2)  # stays finite when it is divided
        teacher = nn.functional.pad(teacher, (0, missing), value=lowest)
    return terms.divergence(student, teacher, temperature)


def hidden_distance(student: torch.Tensor, teacher: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """The mean squared difference of hidden states (B, L, H), summed over the real tokens (B, L)."""
    squares = (terms.exact_enough(student) - terms.exact_enough(teacher)).square()
    return (squares.mean(-1) * real).sum()
