#!/usr/bin/env python3
"""Fine-tune BERT on a task of GLUE, or on your own sentences and labels.

With no data flags, on built-in pairs from the documentation of this Python (does this text belong to this summary?):

    python run_glue.py --model_name_or_path runs/first --output_dir runs/pair

A task of GLUE from the official files, or without --data_dir from the Hub (for the GLUE server, --do_predict):

    python run_glue.py --model_name_or_path runs/mini --task_name mrpc --data_dir glue/MRPC --output_dir runs/mrpc

Your own .csv, .tsv (never quoted), .jsonl, .json or .parquet with the columns `text` and `label`, or those that
--text_column (two for pairs) and --label_column name; labels such as 2.5 are scores, lists are several labels a
text. One file is enough (--folds 5 instead is a cross-validation):

    python run_glue.py --model_name_or_path runs/mini --train_file a.csv --validation_split 0.1 --output_dir runs/own

Five runs and their statistics, here with transformers' network as a control. If the command is stopped, start it again,
and it continues:

    python run_glue.py --model_impl transformers --model_name_or_path runs/mini --task_name mrpc \
        --data_dir glue/MRPC --seeds 5 --compare_to runs/mrpc5 --output_dir runs/mrpc5_control

Without training data, a fine-tuned model is only evaluated: give --task_name ax after MNLI, or --validation_file alone.
For random weights, give --config_name mini --tokenizer_name runs/mini. docs/classify.md explains the rest.
A smaller model learns from a finished one with --teacher and --keep_layers: docs/distil.md.
A network that was pre-trained with --objective ltr needs --label_token last, or bilstm.
"""

import sys
from typing import Any

from bert_training.inputs.flags.fine_tuning import LAST_TOKEN, GlueArguments
from bert_training.inputs.flags.parsing import check_command_line, parse_arguments
from bert_training.tasks.classification.columns import check_columns
from bert_training.tasks.stored_flags import defaults_of_model

if __name__ == "__main__":
    check_command_line(GlueArguments, defaults_of_model, check_columns)  # mistakes are said before torch is loaded

import numpy as np
import torch
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

import modeling_bert_repro
from bert_training.engine.batches import Features
from bert_training.engine.errors import report_errors
from bert_training.engine.launch import start_run
from bert_training.engine.output_folder import check_output_dir, is_finished, report_finished
from bert_training.engine.predict import predict
from bert_training.engine.run import Run
from bert_training.inputs.models import config_labels, open_model
from bert_training.tasks.classification import calibration, labelled_texts, scores, submission
from bert_training.tasks.classification.last_token import with_labels_at_the_end, with_logits_at_the_end
from bert_training.tasks.classification.long_texts import Reading, pool_windows
from bert_training.tasks.classification.multi_label_scores import (
    Thresholds,
    origin_of_thresholds,
    say_thresholds,
    score_several,
    store_thresholds,
)
from bert_training.tasks.classification.sources import load_data
from bert_training.tasks.classification.splits import divided
from bert_training.tasks.classification.trained_for import TEMPERATURE, store_facts, stored_temperature, trained_for
from bert_training.tasks.cut_texts import report_cut
from bert_training.tasks.fine_tuning import (
    Tune,
    Tuned,
    build_task_network,
    choose_encoder,
    fine_tune,
    finish,
    save_folder,
)
from bert_training.tasks.loss_weights import loss_arguments
from bert_training.tasks.scored_rows import write_rows
from bert_training.tasks.seeds import run_all
from bert_training.tasks.task_data import check_vocabulary, metric_of, record_origin, with_labels
from bert_training.tasks.teachers import Teacher, find_teacher, give_lesson
from modeling_bert_repro.lstm_heads import BertBiLSTMForTokenClassification


def main(argv: list[str] | None = None, tune: Tune = fine_tune) -> None:
    """Fine-tune as the flags say: one run, or a series of runs.

    Args:
        tune: what is done with the network, the data and their evaluation; ``bert-repro export`` only evaluates.
    """
    run_all(parse_arguments(GlueArguments, argv, defaults_of_model), lambda args: run_alone(args, tune))


