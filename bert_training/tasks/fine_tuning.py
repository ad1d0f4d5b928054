"""The parts that all fine-tuning scripts share: building the network, training with evaluations, saving the folder.

The evaluations are part of the state of the training, which checkpoints preserve. The weights of the best one are kept
in ``checkpoint-best-<step>`` until the run has finished; they are written and checked like checkpoints.
"""

import dataclasses
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

import torch
import transformers
from safetensors.torch import load_file
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.cards.curves import draw_curves
from bert_training.cards.model_card import write_model_card
from bert_training.engine.batches import evaluation_due, step_batches, steps_for
from bert_training.engine.checkpoint import (
    WEIGHTS,
    Origin,
    begin_anew,
    newest_checkpoint_named,
    prepared_state,
    refuse_training,
    resume,
    save_checkpoint,
    save_model_folder,
    save_tokenizer,
)
from bert_training.engine.loop import training_steps
from bert_training.engine.optimizer import create_optimizer, create_schedule
from bert_training.engine.predict import predict
from bert_training.engine.run import Run, upload_finished
from bert_training.files.atomic import damage, new_folder, remove_folder, sealed_folder
from bert_training.inputs.flags.fine_tuning import FineTuningArguments
from bert_training.inputs.flags.recipes import scaled_rate
from bert_training.inputs.flags.scripts import opened_by
from bert_training.inputs.models import config_labels
from bert_training.networks import lora
from bert_training.networks.embedding_modules import carry_modules
from bert_training.networks.initial_weights import (
    LoadedNetwork,
    as_implementation,
    class_in,
    draw_classifier,
    load_network,
    prepare_for_training,
    weights_sha256,
    with_layers,
)
from bert_training.tasks.stored_flags import report_stored, store_flags
from bert_training.tasks.task_data import (
    ProblemType,
    TaskData,
    check_vocabulary,
    metric_of,
    record_origin,
    results_of,
    with_labels,
)
from bert_training.tasks.teachers import Teacher, give_lesson
from tokenization.errors import UserError

Outcome = TypeVar("Outcome")


# --- the best evaluation ---------------------------------------------------------------------------------------------

LOWER_IS_BETTER = ("loss", "_ece")


