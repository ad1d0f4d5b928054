#!/usr/bin/env python3
"""Fine-tune BERT to choose how a text goes on: SWAG, or other multiple choice in its layout.

SWAG from the official files (train.csv and val.csv of its release), or from the Hub:

    python run_swag.py --model_name_or_path runs/base --train_file train.csv --validation_file val.csv \
        --output_dir runs/swag
    python run_swag.py --model_name_or_path runs/base --dataset_name allenai/swag --dataset_config_name regular \
        --output_dir runs/swag

Your own files are .csv, .tsv or .jsonl with the columns sent1 (the context), ending0, ending1 and so on (two or more),
label (the number of the right ending) and, if all endings begin with the same words, sent2 (these words).

Random weights as a baseline, and transformers' network as a control:

    python run_swag.py --config_name mini --tokenizer_name runs/base --train_file train.csv --validation_file val.csv \
        --output_dir runs/random
    python run_swag.py --model_impl transformers --model_name_or_path runs/base --train_file train.csv \
        --validation_file val.csv --output_dir runs/control

Without --train_file, a fine-tuned model is only evaluated. --resume_from_checkpoint auto continues a run.
For validation and --test_file, <split>_predictions.csv contains the chosen ending and the probability of each ending.
"""

import sys

from bert_training.inputs.flags.fine_tuning import SwagArguments
from bert_training.inputs.flags.parsing import check_command_line, parse_arguments
from bert_training.inputs.rows import check_files
from bert_training.tasks.stored_flags import defaults_of_model

if __name__ == "__main__":
    check_command_line(SwagArguments, defaults_of_model, check_files)  # mistakes are said before torch is loaded

import numpy as np
import torch
from transformers import BertConfig, PreTrainedTokenizerBase

import modeling_bert_repro
from bert_training.engine.errors import report_errors
from bert_training.engine.launch import start_run
from bert_training.engine.output_folder import nothing_to_do
from bert_training.engine.predict import predict
from bert_training.engine.run import Run
from bert_training.inputs.models import open_model
from bert_training.tasks import swag
from bert_training.tasks.cut_texts import report_cut
from bert_training.tasks.fine_tuning import (
    Tune,
    build_task_network,
    fine_tune,
    finish,
    predictions_of_splits,
)
from bert_training.tasks.seeds import run_all
from bert_training.tasks.task_data import (
    check_vocabulary,
    metric_of,
    record_origin,
    results_of,
    with_labels,
    write_rows,
)


def main(argv: list[str] | None = None, tune: Tune = fine_tune) -> None:
    """Fine-tune as the flags say: one run, or a series of runs.

    Args:
        tune: what is done with the network, the data and their evaluation; ``bert-repro export`` only evaluates.
    """
    run_all(parse_arguments(SwagArguments, argv, defaults_of_model), lambda args: run_alone(args, tune))


def run_alone(args: SwagArguments, tune: Tune) -> None:
    """Read the model and the data, and do one run; nothing if it is finished."""
    if nothing_to_do(args):
        return
    config, tokenizer = open_model(args, label_at_cls=True)
    # The data is read before start_run, so that a mistake in it leaves no unfinished output folder behind.
    data = swag.load_data(args)
    check_vocabulary(data, tokenizer)
    metric = metric_of(args, data)
    features = swag.features(data, tokenizer, args.max_seq_length)
    run_one(args, tokenizer, config, data, metric, features, tune)


def run_one(
    args: SwagArguments,
    tokenizer: PreTrainedTokenizerBase,
    config: BertConfig,
    data: swag.SwagData,
    metric: str,
    features: dict[str, swag.ChoiceFeatures],
    tune: Tune = fine_tune,
) -> dict:
    """Do one run in its output folder; return the content of all_results.json."""
    run = start_run(args)
    labelled = with_labels(config, data.label_names)
    cls, may_be_new = modeling_bert_repro.BertForMultipleChoice, ("classifier.", "bert.pooler.")
    model, initial_weights = build_task_network(run, cls, labelled, config, may_be_new, "train" in data.splits)
    origin = record_origin(run, data, tokenizer, initial_weights)
    report_cut(run, {split: part.cut for split, part in data.splits.items()}, config.max_position_embeddings)

    def evaluated(model: torch.nn.Module, step: int, split: str = "validation") -> tuple[dict, np.ndarray | None]:
        return evaluate(run, model, data, features, step, split) if split in features else ({}, None)

    tuned = tune(run, model, origin, features.get("train"), evaluated, metric)
    logits_by_split = predictions_of_splits(tuned, evaluated, features)
    if run.is_main:
        for split, logits in logits_by_split.items():
            swag.write_predictions(run.output_dir / f"{split}_predictions.csv", data.splits[split], logits)
            if data.splits[split].labels:
                write_rows(run.output_dir, split, swag.scored_rows(data.splits[split], logits))
    finish(run, tuned, tokenizer, data.name)
    return tuned.results


def evaluate(
    run: Run[SwagArguments],
    model: torch.nn.Module,
    data: swag.SwagData,
    features: dict[str, swag.ChoiceFeatures],
    step: int,
    split: str,
) -> tuple[dict, np.ndarray]:
    """Choose endings in a split; return the accuracy and the loss ({} if it has no labels) and the logits."""
    part = data.splits[split]
    outputs = predict(run, model, features[split], run.args.per_device_eval_batch_size)
    if not part.labels:
        return {}, outputs["logits"]
    values = swag.score(outputs["logits"], part.labels) | {"loss": outputs["loss"]}
    run.say(f"step {step}, {split}: " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))
    return results_of(split, values), outputs["logits"]


if __name__ == "__main__":
    sys.exit(report_errors(main))
