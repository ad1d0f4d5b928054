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

from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.parsing import check_command_line, parse_arguments
from bert_training.tasks.classification.columns import check_columns
from bert_training.tasks.stored_flags import defaults_of_model

if __name__ == "__main__":
    check_command_line(GlueArguments, defaults_of_model, check_columns)  # mistakes are said before torch is loaded

from transformers import PreTrainedModel

import modeling_bert_repro
from bert_training.engine.errors import report_errors
from bert_training.engine.launch import start_run
from bert_training.engine.run import nothing_to_do
from bert_training.inputs.models import open_model
from bert_training.tasks.classification.evaluation import Classifier
from bert_training.tasks.classification.labelled_texts import ClassificationData
from bert_training.tasks.fine_tuning import Tune, build_task_network, fine_tune, finish
from bert_training.tasks.seeds import run_all
from modeling_bert_repro.lstm_heads import BertBiLSTMForTokenClassification


def main(argv: list[str] | None = None, tune: Tune = fine_tune) -> None:
    """Fine-tune as the flags say: one run, or a series of runs.

    Args:
        tune: what is done with the network and the task; ``bert-repro export`` only evaluates.
    """
    run_all(parse_arguments(GlueArguments, argv, defaults_of_model), lambda args: run_alone(args, tune))


def run_alone(args: GlueArguments, tune: Tune = fine_tune, data: ClassificationData | None = None) -> None:
    """Do one run, unless it is finished; its data is that of the flags, or that of a task of one's own."""
    if nothing_to_do(args):
        return
    config, tokenizer = open_model(args, label_at_cls=args.label_token == "cls")
    # The data is read before start_run, so that a mistake in it leaves no unfinished output folder behind.
    task = Classifier(args, config, tokenizer, network_class(args), data)

    run = start_run(args)
    model, origin = build_task_network(run, task)
    task.describe(run, model)
    tuned = tune(run, model, origin, task)  # the loop, with its evaluations
    task.finish(run, model, tuned)
    finish(run, tuned, task)


def network_class(args: GlueArguments) -> type[PreTrainedModel]:
    """The network that reads the label from [CLS], from the last token, or from a BiLSTM's last state (paper, 5.1)."""
    if args.label_token == "bilstm":
        return BertBiLSTMForTokenClassification
    if args.label_token == "last":
        return modeling_bert_repro.BertForTokenClassification
    return modeling_bert_repro.BertForSequenceClassification


if __name__ == "__main__":
    sys.exit(report_errors(main))
