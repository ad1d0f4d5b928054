"""Fine-tune BERT to find answers: SQuAD 1.1, SQuAD 2.0, or questions in that format.

With no data flags, on questions about the documentation that this Python installation carries:

    python run_squad.py --model_name_or_path runs/first --max_seq_length 128 --max_query_length 24 --doc_stride 64 \
        --output_dir runs/qa

SQuAD 1.1 from files (.json, also .xz and .gz), or from the Hub with --dataset_name rajpurkar/squad:

    python run_squad.py --model_name_or_path runs/base --train_file train-v1.1.json --validation_file dev-v1.1.json \
        --per_device_train_batch_size 12 --learning_rate 3e-5 --num_train_epochs 2 --output_dir runs/squad

SQuAD 2.0, whose questions may have no answer:

    accelerate launch run_squad.py --model_name_or_path runs/base --version_2_with_negative \
        --train_file train-v2.0.json --validation_file dev-v2.0.json --output_dir runs/squad2

Random weights as a baseline: --config_name mini --tokenizer_name runs/first in place of --model_name_or_path.
transformers' network as a control, from the same weights: --model_impl transformers.
With --validation_file alone a fine-tuned model only answers. --resume_from_checkpoint auto goes on with a run.

The output folder then holds the model, tokenizer, card, curves, run.json, metrics.jsonl, all_results.json, and the
answers: predictions.json, nbest_predictions.json, answers.html to look through them in a browser, and for 2.0
null_odds.json and span_predictions.json (answers from before the threshold). docs/squad.md tells the rest: the
scores, files of answers, thresholds, questions to a finished model.
"""

import sys
import time

import torch
from transformers import AutoConfig, AutoTokenizer, BertConfig

import modeling_bert_repro
from tokenization.bert_tokenizer import write_vocab
from training import squad
from training.arguments import SquadArguments, parse_arguments
from training.ask import store_settings
from training.batches import Features, step_batches, steps_for
from training.checkpoint import resume, save_checkpoint, save_model_folder
from training.configs import bert_config, check_fit, set_switches
from training.control import control_of
from training.curves import draw_curves
from training.loop import predict, training_steps
from training.model_card import write_model_card
from training.optim import create_optimizer, linear_schedule
from training.run import check_output_dir, report_errors, start_run
from training.squad_features import shared_windows
from training.squad_page import write_page
from training.squad_postprocess import Answers, aligner, find_answers
from training.squad_sources import load_questions


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(SquadArguments, argv)
    check_output_dir(args)
    lengths = (args.max_seq_length, args.doc_stride, args.max_query_length)
    squad.check_lengths(*lengths)
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_name or args.model_name_or_path)
    config = load_config(args, tokenizer)
    data = load_questions(args)  # before start_run: a mistake in the data leaves no half-made output folder behind

    run = start_run(args, "run_squad.py")
    model = build_model(run, config, "train" in data.questions)
    windows = shared_windows(run, data.questions, tokenizer, lengths)
    features = {split: Features(w.columns(), tokenizer.pad_token_id, args.seed) for split, w in windows.items()}
    train = features.get("train")
    total_steps = steps_for(args, len(train), run.global_batch_size) if train else 0
    run.describe(data=data.facts, parameters=model.num_parameters(), total_steps=total_steps)
    run.describe(questions=data.counts(), windows={split: len(rows) for split, rows in features.items()})
    run.say(data.summary())

    optimizer = create_optimizer(model, args.learning_rate, args.weight_decay, args.optimizer)
    scheduler = linear_schedule(optimizer, args.warmup_steps, total_steps)
    model, optimizer = run.accelerator.prepare(model, optimizer)
    done = resume(run, total_steps, model, optimizer, scheduler) if train else 0

    seconds, started = 0.0, time.perf_counter()
    batches = step_batches(train, run, done, total_steps) if train else []
    for step in training_steps(run, model, optimizer, scheduler, batches, total_steps, done):
        seconds += time.perf_counter() - started
        if step.index % args.logging_steps == 0 or step.index in (1, total_steps):
            epoch = round(step.index * run.global_batch_size / len(train), 3)
            rates = {"learning_rate": step.lr, "grad_norm": step.grad_norm}
            run.log(event="train", step=step.index, epoch=epoch, loss=step.loss, **rates)
        if evaluation_due(run, step.index, len(train)) and step.index < total_steps:
            evaluate(run, model, tokenizer, data, windows, features, step.index)
        if args.save_steps and step.index % args.save_steps == 0:
            save_checkpoint(run, step.index, total_steps, model, optimizer, scheduler)
        started = time.perf_counter()

    results, answers = evaluate(run, model, tokenizer, data, windows, features, total_steps)
    results |= {
        "train_runtime": round(seconds, 3),
        "train_samples_per_second": round((total_steps - done) * run.global_batch_size / seconds, 3) if seconds else 0,
        "train_steps": total_steps,
    }
    if run.is_main:
        answers.write(run.output_dir)
        questions = data.questions["validation"]
        write_page(run.output_dir / "answers.html", questions, windows["validation"], answers, results)
    if train:
        finish_model(run, model, tokenizer, data.name, results)
    run.finish(results)
    run.say(f"finished: {run.output_dir}")