class Best:
    """The evaluations of a run so far, and the weights of the best one.

    Args:
        metric: key of the results. Higher values are better, except for a loss.
        evaluations: (step, results) of each evaluation so far; ``add`` appends to it.
    """

    def __init__(self, run: Run[FineTuningArguments], metric: str, evaluations: list[tuple[int, dict[str, Any]]]):
        self.run = run
        self.metric = metric
        self.wanted = run.args.load_best_model_at_end
        self.evaluations = evaluations

    def go_on(self) -> None:
        """Check and fetch the weights of the best evaluation before the checkpoint from which the run resumes.

        All processes call it.

        Raises:
            ValueError: the weights cannot be used.
        """
        if not self.wanted:
            return
        self.run.only_main(self._fetch)
        self._check_weights()

    def add(self, step: int, results: dict, model: torch.nn.Module) -> None:
        """Keep the weights if these results are the best so far. All processes call it."""
        if results:
            self.evaluations.append((step, results))
        if not self.wanted:
            return
        if self.step == step:
            self._save(step, model)

    @property
    def step(self) -> int:
        """Optimiser step of the best evaluation, or of the first of several that are equally good."""
        return self._best_of(self.evaluations)

    def _best_of(self, evaluations: list[tuple[int, dict]]) -> int:
        values = [goodness(self.metric, results[self.metric]) for _, results in evaluations]
        return evaluations[values.index(max(values))][0]

    def restore(self, model: torch.nn.Module) -> dict:
        """Load the best weights into the model; returns their results."""
        self._check_weights()
        weights = load_file(self._folder(self.step) / WEIGHTS)
        self.run.accelerator.unwrap_model(model).load_state_dict(weights)
        results = dict(self.evaluations)[self.step]
        self.run.say(f"the best weights are kept: step {self.step}, {self.metric} {results[self.metric]}")
        return results | {"best_step": self.step}

    def clear(self) -> None:
        """Delete the kept weights; called when the run has finished."""
        if self.run.is_main:
            for step in self._kept():
                remove_folder(self._folder(step))

    def _save(self, step: int, model: torch.nn.Module) -> None:
        self.run.accelerator.wait_for_everyone()
        if self.run.is_main:
            folder = self._folder(step)
            with newest_checkpoint_named(self.run), sealed_folder(folder) as draft:
                self.run.accelerator.unwrap_model(model).save_pretrained(draft)
            needed = {step, *self._needed_by_checkpoints(step)}
            for kept in self._kept():
                if kept not in needed:
                    remove_folder(self._folder(kept))
        self.run.accelerator.wait_for_everyone()

    def _needed_by_checkpoints(self, step: int) -> set[int]:
        """The steps of the best weights that runs need which resume from the checkpoints that are there.

        The records of a checkpoint end before it, and that of the last step is written before the evaluation of that
        step. Folders of steps that are in the records no more may be needed by a checkpoint of those days.
        """
        needed: set[int] = set()
        for start in _numbers(self.run.output_dir, r"checkpoint-(\d+)"):
            if before := [(at, results) for at, results in self.evaluations if at <= start and at != step]:
                needed.add(self._best_of(before))
            needed.add(max((kept for kept in self._kept() if kept <= start), default=step))
        return needed

    def _fetch(self) -> None:
        """Copy the best weights so far from the folder of the run whose checkpoint was named, if only it has them.

        A finished run has deleted them; then the checkpoint may have them, if it is of the same step.
        """
        asked = self.run.args.resume_from_checkpoint
        if not self.evaluations or asked in (None, "auto") or self._folder(self.step).exists():
            return
        theirs = Path(asked).parent / self._folder(self.step).name
        if theirs.is_dir() and not damage(theirs):
            with new_folder(self._folder(self.step)) as draft:
                shutil.copytree(theirs, draft, dirs_exist_ok=True)
        elif Path(asked).name == f"checkpoint-{self.step}":
            with sealed_folder(self._folder(self.step)) as draft:
                for name in ("config.json", "model.safetensors"):
                    shutil.copy(Path(asked, name), draft)

    def _check_weights(self) -> None:
        """Raise ValueError unless the folder with the best weights so far exists and is undamaged."""
        if self.evaluations and (problem := damage(self._folder(self.step))):
            raise UserError(
                f"{self._folder(self.step)}: the weights of the best evaluation so far cannot be used: {problem}; "
                "resume without --load_best_model_at_end, or begin anew in another folder"
            )

    def _folder(self, step: int) -> Path:
        return self.run.output_dir / f"checkpoint-best-{step}"

    def _kept(self) -> list[int]:
        return _numbers(self.run.output_dir, r"checkpoint-best-(\d+)")


def goodness(metric: str, value: float | None) -> float:
    """A number that is highest for the best value: the negative of a loss or of an expected calibration error (ece).

    None, an undefined score, is the worst.
    A metric with a colon is that of a class, such as ``eval_f1:loss``.
    """
    if value is None:
        return -math.inf
    return -value if metric.endswith(LOWER_IS_BETTER) and ":" not in metric else value


def _numbers(folder: Path, pattern: str) -> list[int]:
    return sorted(int(found[1]) for path in folder.iterdir() if (found := re.fullmatch(pattern, path.name)))


class Tuned(NamedTuple, Generic[Outcome]):
    """A prepared model, and what ``evaluate`` returned for its present weights (``results`` and ``outcome``)."""

    model: torch.nn.Module
    results: dict[str, Any]
    outcome: dict[str, Outcome]
    trained: bool
    best: Best


Tune = Callable[..., Tuned[Any]]
"""What a script does with its network and its task: ``fine_tune``, or what has the same arguments."""


