#!/usr/bin/env python3
"""Fine-tune BERT to mark names in sentences, or any other spans of words that have a type.

With no data flags, on documentation that this Python carries (which words did the authors mark as code?):

    python run_ner.py --model_name_or_path runs/first --max_seq_length 128 --output_dir runs/code

CoNLL-2003 in its original files (one word per line, with its tag last; plain, .gz or .xz), with a cased model:

    python run_ner.py --model_name_or_path runs/base_cased --train_file eng.train --validation_file eng.testa \
        --test_file eng.testb --output_dir runs/ner

Your own files: columns or JSON, with tags in IO, IOB1, BIO, BIOES or BMES, or plain ones such as parts of speech;
--test_file may also have plain sentences, one a line. A sentence is read with as much of its document around it as fits
(paper, section 5.3; -DOCSTART- lines separate documents), or here without:

    python run_ner.py --model_name_or_path runs/base_cased --train_file train.txt --validation_file dev.txt \
        --context sentence --max_seq_length 128 --per_device_train_batch_size 32 --output_dir runs/own

A data set of the Hub with columns of words and tags, here with transformers' network as a control:

    python run_ner.py --model_name_or_path runs/base_cased --dataset_name you/names --output_dir runs/hub \
        --model_impl transformers

The feature-based approach of the paper's Table 7, in which BERT is frozen and a BiLSTM reads its layers:

    python run_ner.py --feature_based concat_last_four --learning_rate 1e-3 --num_train_epochs 10 \
        --model_name_or_path runs/base_cased --train_file eng.train --validation_file eng.testa --output_dir runs/lstm

Without --train_file, a fine-tuned model is only evaluated. --resume_from_checkpoint auto continues a run.
A smaller model learns from a finished one with --teacher and --keep_layers: docs/distil.md.
Whole entities are scored, as by conlleval and seqeval, or single words if the tags are plain. The predicted tags are in
<split>_predictions.txt, their probabilities in <split>_predictions.jsonl, and the names in plain sentences with their
places in test_spans.jsonl.
"""

import sys
from typing import NamedTuple

from bert_training.inputs.flags.fine_tuning import NerArguments
from bert_training.inputs.flags.parsing import check_command_line, parse_arguments
from bert_training.inputs.rows import check_files
from bert_training.tasks.stored_flags import defaults_of_model

if __name__ == "__main__":
    check_command_line(NerArguments, defaults_of_model, check_files)  # mistakes are said before torch is loaded

import numpy as np
import torch
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

import modeling_bert_repro
from bert_training.engine.batches import Features
from bert_training.engine.errors import report_errors
from bert_training.engine.launch import start_run
from bert_training.engine.output_folder import nothing_to_do
from bert_training.engine.predict import predict
from bert_training.engine.run import Run
from bert_training.inputs.models import config_labels, open_model
from bert_training.tasks import loss_weights
from bert_training.tasks.classification.trained_for import store_facts
from bert_training.tasks.fine_tuning import (
    Tune,
    build_task_network,
    choose_encoder,
    fine_tune,
    finish,
    predictions_of_splits,
)
from bert_training.tasks.ner import tagged_text
from bert_training.tasks.ner.raw_text import stored_cutting, write_spans
from bert_training.tasks.ner.schemes import with_types
from bert_training.tasks.ner.sources import NerData, load_data
from bert_training.tasks.seeds import run_all
from bert_training.tasks.task_data import (
    check_vocabulary,
    metric_of,
    record_origin,
    results_of,
    with_labels,
    write_rows,
)
from bert_training.tasks.teachers import Teacher, find_teacher, give_lesson
from modeling_bert_repro.lstm_heads import BertFeatureTagger


class Tagged(NamedTuple):
    """For every sentence the predicted tags of its words; the probabilities of all tags (words, labels)."""

    tags: list[list[str]]
    probabilities: np.ndarray


def main(argv: list[str] | None = None, tune: Tune = fine_tune) -> None:
    """Fine-tune as the flags say: one run, or a series of runs.

    Args:
        tune: what is done with the network, the data and their evaluation; ``bert-repro export`` only evaluates.
    """
    run_all(parse_arguments(NerArguments, argv, defaults_of_model), lambda args: run_alone(args, tune))


def run_alone(args: NerArguments, tune: Tune) -> None:
    """Read the model and the data, and do one run; nothing if it is finished."""
    if nothing_to_do(args):
        return
    config, tokenizer = open_model(args)
    if names := config_labels(config):
        config = with_labels(config, with_types(names))
    # The data is read before start_run, so that a mistake in it leaves no unfinished output folder behind.
    data = load_data(args, config_labels(config), stored_cutting(config))
    check_vocabulary(data, tokenizer)
    head = modeling_bert_repro.BertForTokenClassification
    teacher = find_teacher(args, head, tokenizer, data.label_names, "single_label_classification")
    rows, features = tagged_text.tokenized(data.splits, data.label_names, tokenizer, args)
    if args.class_weights is not None and "train" in data.splits:
        counts = loss_weights.count_labels(features["train"].columns["labels"], len(data.label_names))
        data.class_weights = loss_weights.class_weights_of(args, data.label_names, counts, "word", may_be_absent=True)
        features["train"] = loss_weights.with_loss_weights(features["train"], data.class_weights)
    run_one(args, tokenizer, config, data, metric_of(args, data), rows, features, teacher, tune)