def load_config(args, tokenizer) -> BertConfig:
    """The network's shape, checked against the tokenizer and the length asked for."""
    if args.config_name:
        config = bert_config(args.config_name, len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    else:
        config = AutoConfig.from_pretrained(args.model_name_or_path)
    if not isinstance(config, BertConfig):
        raise ValueError(f"expected a BERT checkpoint, got model_type {config.model_type!r}")
    check_fit(config, tokenizer, args.max_seq_length)
    return config


def build_model(run, config: BertConfig, training: bool):
    """The network with its span head, and a line on what of it is not from the checkpoint."""
    args = run.args
    cls = modeling_bert_repro.BertForQuestionAnswering
    if args.config_name:
        model, new = cls(config), ["all weights"]
    else:
        model, info = cls.from_pretrained(
            args.model_name_or_path, config=config, dtype=torch.float32, output_loading_info=True
        )
        new = sorted(info["missing_keys"])
        if strange := [name for name in new if not name.startswith("qa_outputs.")]:
            raise ValueError(f"{args.model_name_or_path} has no weights for {', '.join(strange[:3])}")
    if new and not training:
        raise ValueError(f"newly initialised: {', '.join(new)}; without training data the model cannot be evaluated")
    run.say(f"newly initialised: {', '.join(new)}" if new else "the span head is the checkpoint's")
    if args.model_impl == "transformers":
        # With the very same weights: transformers would draw new ones otherwise
        model = control_of(model, spans_over_padding=args.unpad_inputs == "false")
    else:
        set_switches(model.config, args)
    if args.torch_compile:
        model.compile()
    return model


def finish_model(run, model, tokenizer, data_name: str, results: dict) -> None:
    """The folder for every reader: weights, tokenizer, curves, model card; config.json says how it was asked."""
    store_settings(run.accelerator.unwrap_model(model).config, run.args, results.get("eval_best_f1_thresh"))
    save_model_folder(run, model)
    if run.is_main:
        tokenizer.backend_tokenizer.no_truncation()  # else what a call asked for would travel in tokenizer.json
        tokenizer.backend_tokenizer.no_padding()
        tokenizer.save_pretrained(run.output_dir)
        write_vocab(tokenizer, run.output_dir)
        draw_curves(run.output_dir)
        write_model_card(run.output_dir, kind="squad", datasets=[data_name], metrics=results)


def evaluation_due(run, step: int, num_examples: int) -> bool:
    """Every --eval_steps; else when the step completes an epoch."""
    if run.args.eval_steps:
        return step % run.args.eval_steps == 0
    return step * run.global_batch_size // num_examples > (step - 1) * run.global_batch_size // num_examples


def evaluate(run, model, tokenizer, data, windows: dict, features: dict, step: int) -> tuple[dict, Answers]:
    """Answer the validation questions; the official scores, logged, and the answers."""
    args, questions = run.args, data.questions["validation"]
    logits = predict(run, model, features["validation"], args.per_device_eval_batch_size, per_token=True)
    spans = (windows["validation"], logits["start_logits"], logits["end_logits"])
    options = (args.n_best_size, args.max_answer_length, args.version_2_with_negative, args.null_score_diff_threshold)
    answers = find_answers(questions, *spans, *options, aligner(args.answer_alignment, tokenizer))
    results = {f"eval_{name}": value for name, value in answers.score(questions).items()}
    run.log(event="eval", step=step, **results)
    run.say(f"step {step}: exact match {results['eval_exact_match']:.2f}, F1 {results['eval_f1']:.2f}")
    return results, answers


if __name__ == "__main__":
    sys.exit(report_errors(main))
