"""Fine-tune BERT on a task of GLUE, or on sentences and labels of one's own.

With no data flags, on pairs from the documentation that this Python carries (does this text belong to this summary?):

    python run_glue.py --model_name_or_path runs/first --output_dir runs/pair

A task of GLUE from the official files, or without --data_dir from the Hub (--write_submission: for the server):

    python run_glue.py --model_name_or_path runs/mini --task_name mrpc --data_dir glue/MRPC --output_dir runs/mrpc

Your own .tsv (never quoted), .csv or .jsonl: one or two text columns and `label`; numbers with a point are scores:

    python run_glue.py --model_name_or_path runs/mini --train_file a.csv --validation_file b.csv --output_dir runs/own

Five runs and their statistics, here of the control: transformers' network from the same weights. --paper instead of
--seeds is the paper's search over learning rates. Given again, the command goes on where it was stopped:

    python run_glue.py --model_impl transformers --model_name_or_path runs/mini --task_name mrpc \
        --data_dir glue/MRPC --seeds 5 --compare_to runs/mrpc5 --output_dir runs/mrpc5_control

Without training data a fine-tuned model is only evaluated: --task_name ax after MNLI, or --validation_file alone.
Random weights: --config_name mini --tokenizer_name runs/mini. docs/glue.md tells the rest.
"""

import sys
import time

import torch
from transformers import AutoTokenizer, BertConfig

import modeling_bert_repro
from tokenization.bert_tokenizer import write_vocab
from training import glue, submission
from training.arguments import GlueArguments, parse_arguments
from training.batches import evaluation_due, step_batches, steps_for
from training.best import Best
from training.checkpoint import resume, save_checkpoint, save_model_folder
from training.configs import load_config, set_switches
from training.control import control_of
from training.curves import draw_curves
from training.glue_sources import load_data
from training.loop import predict, training_steps
from training.model_card import write_model_card
from training.optim import create_optimizer, linear_schedule
from training.run import check_output_dir, report_errors, start_run
from training.series import run_series


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(GlueArguments, argv)
    check_output_dir(args)
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_name or args.model_name_or_path)
    config = load_config(args, tokenizer, label_at_cls=True)
    # Before start_run: a mistake in the data leaves no half-made output folder behind.
    data = load_data(args, glue.config_labels(config))
    metric = glue.deciding_metric(data, args)
    features = glue.features(data, tokenizer, args.max_seq_length)
    if args.seeds or args.paper:
        run_series(args, data, metric, lambda one: fine_tune(one, tokenizer, config, data, metric, features))
    else:
        fine_tune(args, tokenizer, config, data, metric, features)


def fine_tune(args, tokenizer, config: BertConfig, data: glue.Data, metric: str, features: dict) -> dict:
    """One run, from the folder's first file to its last; returns what all_results.json holds."""
    run = start_run(args, "run_glue.py")
    train = features.get("train")
    if train:
        train = train.shuffled(args.seed, group=run.global_batch_size if args.group_by_length else 0)
    total_steps = steps_for(args, len(train), run.global_batch_size) if train else 0
    model = build_model(run, config, data)
    run.describe(data=data.describe(), parameters=model.num_parameters(), total_steps=total_steps)
    run.say(data.summary())

    optimizer = create_optimizer(model, args.learning_rate, args.weight_decay, args.optimizer)
    scheduler = linear_schedule(optimizer, args.warmup_steps, total_steps)
    model, optimizer = run.accelerator.prepare(model, optimizer)
    done = resume(run, total_steps, model, optimizer, scheduler) if train else 0
    best = Best(run, metric)

    batches = step_batches(train, run, done, total_steps) if train else []
    seconds, started = 0.0, time.perf_counter()
    for step in training_steps(run, model, optimizer, scheduler, batches, total_steps, done):
        seconds += time.perf_counter() - started
        if step.index % args.logging_steps == 0 or step.index in (1, total_steps):
            epoch = round(step.index * run.global_batch_size / len(train), 3)
            rates = {"learning_rate": step.lr, "grad_norm": step.grad_norm}
            run.log(event="train", step=step.index, epoch=epoch, loss=step.loss, **rates)
        if evaluation_due(run, step.index, len(train)) and step.index < total_steps:
            last, results = step.index, evaluate(run, model, data, features, step.index)
            if best.add(last, results, model):
                break
        if args.save_steps and step.index % args.save_steps == 0:
            save_checkpoint(run, step.index, total_steps, model, optimizer, scheduler)
        started = time.perf_counter()
    else:
        last, results = total_steps, evaluate(run, model, data, features, total_steps)
        best.add(last, results, model)
    if args.load_best_model_at_end:
        results = best.restore(model)
    results |= {
        "train_runtime": round(seconds, 3),
        "train_samples_per_second": round((last - done) * run.global_batch_size / seconds, 3) if seconds else 0,
        "train_steps": last,
    }
    write_predictions(run, model, data, features)
    save_model_folder(run, model)
    if run.is_main:
        tokenizer.backend_tokenizer.no_truncation()  # else --max_seq_length would travel in tokenizer.json
        tokenizer.save_pretrained(run.output_dir)
        write_vocab(tokenizer, run.output_dir)
        if train:
            draw_curves(run.output_dir)
        write_model_card(run.output_dir, kind="glue", datasets=[data.name], metrics=results)
    run.finish(results)
    best.clear()
    run.say(f"finished: {run.output_dir}")
    return results


