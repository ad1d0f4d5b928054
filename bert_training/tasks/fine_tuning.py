"""The parts that all fine-tuning scripts share: building the network, training with evaluations, saving the folder."""

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, cast

import torch
from transformers import BertConfig, BertModel, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.cards.curves import draw_curves
from bert_training.cards.model_card import write_model_card
from bert_training.engine.batches import Features, evaluation_due, step_batches, steps_for
from bert_training.engine.best import Best
from bert_training.engine.checkpoint import (
    Origin,
    begin_anew,
    prepared_state,
    refuse_training,
    resume,
    save_checkpoint,
    save_model_folder,
    save_tokenizer,
)
from bert_training.engine.loop import training_steps
from bert_training.engine.optimizer import create_optimizer, create_schedule
from bert_training.engine.output_folder import upload_finished
from bert_training.engine.run import Run
from bert_training.inputs.flags.fine_tuning import FineTuningArguments
from bert_training.inputs.flags.recipes import scaled_rate
from bert_training.inputs.flags.scripts import SCRIPTS, opened_by
from bert_training.inputs.models import config_labels
from bert_training.networks.control import as_implementation
from bert_training.networks.embedding_modules import carry_modules
from bert_training.networks.initial_weights import (
    LoadedNetwork,
    class_in,
    draw_classifier,
    load_network,
    prepare_for_training,
    weights_sha256,
    with_layers,
)
from bert_training.record import Record
from bert_training.tasks.stored_flags import report_stored, store_flags
from bert_training.tasks.teachers import Lesson
from tokenization.errors import UserError

Outcome = TypeVar("Outcome")
Evaluate = Callable[[torch.nn.Module, int], tuple[dict, Outcome]]
"""(prepared model, optimiser steps done) -> the results to record, and whatever else the script makes of them."""


class Tuned(NamedTuple, Generic[Outcome]):
    """A prepared model, and what ``evaluate`` returned for its present weights (``results`` and ``outcome``)."""

    model: torch.nn.Module
    results: dict
    outcome: Outcome
    trained: bool
    best: Best


Tune = Callable[..., Tuned[Any]]
"""What a script does with its network, training data and evaluation: ``fine_tune``, or what has the same arguments."""


def build_task_network(
    run: Run[FineTuningArguments],
    cls: type[PreTrainedModel],
    config: BertConfig,
    checkpoint_config: BertConfig,
    may_be_new: tuple[str, ...],
    training: bool,
    encoder_class: type[PreTrainedModel] | None = None,
) -> tuple[PreTrainedModel, dict[str, str] | None]:
    """The network that the flags ask for, and the hashes of its initial weights.

    The checkpoint's head is kept if its classes match and replaced otherwise; a printed line says which.

    Args:
        config: the config of the model to build, with the labels of the task.
        checkpoint_config: the config of the checkpoint.
        may_be_new: prefixes of weights that may be newly initialised.
        training: whether there is training data.
        encoder_class: the encoder inside ``cls`` if ``cls`` is a network that only this project has, see
            ``choose_encoder``; None if ``cls`` is a class of ``modeling_bert_repro``, which transformers has as well.

    Returns:
        The network, and file -> SHA-256 of the checkpoint's weights; None if all weights are new.

    Raises:
        ValueError: as in ``load_network``; or weights are newly initialised and there is no training data.
    """
    args = run.args
    initial_weights = None
    replaced = ""
    class_arguments = {} if encoder_class is None else {"encoder_class": encoder_class}
    config = copy.deepcopy(config)  # saving changes it, and the other runs of a series start from the same one
    vars(config).pop("auto_map", None)  # it describes the checkpoint's code; a saved model writes its own
    if args.config_name:
        model, new = cls(config, **class_arguments), ["all weights"]
    else:
        assert args.model_name_or_path is not None  # this flag or --config_name is required
        loaded = load_network(cls, args.model_name_or_path, may_be_new, config=config, **class_arguments)
        initial_weights = weights_sha256(args.model_name_or_path, local_files_only=True)
        replaced = _keep_or_replace_head(loaded, checkpoint_config)
        model, new, _ = loaded
        if kept := getattr(args, "kept_layers", None):
            numbers = ", ".join(map(str, kept))
            run.say(f"layers {numbers} of the {model.config.num_hidden_layers} of {args.model_name_or_path}")
            model = with_layers(model, kept, **class_arguments)
    if new and not training:
        kind = class_in(checkpoint_config)
        hint = f". It is a {kind}: evaluate it with {opened_by()[kind]}" if kind and kind != cls.__name__ else ""
        raise UserError(
            f"newly initialised: {', '.join(new)}; without training data the model cannot be evaluated{hint}"
        )
    run.say(f"newly initialised: {', '.join(new)}{replaced}" if new else "the head is the checkpoint's")
    if encoder_class is None:
        model = as_implementation(model, args)
    if args.model_name_or_path:
        report_stored(run, checkpoint_config)
    if training:
        store_flags(model.config, args)
        base, rate, width = type(args).learning_rate, args.learning_rate, model.config.hidden_size
        if rate == scaled_rate(base, width) != base:
            run.say(f"learning rate {rate:g}: {base:g} at 768 units, scaled to {width}".replace("e-0", "e-"))
        if remark := untrained_positions(args):
            run.say(remark)
    prepare_for_training(model, args)
    return model, initial_weights