def run_alone(args: GlueArguments, tune: Tune) -> None:
    """Read the model and the data, and do one run; nothing if it is finished."""
    if is_finished(args):
        report_finished(args)
        return
    check_output_dir(args)
    config, tokenizer = open_model(args, label_at_cls=args.label_token == "cls")
    # The data is read before start_run, so that a mistake in it leaves no unfinished output folder behind.
    trained = trained_for(config, args.model_name_or_path, network_class(args).__name__)
    data = load_data(args, config_labels(config), trained)
    check_vocabulary(data, tokenizer)
    data = divided(data, args)
    labelled_texts.check_flags(args, data)
    labelled_texts.weigh(args, data)
    metric = metric_of(args, data)
    teacher = find_teacher(args, network_class(args), tokenizer, data.label_names, data.problem_type)
    features = labelled_texts.features(data, tokenizer, args.max_seq_length, Reading.of_flags(args))
    run_one(args, tokenizer, config, data, metric, features, teacher, tune)


def run_one(
    args: GlueArguments,
    tokenizer: PreTrainedTokenizerBase,
    config: BertConfig,
    data: labelled_texts.ClassificationData,
    metric: str,
    features: dict[str, Features],
    teacher: Teacher | None = None,
    tune: Tune = fine_tune,
) -> dict:
    """Do one run in its output folder; return the content of all_results.json."""
    run = start_run(args)
    labelled = with_labels(config, data.label_names, data.problem_type)
    model, initial_weights = build_network(run, labelled, config, "train" in data.splits)

    def prepare(network: PreTrainedModel) -> None:
        if args.long_texts == "windows":
            pool_windows(network)

    prepare(model)
    if "train" in data.splits:
        store_facts(model.config, **data.stored_facts())
    origin = record_origin(run, data, tokenizer, initial_weights)
    run.add_facts(**data.stored_facts(), **origin_of_thresholds(data.task, config, "train" in data.splits))
    cut = {split: examples.cut for split, examples in data.splits.items()}
    report_cut(run, cut, config.max_position_embeddings, Reading.of_flags(args).instead(data.texts_per_example))

    stored = None if "train" in data.splits else stored_temperature(config)

    def evaluated(model: torch.nn.Module, step: int) -> tuple[dict, dict[str, np.ndarray]]:
        results, logits = evaluate(run, model, data, features, step, stored)
        return scores.with_chosen(results, metric), logits

    train = labelled_texts.weighted_features(data, features)
    if train and args.label_token in LAST_TOKEN:
        train = with_labels_at_the_end(train)
    arguments = loss_arguments(data.class_weights, data.task.several_labels)
    lesson = give_lesson(run, teacher, model, train, args.label_token in LAST_TOKEN, prepare)
    tuned = tune(run, model, origin, train, evaluated, metric, arguments, lesson)
    temperature = tuned.results.get(f"eval_{TEMPERATURE}", stored)
    # In a run that is resumed, the best evaluation may be one of before the flag was given, or left out.
    if args.calibrate or (temperature and not stored):
        temperature = temperature or data.temperature(tuned.outcome)
        store_facts(model.config, temperature=temperature)
        run.say(calibration.remark(temperature))
    thresholds = data.thresholds(model.config, tuned.outcome)
    tuned.results.update(write_predictions(run, tuned, data, features, temperature, thresholds))
    if thresholds and tuned.trained:
        store_thresholds(model.config, thresholds)
    for line in data.second_look(tuned.results, tuned.outcome, args.learning_rate) if tuned.trained else ():
        run.say(line)
    save_folder(run, tuned, tokenizer, data.name)
    finish(run, tuned)
    return tuned.results


def build_network(
    run: Run[GlueArguments], config: BertConfig, checkpoint_config: BertConfig, training: bool
) -> tuple[PreTrainedModel, dict[str, str] | None]:
    """A network that reads the label from [CLS] or from the last token, and the hashes of its initial weights.

    From the last token, the network optionally reads it through a BiLSTM.
    """
    args, may_be_new = run.args, ("classifier.", "bert.pooler.", "lstm.")
    if args.label_token == "bilstm":
        encoder = choose_encoder(args, modeling_bert_repro.BertModel)
        return build_task_network(
            run,
            BertBiLSTMForTokenClassification,
            config,
            checkpoint_config,
            may_be_new,
            training,
            encoder_class=encoder,
        )
    return build_task_network(run, network_class(args), config, checkpoint_config, may_be_new, training)


def network_class(args: GlueArguments) -> type[PreTrainedModel]:
    """The class of the network that the flags ask for."""
    if args.label_token == "bilstm":
        return BertBiLSTMForTokenClassification
    if args.label_token == "last":
        return modeling_bert_repro.BertForTokenClassification
    return modeling_bert_repro.BertForSequenceClassification


