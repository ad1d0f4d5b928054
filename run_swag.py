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

from bert_training.engine.errors import report_errors
from bert_training.engine.launch import start_run
from bert_training.engine.run import nothing_to_do
from bert_training.inputs.models import open_model
from bert_training.tasks.fine_tuning import Tune, build_task_network, fine_tune, finish
from bert_training.tasks.seeds import run_all
from bert_training.tasks.swag import EndingChooser
from modeling_bert_repro import BertForMultipleChoice


def main(argv: list[str] | None = None, tune: Tune = fine_tune) -> None:
    """Fine-tune as the flags say: one run, or a series of runs.

    Args:
        tune: what is done with the network and the task; ``bert-repro export`` only evaluates.
    """
    run_all(parse_arguments(SwagArguments, argv, defaults_of_model), lambda args: run_alone(args, tune))


def run_alone(args: SwagArguments, tune: Tune = fine_tune) -> None:
    """Do one run, unless it is finished."""
    if nothing_to_do(args):
        return
    config, tokenizer = open_model(args, label_at_cls=True)
    # The data is read before start_run, so that a mistake in it leaves no unfinished output folder behind.
    task = EndingChooser(args, config, tokenizer, BertForMultipleChoice)

    run = start_run(args)
    model, origin = build_task_network(run, task)
    task.describe(run, model)
    tuned = tune(run, model, origin, task)  # the loop, with its evaluations
    task.finish(run, model, tuned)
    finish(run, tuned, task)


if __name__ == "__main__":
    sys.exit(report_errors(main))