def untrained_positions(args: FineTuningArguments) -> str | None:
    """A sentence if the texts may be longer than those from which a pre-training of this project learnt the positions.

    Other checkpoints do not say how long their texts were.
    """
    if not args.model_name_or_path:
        return None
    folder = Path(args.model_name_or_path)
    try:
        run = Record.read(folder)
    except (OSError, ValueError):
        return None
    flags, script = run.flags, SCRIPTS.get(run.script)
    if not (script and script.pretrains):
        return None
    if flags.get("model_name_or_path") or flags.get("keep_layers"):  # it began with positions that others had trained
        return None
    longest = flags.get("max_seq_length")
    if not isinstance(longest, int) or getattr(args, "max_seq_length", 0) <= longest:
        return None
    return (
        f"{folder} was pre-trained on texts of at most {longest} tokens: what the positions after them mean is learnt "
        "from this task alone"
    )


def _keep_or_replace_head(loaded: LoadedNetwork, checkpoint_config: BertConfig) -> str:
    """Draw the classifier of a loaded network anew if the checkpoint's is for other classes.

    Returns:
        For the printed line, what a new classifier replaces; "" if the checkpoint's is kept or it has none.
    """
    model, new, absent = loaded
    names = config_labels(checkpoint_config)
    # load_network replaces a head for another number of classes; here the number is the same, but the names differ.
    other_classes = names and {*map(str.lower, names)} != {*map(str.lower, model.config.label2id or {})}
    if model.config.problem_type == "regression":
        other_classes = False  # whatever the one score is called
    other_classes = other_classes or _gives_several(checkpoint_config) != _gives_several(model.config)
    classifier = getattr(model, "classifier", None)
    if isinstance(classifier, torch.nn.Linear) and "classifier.weight" not in new and other_classes:
        draw_classifier(classifier, model.config.initializer_range)
        new += ["classifier.bias", "classifier.weight"]
    if "classifier.weight" not in new or "classifier.weight" in absent:
        return ""
    classes = names or [f"{checkpoint_config.num_labels} classes"]
    return f", in place of the checkpoint's head for {', '.join(classes)}"


def _gives_several(config: PretrainedConfig) -> bool:
    return config.problem_type == "multi_label_classification"


