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
the answers: predictions.json, nbest_predictions.json, answers.html to browse them, and for SQuAD 2.0 null_odds.json and
span_predictions.json (the answers before the threshold is applied); and of a --test_file the same with test_ before
their names, and test_answers.jsonl. docs/answer-questions.md explains the
scores, the files of answers, the thresholds, and how to ask a finished model.
"""

import sys

from bert_training.inputs.flags.fine_tuning import SquadArguments
from bert_training.inputs.flags.parsing import check_command_line, parse_arguments
from bert_training.inputs.rows import check_files
from bert_training.tasks.stored_flags import defaults_of_model

if __name__ == "__main__":
    check_command_line(SquadArguments, defaults_of_model, check_files)  # mistakes are said before torch is loaded

import torch
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

import modeling_bert_repro
from bert_training.engine.batches import Features
from bert_training.engine.errors import report_errors
from bert_training.engine.launch import start_run
from bert_training.engine.output_folder import nothing_to_do
from bert_training.engine.predict import predict
from bert_training.engine.run import Run
from bert_training.inputs.models import open_model
from bert_training.tasks.fine_tuning import Tune, build_task_network, choose_encoder, fine_tune, finish
from bert_training.tasks.seeds import run_all
from bert_training.tasks.squad.answers import Answers, find_answers
from bert_training.tasks.squad.answers_page import write_page
from bert_training.tasks.squad.lost_answers import report_lost
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.sources import SquadData, load_data
from bert_training.tasks.squad.threshold import store_threshold, threshold_of_evaluation
from bert_training.tasks.squad.windows import Windows, build_windows, check_lengths
from bert_training.tasks.task_data import check_vocabulary, metric_of, record_origin, with_labels, write_rows
from bert_training.tasks.teachers import Teacher, find_teacher, give_lesson
from modeling_bert_repro.lstm_heads import BertBiLSTMForQuestionAnswering


def main(argv: list[str] | None = None, tune: Tune = fine_tune) -> None:
    """Fine-tune as the flags say: one run, or a series of runs.

    Args:
        tune: what is done with the network, the data and their evaluation; ``bert-repro export`` only evaluates.
    """
    run_all(parse_arguments(SquadArguments, argv, defaults_of_model), lambda args: run_alone(args, tune))


def run_alone(args: SquadArguments, tune: Tune) -> None:
    """Read the model and the data, and do one run; nothing if it is finished."""
    if nothing_to_do(args):
        return
    check_lengths(args.max_seq_length, args.doc_stride, args.max_query_length)
    config, tokenizer = open_model(args)
    # The data is read before start_run, so that a mistake in it leaves no unfinished output folder behind.
    data = load_data(args)
    check_vocabulary(data, tokenizer)
    metric = metric_of(args, data)
    teacher = find_teacher(args, network_class(args), tokenizer)
    lengths = (args.max_seq_length, args.doc_stride, args.max_query_length)
    windows = {split: build_windows(part, tokenizer, *lengths, split == "train") for split, part in data.splits.items()}
    run_one(args, tokenizer, config, data, windows, metric, teacher, tune)


def run_one(
    args: SquadArguments,
    tokenizer: PreTrainedTokenizerBase,
    config: BertConfig,
    data: SquadData,
    windows: dict[str, Windows],
    metric: str,
    teacher: Teacher | None = None,
    tune: Tune = fine_tune,
) -> dict:
    """Do one run in its output folder; return the content of all_results.json."""
    run = start_run(args)
    training = "train" in data.splits
    model, initial_weights = build_network(run, with_labels(config, data.label_names), config, training)
    features = {split: Features(part.columns(), tokenizer.pad_token_id) for split, part in windows.items()}
    origin = record_origin(run, data, tokenizer, initial_weights)
    run.add_facts(windows={split: len(rows) for split, rows in features.items()})
    run.say(", ".join(f"{len(rows):,} {split} windows" for split, rows in features.items()))
    run.only_main(lambda: report_lost(run, data.splits, windows, config.max_position_embeddings))
    threshold, reason = threshold_of_evaluation(args.null_score_diff_threshold, config)
    if args.version_2_with_negative:
        run.add_facts(null_score_diff_threshold=threshold)
        run.say(f"no-answer threshold: {threshold:g}, {reason}")
    questions = data.splits.get("validation", [])

    def evaluated(model: torch.nn.Module, step: int) -> tuple[dict, Answers | None]:
        if not questions:
            return {}, None
        answers = answer(run, model, questions, windows["validation"], features["validation"], threshold)
        return scores(run, answers, questions, step), answers

    lesson = give_lesson(run, teacher, model, features.get("train"), per_token=True)
    tuned = tune(run, model, origin, features.get("train"), evaluated, metric, lesson=lesson)
    if run.is_main and tuned.outcome:
        tuned.outcome.write(run.output_dir)
        write_rows(run.output_dir, "validation", tuned.outcome.scored_rows(questions))
        write_page(run.output_dir / "answers.html", questions, tuned.outcome, tuned.results)
    if new := data.splits.get("test"):
        if training and args.version_2_with_negative and not threshold:
            threshold = tuned.results["eval_null_score_diff_threshold"]
            run.say(f"test: no-answer threshold {threshold:g}, the best one for the validation data")
        answers = answer(run, tuned.model, new, windows["test"], features["test"], threshold)
        tested = answers.test_scores(new) if data.scored_test else {}
        tuned.results.update(tested)
        shown = "exact match {test_exact_match:.2f}, F1 {test_f1:.2f}" if tested else "no gold answers, so no scores"
        run.say(f"test: {shown.format(**tested)}")
        if run.is_main:
            answers.write(run.output_dir, "test_")
            answers.write_lines(run.output_dir / "test_answers.jsonl")
            if data.scored_test:
                write_rows(run.output_dir, "test", answers.scored_rows(new))
    if training:
        store_threshold(run.accelerator.unwrap_model(tuned.model).config, args.version_2_with_negative, tuned.results)
    finish(run, tuned, tokenizer, data.name)
    return tuned.results


def build_network(
    run: Run[SquadArguments], config: BertConfig, checkpoint_config: BertConfig, training: bool
) -> tuple[PreTrainedModel, dict[str, str] | None]:
    """A network that reads start and end of the answer, and the hashes of its initial weights.

    The network optionally reads them through a BiLSTM.
    """
    may_be_new = ("qa_outputs.", "lstm.")
    if not run.args.bilstm_on_top:
        return build_task_network(run, network_class(run.args), config, checkpoint_config, may_be_new, training)
    encoder = choose_encoder(run.args, modeling_bert_repro.BertModel)
    return build_task_network(
        run, BertBiLSTMForQuestionAnswering, config, checkpoint_config, may_be_new, training, encoder_class=encoder
    )


def network_class(args: SquadArguments) -> type[PreTrainedModel]:
    """The class of the network that the flags ask for."""
    return BertBiLSTMForQuestionAnswering if args.bilstm_on_top else modeling_bert_repro.BertForQuestionAnswering


def answer(
    run: Run[SquadArguments],
    model: torch.nn.Module,
    questions: list[Question],
    windows: Windows,
    features: Features,
    threshold: float,
) -> Answers:
    """The answers to the questions of a split."""
    args = run.args
    logits = predict(run, model, features, args.per_device_eval_batch_size, per_token=True)
    return find_answers(
        questions,
        windows,
        logits["start_logits"],
        logits["end_logits"],
        n_best_size=args.n_best_size,
        max_answer_length=args.max_answer_length,
        version_2_with_negative=args.version_2_with_negative,
        null_score_diff_threshold=threshold,
    )


def scores(run: Run[SquadArguments], answers: Answers, questions: list[Question], step: int) -> dict[str, float]:
    """The official scores of the answers to the validation questions."""
    results = {f"eval_{name}": value for name, value in answers.score(questions).items()}
    run.say(f"step {step}: exact match {results['eval_exact_match']:.2f}, F1 {results['eval_f1']:.2f}")
    return results


if __name__ == "__main__":
    sys.exit(report_errors(main))
