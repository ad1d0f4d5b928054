"""Fine-tune BERT to choose how a text goes on: SWAG, or other multiple choice in its layout.

SWAG from the official files (train.csv and val.csv of its release), or from the Hub:

    python run_swag.py --model_name_or_path runs/base --train_file train.csv --validation_file val.csv \
        --output_dir runs/swag
    python run_swag.py --model_name_or_path runs/base --dataset_name allenai/swag --dataset_config_name regular \
        --output_dir runs/swag

Your own: a .csv, .tsv or .jsonl with the columns sent1 (the context), ending0, ending1 and so on (two or more), label
(the number of the right ending) and, if all endings begin alike, sent2 (how they begin).

Random weights as a baseline, and transformers' network as a control:

    python run_swag.py --config_name mini --tokenizer_name runs/base --train_file train.csv --validation_file val.csv \
        --output_dir runs/random
    python run_swag.py --model_impl transformers --model_name_or_path runs/base --train_file train.csv \
        --validation_file val.csv --output_dir runs/control

Without --train_file a fine-tuned model is only evaluated. --resume_from_checkpoint auto goes on with a run.
<split>_predictions.csv, of validation and --test_file, holds the ending chosen and the probability of each.
"""

import sys
import time

import torch
from transformers import AutoTokenizer, BertConfig

import modeling_bert_repro
from tokenization.bert_tokenizer import write_vocab
from training import swag
from training.arguments import SwagArguments, parse_arguments
from training.batches import evaluation_due, step_batches, steps_for
from training.checkpoint import resume, save_checkpoint, save_model_folder
from training.configs import load_config, set_switches
from training.control import control_of
from training.curves import draw_curves
from training.loop import predict, training_steps
from training.model_card import write_model_card
from training.optim import create_optimizer, linear_schedule
from training.run import check_output_dir, report_errors, start_run


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(SwagArguments, argv)
    check_output_dir(args)
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_name or args.model_name_or_path)
    config = load_config(args, tokenizer, label_at_cls=True)
    # Before start_run: a mistake in the data leaves no half-made output folder behind.
    data = swag.load_data(args)
    features = swag.features(data, tokenizer, args.max_seq_length, args.seed)

    run = start_run(args, "run_swag.py")
    train = features.get("train")
    total_steps = steps_for(args, len(train), run.global_batch_size) if train else 0
    model = build_model(run, config, data)
    run.describe(data=data.describe(), parameters=model.num_parameters(), total_steps=total_steps)
    run.say(data.summary())

    optimizer = create_optimizer(model, args.learning_rate, args.weight_decay, args.optimizer)
    scheduler = linear_schedule(optimizer, args.warmup_steps, total_steps)
    model, optimizer = run.accelerator.prepare(model, optimizer)
    done = resume(run, total_steps, model, optimizer, scheduler) if train else 0

    batches = step_batches(train, run, done, total_steps) if train else []
    seconds, started = 0.0, time.perf_counter()
    for step in training_steps(run, model, optimizer, scheduler, batches, total_steps, done):
        seconds += time.perf_counter() - started
        if step.index % args.logging_steps == 0 or step.index in (1, total_steps):
            epoch = round(step.index * run.global_batch_size / len(train), 3)
            record = {"epoch": epoch, "loss": step.loss, "learning_rate": step.lr, "grad_norm": step.grad_norm}
            run.log(event="train", step=step.index, **record)
        if evaluation_due(run, step.index, len(train)) and step.index < total_steps:
            evaluate(run, model, data, features, step.index)
        if args.save_steps and step.index % args.save_steps == 0:
            save_checkpoint(run, step.index, total_steps, model, optimizer, scheduler)
        started = time.perf_counter()

    results = {}
    for split in [name for name in features if name != "train"]:
        results |= evaluate(run, model, data, features, total_steps, split, write=True)
    rate = (total_steps - done) * run.global_batch_size / seconds if seconds else 0
    speed = {"train_runtime": round(seconds, 3), "train_samples_per_second": round(rate, 3), "train_steps": total_steps}
    results |= speed
    save_model_folder(run, model)
    if run.is_main:
        tokenizer.backend_tokenizer.no_truncation()  # else --max_seq_length would travel in tokenizer.json
        tokenizer.save_pretrained(run.output_dir)
        write_vocab(tokenizer, run.output_dir)
        if train:
            draw_curves(run.output_dir)
        write_model_card(run.output_dir, kind="swag", datasets=[data.name], metrics=results)
    run.finish(results)
    run.say(f"finished: {run.output_dir}")


def build_model(run, config: BertConfig, data: swag.Data):
    """The network with a score for each choice, and a line on what of it is not from the checkpoint."""
    args, cls = run.args, modeling_bert_repro.BertForMultipleChoice
    if args.config_name:
        model, new = cls(config), ["all weights"]
    else:
        options = {"dtype": torch.float32, "ignore_mismatched_sizes": True, "output_loading_info": True}
        model, info = cls.from_pretrained(args.model_name_or_path, config=config, **options)
        new = sorted({*info["missing_keys"], *(key[0] for key in info["mismatched_keys"])})
        if strange := [name for name in new if not name.startswith(("classifier.", "bert.pooler."))]:
            raise ValueError(f"{args.model_name_or_path} has no weights, or others, for {', '.join(strange[:3])}")
    said = f"newly initialised: {', '.join(new)}" if new else "the classifier is the checkpoint's"
    if new and "train" not in data.splits:
        raise ValueError(f"{said}; without training data the model cannot be evaluated")
    run.say(said)
    if args.model_impl == "transformers":
        model = control_of(model)
    else:
        set_switches(model.config, args)
    if args.torch_compile:
        model.compile()
    return model


def evaluate(run, model, data, features, step: int, split: str = "validation", write: bool = False) -> dict:
    """Choose in a split; the accuracy, if it has labels, logged; with ``write`` also a file of the choices."""
    part = data.splits[split]
    outputs = predict(run, model, features[split], run.args.per_device_eval_batch_size)
    if write and run.is_main:
        swag.write_predictions(run.output_dir / f"{split}_predictions.csv", part, outputs["logits"])
    if not part.labels:
        return {}
    values = swag.score(outputs["logits"], part.labels) | {"loss": outputs["loss"]}
    results = {f"{'eval' if split == 'validation' else split}_{name}": value for name, value in values.items()}
    run.log(event="eval", step=step, **results)
    run.say(f"step {step}, {split}: " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))
    return results


if __name__ == "__main__":
    sys.exit(report_errors(main))