def run_one(
    args: NerArguments,
    tokenizer: PreTrainedTokenizerBase,
    config: BertConfig,
    data: NerData,
    metric: str,
    rows: dict[str, tagged_text.Rows],
    features: dict[str, Features],
    teacher: Teacher | None = None,
    tune: Tune = fine_tune,
) -> dict:
    """Do one run in its output folder; return the content of all_results.json."""
    run = start_run(args)
    model, initial_weights = build_network(run, with_labels(config, data.label_names), config, "train" in data.splits)
    if "train" in data.splits:
        store_facts(model.config, words=vars(data.cutting))
    origin = record_origin(run, data, tokenizer, initial_weights)
    run.add_facts(rows={split: len(part) for split, part in features.items()})
    run.add_facts(cut_at_max_seq_length={split: part.cut_facts() for split, part in rows.items()})
    remarks = tagged_text.remarks(rows, tokenizer)
    for line in (
        *tagged_text.cut_remarks(rows, data.splits, args.max_seq_length),
        *remarks,
    ):
        run.say(line)

    def evaluated(model: torch.nn.Module, step: int, split: str = "validation") -> tuple[dict, Tagged | None]:
        return evaluate(run, model, data, rows, features, step, split) if split in features else ({}, None)

    lesson = give_lesson(run, teacher, model, features.get("train"), per_token=True)
    tuned = tune(run, model, origin, features.get("train"), evaluated, metric, lesson=lesson)
    tagged = predictions_of_splits(tuned, evaluated, features)
    if run.is_main:
        for split, found in tagged.items():
            path = run.output_dir / f"{split}_predictions.txt"
            tagged_text.write_predictions(path, data.splits[split], found.tags)
            places = path.with_suffix(".jsonl"), data.splits[split]
            tagged_text.write_probabilities(*places, found.tags, found.probabilities, data.label_names)
            if data.splits[split].tagged:
                write_rows(run.output_dir, split, tagged_text.scored_rows(data.splits[split], found.tags))
            if data.splits[split].facts.get("raw_text"):
                write_spans(run.output_dir / f"{split}_spans.jsonl", data.splits[split], found.tags, data.label_names)
    finish(run, tuned, tokenizer, data.name)
    return tuned.results


def build_network(
    run: Run[NerArguments], config: BertConfig, checkpoint_config: BertConfig, training: bool
) -> tuple[PreTrainedModel, dict[str, str] | None]:
    """A network that is fine-tuned as a whole or reads features of a frozen BERT, and the hashes of its weights.

    ``--feature_based``, or the config of the checkpoint, chooses the features.
    """
    may_be_new = ("classifier.", "lstm.", "weights")
    if run.args.feature_based:
        config.feature_based, config.lstm_size = run.args.feature_based, run.args.lstm_size
    if not getattr(config, "feature_based", None):
        return build_task_network(
            run, modeling_bert_repro.BertForTokenClassification, config, checkpoint_config, may_be_new, training
        )
    encoder = choose_encoder(run.args, modeling_bert_repro.BertModel)
    model, initial_weights = build_task_network(
        run, BertFeatureTagger, config, checkpoint_config, may_be_new, training, encoder_class=encoder
    )
    assert isinstance(model, BertFeatureTagger)
    return model.freeze(), initial_weights


def evaluate(
    run: Run[NerArguments],
    model: torch.nn.Module,
    data: NerData,
    rows: dict[str, tagged_text.Rows],
    features: dict[str, Features],
    step: int,
    split: str,
) -> tuple[dict, Tagged]:
    """Tag a split; return the scores of its entities ({} if it has no tags) and the tags with their probabilities."""
    part = data.splits[split]
    outputs = predict(run, model, features[split], run.args.per_device_eval_batch_size, per_token=True)
    predicted = tagged_text.find_tags(part, rows[split], outputs["logits"], data.label_names)
    tagged = Tagged(predicted, tagged_text.tag_probabilities(part, rows[split], outputs["logits"]))
    if not part.tagged:
        return {}, tagged
    values = tagged_text.score(part, predicted) | {"loss": outputs["loss"]}
    shown = ("accuracy", "f1_macro") if part.plain else ("precision", "recall", "f1")
    run.say(f"step {step}, {split}: " + ", ".join(f"{name} {values[name]:.4f}" for name in shown))
    return results_of(split, values), tagged


if __name__ == "__main__":
    sys.exit(report_errors(main))
