#!/usr/bin/env python3
"""Fine-tune BERT to mark names in sentences, or any other spans of words that have a type.

With no data flags, on documentation that this Python carries (which words did the authors mark as code?):

    python run_ner.py --model_name_or_path runs/first --max_seq_length 128 --output_dir runs/code

CoNLL-2003 in its original files (one word per line, with its tag last; plain, .gz or .xz), with a cased model:

    python run_ner.py --model_name_or_path runs/base_cased --train_file eng.train --validation_file eng.testa \
        --test_file eng.testb --output_dir runs/ner

Your own files: columns or JSON, with tags in IO, IOB1, BIO, BIOES or BMES, or plain ones such as parts of speech; or
texts with spans, {"text": "Ada slept.", "label": [[0, 3, "PER"]]}, also as doccano, Label Studio and others export them
(docs/tag.md). --test_file may also have plain sentences, one a line. A sentence is read with as much of its document
around it as fits (paper, section 5.3; -DOCSTART- lines separate documents), or here without:

    python run_ner.py --model_name_or_path runs/base_cased --train_file train.txt --validation_file dev.txt \
        --context sentence --max_seq_length 128 --per_device_train_batch_size 32 --output_dir runs/own

One file is enough with --validation_split 0.1, or with --folds 5 (a cross-validation), in place of --validation_file.

A data set of the Hub with columns of words and tags, here with transformers' network as a control:

    python run_ner.py --model_name_or_path runs/base_cased --dataset_name you/names --output_dir runs/hub \
        --model_impl transformers

The feature-based approach of the paper's Table 7, in which BERT is frozen and a BiLSTM reads its layers:

    python run_ner.py --feature_based concat_last_four --learning_rate 1e-3 --num_train_epochs 10 \
        --model_name_or_path runs/base_cased --train_file eng.train --validation_file eng.testa --output_dir runs/lstm

Without --train_file, a fine-tuned model is only evaluated. --resume_from_checkpoint auto continues a run.
A smaller model learns from a finished one with --teacher and --keep_layers: docs/distil.md.
Whole entities are scored, as by conlleval and seqeval, or single words if the tags are plain. The predicted tags are in
<split>_predictions.txt, their probabilities in <split>_predictions.jsonl, and the names in texts and plain sentences
with their places in <split>_spans.jsonl.
"""

import sys

from bert_training.inputs.flags.fine_tuning import NerArguments
from bert_training.inputs.flags.parsing import check_command_line, parse_arguments
from bert_training.inputs.rows import check_files
from bert_training.tasks.stored_flags import defaults_of_model

if __name__ == "__main__":
    check_command_line(NerArguments, defaults_of_model, check_files)  # mistakes are said before torch is loaded

import modeling_bert_repro
from bert_training.engine.errors import report_errors
from bert_training.engine.launch import start_run
from bert_training.engine.run import nothing_to_do
from bert_training.inputs.models import open_model
from bert_training.tasks.fine_tuning import Tune, build_task_network, fine_tune, finish
from bert_training.tasks.ner.evaluation import Tagger
from bert_training.tasks.seeds import run_all
from modeling_bert_repro.lstm_heads import BertFeatureTagger


def main(argv: list[str] | None = None, tune: Tune = fine_tune) -> None:
    """Fine-tune as the flags say: one run, or a series of runs.

    Args:
        tune: what is done with the network and the task; ``bert-repro export`` only evaluates.
    """
    run_all(parse_arguments(NerArguments, argv, defaults_of_model), lambda args: run_alone(args, tune))


def run_alone(args: NerArguments, tune: Tune = fine_tune) -> None:
    """Do one run, unless it is finished."""
    if nothing_to_do(args):
        return
    config, tokenizer = open_model(args)
    if args.feature_based:  # otherwise the checkpoint says whether its BERT is frozen
        config.feature_based, config.lstm_size = args.feature_based, args.lstm_size
    frozen = getattr(config, "feature_based", None)
    network = BertFeatureTagger if frozen else modeling_bert_repro.BertForTokenClassification
    # The data is read before start_run, so that a mistake in it leaves no unfinished output folder behind.
    task = Tagger(args, config, tokenizer, network)

    run = start_run(args)
    model, origin = build_task_network(run, task)
    task.describe(run, model)
    tuned = tune(run, model, origin, task)  # the loop, with its evaluations
    task.finish(run, model, tuned)
    finish(run, tuned, task)


if __name__ == "__main__":
    sys.exit(report_errors(main))
