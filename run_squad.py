#!/usr/bin/env python3
"""Fine-tune BERT to find answers: SQuAD 1.1, SQuAD 2.0, or questions in that format.

With no data flags, on built-in questions about the documentation of this Python:

    python run_squad.py --model_name_or_path runs/first --max_seq_length 128 --max_query_length 24 --doc_stride 64 \
        --output_dir runs/qa

SQuAD 1.1 from files (.json, also .xz and .gz), or from the Hub with --dataset_name rajpurkar/squad:

    python run_squad.py --model_name_or_path runs/base --train_file train-v1.1.json --validation_file dev-v1.1.json \
        --per_device_train_batch_size 12 --learning_rate 3e-5 --num_train_epochs 2 --output_dir runs/squad

SQuAD 2.0, whose questions may have no answer:

    accelerate launch run_squad.py --model_name_or_path runs/base --version_2_with_negative \
        --train_file train-v2.0.json --validation_file dev-v2.0.json --output_dir runs/squad2

For a baseline with random weights, give --config_name mini --tokenizer_name runs/first and no --model_name_or_path.
For a control, transformers' network with the same weights, add --model_impl transformers.
With --validation_file alone, a fine-tuned model only answers; with --test_file alone, the questions need no gold
answers, and may be a table with the columns question and context. --resume_from_checkpoint auto continues a run.
--bilstm_on_top puts a BiLSTM before the output (paper, 5.1). A smaller model learns from a finished one with --teacher
and --keep_layers: docs/distil.md.

At the end the output folder contains the model, tokenizer, card, curves, run.json, metrics.jsonl, all_results.json, and
the answers: predictions.json, nbest_predictions.json, and for SQuAD 2.0 null_odds.json and span_predictions.json (the
answers before the threshold is applied); and of a --test_file the same with test_ before their names, and
test_answers.jsonl. docs/answer-questions.md explains the scores, the files of answers, the thresholds, and how to ask a
finished model.
"""

import sys

from bert_training.inputs.flags.fine_tuning import SquadArguments
from bert_training.inputs.flags.parsing import check_command_line, parse_arguments
from bert_training.inputs.rows import check_files
from bert_training.tasks.stored_flags import defaults_of_model

if __name__ == "__main__":
    check_command_line(SquadArguments, defaults_of_model, check_files)  # mistakes are said before torch is loaded

import modeling_bert_repro
from bert_training.engine.errors import report_errors
from bert_training.engine.launch import start_run
from bert_training.engine.run import nothing_to_do
from bert_training.inputs.models import open_model
from bert_training.tasks.fine_tuning import Tune, build_task_network, fine_tune, finish
from bert_training.tasks.seeds import run_all
from bert_training.tasks.squad.evaluation import AnswerFinder
from modeling_bert_repro.lstm_heads import BertBiLSTMForQuestionAnswering


def main(argv: list[str] | None = None, tune: Tune = fine_tune) -> None:
    """Fine-tune as the flags say: one run, or a series of runs.

    Args:
        tune: what is done with the network and the task; ``bert-repro export`` only evaluates.
    """
    run_all(parse_arguments(SquadArguments, argv, defaults_of_model), lambda args: run_alone(args, tune))


def run_alone(args: SquadArguments, tune: Tune = fine_tune) -> None:
    """Do one run, unless it is finished."""
    if nothing_to_do(args):
        return
    config, tokenizer = open_model(args)
    network = BertBiLSTMForQuestionAnswering if args.bilstm_on_top else modeling_bert_repro.BertForQuestionAnswering
    # The data is read before start_run, so that a mistake in it leaves no unfinished output folder behind.
    task = AnswerFinder(args, config, tokenizer, network)

    run = start_run(args)
    model, origin = build_task_network(run, task)
    task.describe(run, model)
    tuned = tune(run, model, origin, task)  # the loop, with its evaluations
    task.finish(run, model, tuned)
    finish(run, tuned, task)


if __name__ == "__main__":
    sys.exit(report_errors(main))