def choose_encoder(args: FineTuningArguments, ours: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """The encoder of a network that only this project has: our ``BertModel``, or transformers' for the control."""
    return BertModel if args.model_impl == "transformers" else ours


def fine_tune(
    run: Run[FineTuningArguments],
    model: PreTrainedModel,
    origin: Origin,
    train: Features | None,
    evaluate: Evaluate[Outcome],
    metric: str,
    loss_arguments: Mapping[str, Any] = MappingProxyType({}),
    lesson: Lesson | None = None,
) -> Tuned[Outcome]:
    """Train as the flags say, with evaluations and checkpoints; restore the best weights if that is asked.

    Args:
        model: not yet prepared by Accelerate.
        origin: what must be the same in a resumed run, see ``record_origin``.
        train: the training data; without it the model is only evaluated.
        evaluate: is called with the prepared model and the number of optimiser steps done; returns the results to
            record, {} if there is nothing to evaluate, and the outcome, whatever the script needs of it, such as
            answers.
        metric: the key of the results by which the best evaluation is chosen.
        loss_arguments: further arguments of the model in training, see ``tasks/loss_weights.py``.
        lesson: the training data with what a teacher says of them, instead of ``train``.
    """
    if lesson:
        train, origin = lesson.rows, dataclasses.replace(origin, teacher=lesson.weights)
    args, size = run.args, run.global_batch_size
    if train:
        train = train.shuffled(args.seed)
    examples = len(train) if train else 0
    total_steps = steps_for(args, size / examples) if train else 0
    run.add_facts(parameters=model.num_parameters(), total_steps=total_steps, metric=metric)
    optimizer = create_optimizer(model, args.learning_rate, args.weight_decay)
    scheduler = create_schedule(args.lr_scheduler_type, optimizer, args.warmup_steps if train else 0, total_steps)
    state = prepared_state(run, model, optimizer, scheduler, total_steps, origin)
    model = cast(PreTrainedModel, state.model)
    best, done = Best(run, metric, state.evaluations), 0
    if train:
        done = resume(run, state, take=best.go_on)
    else:
        run.only_main(lambda: refuse_training(run.output_dir))
        run.write_facts()
        begin_anew(run)
    batches: Any = step_batches(train, run, done, total_steps) if train else []
    options: dict[str, Any] = {"max_grad_norm": args.max_grad_norm, "loss_arguments": loss_arguments}
    for step in training_steps(run, state, batches, start_step=done, **options):
        if step.index % args.logging_steps == 0 or step.index in (1, total_steps):
            record = {"epoch": round(step.index * size / examples, 3), "loss": step.loss}
            record |= step.parts  # the terms of a student's loss
            run.log(event="train", step=step.index, **record, learning_rate=step.lr, grad_norm=step.grad_norm)
        if evaluation_due(run, step.index, examples) and step.index < total_steps:
            results, outcome = _evaluated(run, evaluate, model, step.index)
            best.add(step.index, results, model)
        if args.save_steps and step.index % args.save_steps == 0:
            save_checkpoint(run, step.index, state)
    results, outcome = _evaluated(run, evaluate, model, total_steps)
    best.add(total_steps, results, model)
    if args.load_best_model_at_end:
        results = best.restore(model)
        if best.step != total_steps:
            _, outcome = evaluate(model, best.step)
    results = results | _speed(state.totals.seconds, state.totals.steps * size) | {"train_steps": total_steps}
    return Tuned(model, results, outcome, bool(train), best)


def predictions_of_splits(
    tuned: Tuned[Outcome | None],
    evaluate: Callable[[torch.nn.Module, int, str], tuple[dict, Outcome | None]],
    splits: Iterable[str],
) -> dict[str, Outcome]:
    """The predictions for the validation and the test split, where there are such splits.

    The test split is predicted here, once, by the finished model; its scores are added to ``tuned.results``.

    Args:
        evaluate: (prepared model, optimiser steps done, split) -> results and predictions.
        splits: the names of the splits.
    """
    found = {"validation": tuned.outcome}
    if "test" in splits:
        results, found["test"] = evaluate(tuned.model, tuned.results["train_steps"], "test")
        tuned.results.update(results)
    return {split: outcome for split, outcome in found.items() if outcome is not None}


def _evaluated(
    run: Run[FineTuningArguments], evaluate: Evaluate[Outcome], model: torch.nn.Module, step: int
) -> tuple[dict, Outcome]:
    results, outcome = evaluate(model, step)
    if results:
        run.log(event="eval", step=step, **results)
    return results, outcome


def _speed(seconds: float, sequences: int) -> dict[str, float]:
    """The time and the speed of all training steps, without evaluations and checkpoints."""
    rate = sequences / seconds if seconds else 0
    return {"train_runtime": round(seconds, 3), "train_samples_per_second": round(rate, 3)}


def finish(
    run: Run[FineTuningArguments], tuned: Tuned[Any], tokenizer: PreTrainedTokenizerBase, data_name: str
) -> None:
    """Write the finished folder: model, tokenizer, curves, card and results; upload it with ``--push_to_hub``.

    Args:
        data_name: the name of the data set for the card.
    """
    save_model_folder(run, tuned.model)
    save_tokenizer(run, tokenizer, tuned.model)
    if run.is_main:
        carry_modules(run.args.model_name_or_path, run.output_dir)
        if tuned.trained:
            draw_curves(run.output_dir)
        write_model_card(run.output_dir, datasets=[data_name], metrics=tuned.results)
    run.finish(tuned.results)
    tuned.best.clear()  # what only a resumed run would need
    run.say(f"finished: {run.output_dir}")
    if run.is_main:
        upload_finished(run.args)