class FineTuningTask(Generic[Outcome]):
    """What a run is about: its data, the inputs of its network, how it is evaluated, and what it predicts.

    Each script has one such class. ``Outcome`` is what a network says of a split, such as its answers to questions.

    Args:
        config: of the checkpoint.
        tokenizer: the one of the run.
        network: the class of the network.

    Attributes:
        args, data: the flags, and the rows of every split.
        problem_type: of a classification, as transformers' configuration names it.
        teacher: of ``--teacher``; None without one.
        features: the inputs of every split, with the labels and weights of the rows.
        metric: the key of the results by which the best evaluation is chosen.
        training: whether there is training data.
        may_be_new: prefixes of weights that may be newly initialised.
        per_token: whether the network gives every token an output of its own.
        shown: the values that an evaluation prints.

    Raises:
        ValueError: the data does not fit the flags or the model.
    """

    may_be_new: tuple[str, ...] = ("classifier.", "bert.pooler.")
    per_token = False
    shown: tuple[str, ...] = ()
    problem_type: ProblemType | None = None
    teacher: Teacher | None = None
    features: dict[str, Any]

    def __init__(
        self,
        args: Any,
        config: BertConfig,
        tokenizer: PreTrainedTokenizerBase,
        network: type[PreTrainedModel],
        data: TaskData,
    ):
        self.args, self.config, self.tokenizer, self.network, self.data = args, config, tokenizer, network, data
        check_vocabulary(data, tokenizer)
        self.metric, self.training = metric_of(args, data), "train" in data.splits

    @property
    def loss_arguments(self) -> dict[str, Any]:
        """Further arguments of the network in training, see ``task_data.py: loss_arguments``."""
        return {}

    def prepare(self, network: PreTrainedModel) -> None:
        """Change how a network, also a teacher, reads its inputs, or which weights it trains."""

    def describe(self, run: Run[Any], model: PreTrainedModel) -> None:
        """Record and print how the data is read; store in the model's config what later commands need."""

    def predict(self, run: Run[Any], model: torch.nn.Module, split: str) -> dict[str, Any]:
        """The outputs of a network for a split, and the mean loss if its rows have labels."""
        return predict(run, model, self.features[split], self.args.per_device_eval_batch_size, self.per_token)

    def judge(self, run: Run[Any], model: torch.nn.Module, split: str) -> tuple[dict[str, Any], Outcome]:
        """The scores of a split, {} if nothing is known of it, and what the network says of it."""
        raise NotImplementedError

    def write(self, folder: Path, split: str, outcome: Outcome) -> None:
        """Write the files of predictions."""
        raise NotImplementedError

    def evaluate(
        self, run: Run[Any], model: torch.nn.Module, step: int, kind: str = "validation"
    ) -> tuple[dict[str, Any], dict[str, Outcome]]:
        """The results of the splits of a kind, by their names in all_results.json, and what the network says of each.

        Args:
            model: prepared by Accelerate.
            step: the optimiser steps done.
        """
        results: dict[str, Any] = {}
        outcome: dict[str, Outcome] = {}
        for split in self.features:
            if split.startswith(kind):
                values, outcome[split] = self.judge(run, model, split)
                shown = [f"{name} {values[name]:.4f}" for name in self.shown if name in values]
                run.say(f"step {step}, {split}: {', '.join(shown) or 'predicted'}")
                results |= results_of(split, values)
        return results, outcome

    def finish(self, run: Run[Any], model: PreTrainedModel, tuned: Tuned[Outcome]) -> None:
        """Predict the test data, which happens here, once, and write all predictions.

        Args:
            model: the network, whose config is saved.
            tuned: its results get those of the test data.
        """
        results, tested = self.evaluate(run, tuned.model, tuned.results["train_steps"], "test")
        tuned.results.update(results)
        for split, outcome in (tuned.outcome | tested).items() if run.is_main else ():
            self.write(run.output_dir, split, outcome)