def build_model(run, config: BertConfig, data: glue.Data):
    """The classifier, and a line on what of it is not from the checkpoint."""
    args, why, before = run.args, "", glue.config_labels(config)
    head = ", ".join(before) if before else f"{config.num_labels} classes"
    config = glue.with_labels(config, data)
    cls = modeling_bert_repro.BertForSequenceClassification
    if args.config_name:
        model, new = cls(config), ["all weights"]
    else:
        options = {"dtype": torch.float32, "ignore_mismatched_sizes": True, "output_loading_info": True}
        model, info = cls.from_pretrained(args.model_name_or_path, config=config, **options)
        new = sorted({*info["missing_keys"], *(key[0] for key in info["mismatched_keys"])})
        if strange := [name for name in new if not name.startswith(("classifier.", "bert.pooler."))]:
            raise ValueError(f"{args.model_name_or_path} has no weights, or others, for {', '.join(strange[:3])}")
        if "classifier.weight" not in new and before and set(before) != set(config.label2id):  # as many, but others
            torch.nn.init.normal_(model.classifier.weight, std=config.initializer_range)
            torch.nn.init.zeros_(model.classifier.bias)
            new += ["classifier.bias", "classifier.weight"]
        if "classifier.weight" in new and "classifier.weight" not in info["missing_keys"]:
            why = f", in place of the checkpoint's head for {head}"
    if new and "train" not in data.splits:
        raise ValueError(f"newly initialised: {', '.join(new)}; without training data the model cannot be evaluated")
    run.say(f"newly initialised: {', '.join(new)}{why}" if new else "the classifier is the checkpoint's")
    if args.model_impl == "transformers":
        model = control_of(model)  # with the very same weights, the new ones too
    else:
        set_switches(model.config, args)
    if args.torch_compile:
        model.compile()
    return model


def evaluate(run, model, data, features: dict, step: int) -> dict:
    """The task's metrics and the loss on every labelled split; MNLI's two halves under names of their own."""
    results = {}
    for split, rows in features.items():
        if split.startswith("validation"):
            outputs = predict(run, model, rows, run.args.per_device_eval_batch_size)
            values = glue.score(data.task, outputs["logits"], rows.columns["labels"])
            values |= glue.score_by_category(data, split, outputs["logits"]) | {"loss": outputs["loss"]}
            results |= {glue.prefix(split) + name: value for name, value in values.items()}
    if results:
        run.log(event="eval", step=step, **results)
        run.say(f"step {step}: " + ", ".join(f"{name} {value}" for name, value in results.items()))
    return results


def write_predictions(run, model, data, features: dict) -> None:
    """A file for every split to predict; for a submission, said at once if the server would refuse it."""
    for split in data.to_predict:
        logits = predict(run, model, features[split], run.args.per_device_eval_batch_size)["logits"]
        if run.is_main:
            path = glue.write_predictions(run.output_dir, data, split, logits)
            wrong = submission.problem_of_file(path) if run.args.write_submission else None
            run.say(f"not fit for the server: {wrong}" if wrong else f"predictions: {path}")


if __name__ == "__main__":
    sys.exit(report_errors(main))