def predict_split(run: Run[GlueArguments], model: torch.nn.Module, rows: Features) -> dict:
    """The logits (rows, classes) and, if the rows have labels, the mean loss."""
    size = run.args.per_device_eval_batch_size
    if run.args.label_token in LAST_TOKEN:
        return with_logits_at_the_end(predict(run, model, with_labels_at_the_end(rows), size, per_token=True))
    return predict(run, model, rows, size)


def evaluate(
    run: Run[GlueArguments],
    model: torch.nn.Module,
    data: labelled_texts.ClassificationData,
    features: dict[str, Features],
    step: int,
    temperature: float | None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The task's metrics and the loss on every validation split; the names of MNLI's two validation sets differ.

    Args:
        temperature: of the model's probabilities; with --calibrate it is found on the validation data instead.

    Returns:
        The results, and the logits (rows, classes) of every validation split.
    """
    outputs = {
        split: predict_split(run, model, rows) for split, rows in features.items() if split.startswith("validation")
    }
    logits = {split: found["logits"] for split, found in outputs.items()}
    if run.args.calibrate:
        temperature = data.temperature(logits)
    thresholds = data.thresholds(run.accelerator.unwrap_model(model).config, logits)
    results: dict[str, Any] = {}
    for split, found in outputs.items():
        results |= scores_of(data, split, found, temperature, thresholds)
    if results:
        results |= {} if temperature is None else {f"eval_{TEMPERATURE}": temperature}
        run.say(f"step {step}: {scores.shown(results)}")
    return results, logits


def scores_of(
    data: labelled_texts.ClassificationData,
    split: str,
    outputs: dict,
    temperature: float | None,
    thresholds: Thresholds,
) -> dict[str, Any]:
    """The results of a labelled split, with their names in all_results.json."""
    examples, logits = data.splits[split], outputs["logits"]
    assert examples.labels is not None
    values: dict[str, Any]
    if thresholds:
        values = score_several(logits, examples.labels, thresholds, data.label_names)
    else:
        values = scores.score(data.task, logits, examples.labels)
    values |= scores.score_by_category(data.task, logits, examples.labels, examples.categories)
    if data.task.labels and not thresholds and (data.own or temperature is not None):
        values |= scores.detailed_scores(data.task.labels, logits, examples.labels, temperature)
    values |= {"loss": outputs["loss"]}
    return {scores.metric_prefix(split) + name: value for name, value in values.items()}


def write_predictions(
    run: Run[GlueArguments],
    tuned: Tuned[dict[str, np.ndarray]],
    data: labelled_texts.ClassificationData,
    features: dict[str, Features],
    temperature: float | None,
    thresholds: Thresholds,
) -> dict[str, Any]:
    """Write a file for every split to predict; for a submission, print why if the GLUE server would refuse it.

    Of the user's own data, the files with probabilities are written as well, also for the validation data.

    Returns:
        The results of the test splits that have labels.
    """
    results: dict[str, Any] = {}
    logits = dict(tuned.outcome)
    for split in data.to_predict:
        outputs = predict_split(run, tuned.model, features[split])
        logits[split] = outputs["logits"]
        if split.startswith("test") and data.splits[split].labels is not None:
            results |= scores_of(data, split, outputs, temperature, thresholds)
        if run.is_main:
            path = labelled_texts.write_predictions(run.output_dir, data, split, outputs["logits"], thresholds)
            wrong = (
                submission.problem(path.name, path.read_text("utf-8")) if path.name in submission.TEST_ROWS else None
            )
            run.say(f"the GLUE server would refuse this: {wrong}" if wrong else f"predictions: {path}")
    if results:
        run.say(scores.shown(results))
    if data.own and run.is_main:
        for path in labelled_texts.write_own(run.output_dir, data, logits, temperature, thresholds):
            run.say(f"predictions with {'probabilities' if data.task.labels else 'scores'}: {path} and .jsonl")
    for split, found in logits.items():
        if run.is_main and data.splits[split].labels is not None:
            write_rows(run.output_dir, split, labelled_texts.scored_rows(data, split, found, thresholds))
    if thresholds:
        say_thresholds(run.say, tuned.results | results, run.facts["thresholds"])
        return results
    for name, classes in (tuned.results | results).items():
        if name.endswith(scores.BY_CLASS):
            run.say(f"{name}:\n{scores.table(classes)}")
    return results


if __name__ == "__main__":
    sys.exit(report_errors(main))