def build_task_network(run: Run[Any], task: FineTuningTask[Any]) -> tuple[PreTrainedModel, Origin]:
    """The network that the flags ask for, with the outputs of the task, and what must be the same in a resumed run.

    The checkpoint's head is kept if its classes match and replaced otherwise; a printed line says which.

    Raises:
        ValueError: as in ``load_network``; or weights are newly initialised and there is no training data.
    """
    args, cls, initial_weights, replaced = run.args, task.network, None, ""
    config = with_labels(task.config, task.data.label_names, task.problem_type)
    vars(config).pop("auto_map", None)  # it describes the checkpoint's code; a saved model writes its own
    # A network that only this project has is controlled by transformers' encoder inside it.
    shared = hasattr(transformers, cls.__name__)
    inside = {} if shared or args.model_impl == "repro" else {"encoder_class": transformers.BertModel}
    if args.config_name:
        model, new = cls(config, **inside), ["all weights"]
    else:
        assert args.model_name_or_path is not None  # this flag or --config_name is required
        loaded = load_network(cls, args.model_name_or_path, task.may_be_new, config=config, **inside)
        initial_weights = weights_sha256(args.model_name_or_path, local_files_only=True)
        if "classifier.weight" not in loaded.absent:
            replaced = _keep_or_replace_head(loaded, task.config)
        model, new, _ = loaded
        if kept := getattr(args, "kept_layers", None):
            numbers = ", ".join(map(str, kept))
            run.say(f"layers {numbers} of the {model.config.num_hidden_layers} of {args.model_name_or_path}")
            model = with_layers(model, kept, **inside)
    if new and not task.training:
        kind = class_in(task.config)
        hint = f". It is a {kind}: evaluate it with {opened_by()[kind]}" if kind and kind != cls.__name__ else ""
        raise UserError(
            f"newly initialised: {', '.join(new)}; without training data the model cannot be evaluated{hint}"
        )
    run.say(f"newly initialised: {', '.join(new)}{replaced}" if new else "the head is the checkpoint's")
    if shared:
        model = as_implementation(model, args)
    if args.model_name_or_path and class_in(task.config):  # it was fine-tuned
        report_stored(run, task.config)
    if task.training:
        store_flags(model.config, args)
        base, rate, width = type(args).learning_rate, args.learning_rate, model.config.hidden_size
        if rate == scaled_rate(base, width) != base:
            run.say(f"learning rate {rate:g}: {base:g} at 768 units, scaled to {width}".replace("e-0", "e-"))
    prepare_for_training(model, args)
    task.prepare(model)
    return model, record_origin(run, task.data, task.tokenizer, initial_weights)


def _keep_or_replace_head(loaded: LoadedNetwork, checkpoint_config: BertConfig) -> str:
    """Draw the classifier of a loaded network anew if the checkpoint's is for other classes.

    Returns:
        For the printed line, what a new classifier replaces; "" if the checkpoint's is kept or it has none.
    """
    model, new, _ = loaded
    names = config_labels(checkpoint_config)
    # load_network replaces a head for another number of classes; here the number is the same, but the names differ.
    other_classes = names and {*map(str.lower, names)} != {*map(str.lower, model.config.label2id or {})}
    if model.config.problem_type == "regression":
        other_classes = False  # whatever the one score is called
    several = "multi_label_classification"
    one_gives_several = several in (checkpoint_config.problem_type, model.config.problem_type)
    if one_gives_several and checkpoint_config.problem_type != model.config.problem_type:
        other_classes = True
    classifier = getattr(model, "classifier", None)
    if isinstance(classifier, torch.nn.Linear) and "classifier.weight" not in new and other_classes:
        draw_classifier(classifier, model.config.initializer_range)
        new += ["classifier.bias", "classifier.weight"]
    if "classifier.weight" not in new:
        return ""
    classes = names or [f"{checkpoint_config.num_labels} classes"]
    return f", in place of the checkpoint's head for {', '.join(classes)}"


def fine_tune(
    run: Run[FineTuningArguments], model: PreTrainedModel, origin: Origin, task: FineTuningTask[Outcome]
) -> Tuned[Outcome]:
    """Train as the flags say, with evaluations and checkpoints; restore the best weights if that is asked.

    Without training data the model is only evaluated.

    Args:
        model: not yet prepared by Accelerate.
        origin: what must be the same in a resumed run, see ``record_origin``.
    """
    train, metric = task.features.get("train"), task.metric
    if train and task.teacher:
        train = give_lesson(run, task.teacher, model, train, task.per_token, task.prepare)
        origin = dataclasses.replace(origin, teacher=task.teacher.weights)
    args, size = run.args, run.global_batch_size
    if train:
        train = train.shuffled(args.seed)
    examples = len(train) if train else 0
    total_steps = steps_for(args, size / examples) if train else 0
    run.add_facts(parameters=model.num_parameters(), total_steps=total_steps, metric=metric)
    if train and args.lora_rank:
        lora.add_lora(model, args.lora_rank)
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        run.say(f"LoRA of rank {args.lora_rank}: {trained:,} weights are trained")
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
    options: dict[str, Any] = {"max_grad_norm": args.max_grad_norm, "loss_arguments": task.loss_arguments}
    for step in training_steps(run, state, batches, start_step=done, **options):
        if step.index % args.logging_steps == 0 or step.index in (1, total_steps):
            record = {"epoch": round(step.index * size / examples, 3), "loss": step.loss}
            record |= step.parts  # the terms of a student's loss
            run.log(event="train", step=step.index, **record, learning_rate=step.lr, grad_norm=step.grad_norm)
        if evaluation_due(run, step.index, examples) and step.index < total_steps:
            results, outcome = _evaluated(run, task, model, step.index)
            best.add(step.index, results, model)
        if args.save_steps and step.index % args.save_steps == 0:
            save_checkpoint(run, step.index, state)
    results, outcome = _evaluated(run, task, model, total_steps)
    best.add(total_steps, results, model)
    if args.load_best_model_at_end:
        results = best.restore(model)
        if best.step != total_steps:
            _, outcome = task.evaluate(run, model, best.step)
    if train and args.lora_rank:
        adapted = run.accelerator.unwrap_model(model)
        if not getattr(args, "keep_layers", None):  # the model that it is for has all layers
            run.only_main(lambda: lora.save_adapter(adapted, args.model_name_or_path, run.output_dir / "adapter"))
        lora.merge(adapted)
    seconds = state.totals.seconds  # of all training steps, without evaluations and checkpoints
    rate = state.totals.steps * size / seconds if seconds else 0
    speed = {"train_runtime": round(seconds, 3), "train_samples_per_second": round(rate, 3)}
    results = results | speed | {"train_steps": total_steps}
    return Tuned(model, results, outcome, bool(train), best)


def _evaluated(
    run: Run[Any], task: FineTuningTask[Outcome], model: torch.nn.Module, step: int
) -> tuple[dict[str, Any], dict[str, Outcome]]:
    results, outcome = task.evaluate(run, model, step)
    if results:
        run.log(event="eval", step=step, **results)
    return results, outcome


def finish(run: Run[Any], tuned: Tuned[Any], task: FineTuningTask[Any]) -> None:
    """Write the finished folder: model, tokenizer, curves, card and results; upload it with ``--push_to_hub``."""
    constant = task.data.baselines().get(task.metric)
    if tuned.trained and constant is not None and (tuned.results.get(task.metric, math.inf) or 0) <= constant:
        run.say(
            f"warning: {task.metric} is no higher than {constant:.4g}, which one answer to every example reaches; "
            f"change --learning_rate first (it was {run.args.learning_rate:g}), then try more epochs or examples"
        )
    save_model_folder(run, tuned.model)
    save_tokenizer(run, task.tokenizer, tuned.model)
    if run.is_main:
        carry_modules(run.args.model_name_or_path, run.output_dir)
        if tuned.trained:
            draw_curves(run.output_dir)
        write_model_card(run.output_dir, datasets=[task.data.name], metrics=tuned.results)
    run.finish(tuned.results)
    tuned.best.clear()  # what only a resumed run would need
    run.say(f"finished: {run.output_dir}")
    if run.is_main:
        upload_finished(run.args)
