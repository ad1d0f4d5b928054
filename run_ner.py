"""Fine-tune BERT to mark names in sentences, or any other spans of words that have a type.

CoNLL-2003 in its original files (a word a line, its tag last; plain, .gz or .xz), with a cased model:

    python run_ner.py --model_name_or_path runs/base_cased --train_file eng.train --validation_file eng.testa \
        --test_file eng.testb --output_dir runs/ner

Your own: two columns or more, tags in IOB1, BIO or BIOES. A sentence is read with as much as fits of its document,
which -DOCSTART- lines mark, around it (paper, section 5.3); or without:

    python run_ner.py --model_name_or_path runs/base_cased --train_file train.txt --validation_file dev.txt \
        --context sentence --max_seq_length 128 --per_device_train_batch_size 32 --output_dir runs/own

A data set of the Hub with columns of words and tags; here with transformers' network, as a control:

    python run_ner.py --model_name_or_path runs/base_cased --dataset_name eriktks/conll2003 --output_dir runs/hub \
        --model_impl transformers

The feature-based approach of the paper's Table 7: BERT is frozen, a BiLSTM reads its layers:

    python run_ner.py --feature_based concat_last_four --learning_rate 1e-3 --num_train_epochs 10 \
        --model_name_or_path runs/base_cased --train_file eng.train --validation_file eng.testa --output_dir runs/lstm

Without --train_file a fine-tuned model is only evaluated. --resume_from_checkpoint auto goes on with a run.
The scores are those of whole entities, as conlleval and seqeval define them; <split>_predictions.txt holds the tags.
"""

import sys
import time

import torch
import transformers
from transformers import AutoTokenizer, BertConfig

import modeling_bert_repro
from tokenization.bert_tokenizer import write_vocab
from training import ner
from training.arguments import NerArguments, parse_arguments
from training.batches import evaluation_due, step_batches, steps_for
from training.checkpoint import resume, save_checkpoint, save_model_folder
from training.configs import load_config, set_switches
from training.control import control_of
from training.curves import draw_curves
from training.glue import config_labels
from training.loop import predict, training_steps
from training.model_card import write_model_card
from training.ner_sources import load_data
from training.optim import create_optimizer, linear_schedule
from training.run import check_output_dir, report_errors, start_run
from training.tagger import BertFeatureTagger


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(NerArguments, argv)
    check_output_dir(args)
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_name or args.model_name_or_path)
    config = load_config(args, tokenizer)
    vars(config).pop("auto_map", None)  # that of the checkpoint; a saved model writes its own
    if args.feature_based:
        config.feature_based, config.lstm_size = args.feature_based, args.lstm_size
    # Before start_run: a mistake in the data leaves no half-made output folder behind.
    data = load_data(args, config_labels(config))
    rows, features = ner.tokenized(data, tokenizer, args)

    run = start_run(args, "run_ner.py")
    train = features.get("train")
    total_steps = steps_for(args, len(train), run.global_batch_size) if train else 0
    model = build_model(run, config, data)
    counts = {split: len(part) for split, part in features.items()}
    run.describe(data=data.describe(), rows=counts, parameters=model.num_parameters(), total_steps=total_steps)
    run.say(data.summary() + ner.remarks(rows, tokenizer))

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
            evaluate(run, model, data, rows, features, step.index)
        if args.save_steps and step.index % args.save_steps == 0:
            save_checkpoint(run, step.index, total_steps, model, optimizer, scheduler)
        started = time.perf_counter()

    results = {}
    for split in [name for name in features if name != "train"]:
        results |= evaluate(run, model, data, rows, features, total_steps, split, write=True)
    rate = (total_steps - done) * run.global_batch_size / seconds if seconds else 0
    speed = {"train_runtime": round(seconds, 3), "train_samples_per_second": round(rate, 3), "train_steps": total_steps}
    results |= speed
    save_model_folder(run, model)
    if run.is_main:
        tokenizer.save_pretrained(run.output_dir)
        write_vocab(tokenizer, run.output_dir)
        if train:
            draw_curves(run.output_dir)
        write_model_card(run.output_dir, kind="ner", datasets=[data.name], metrics=results)
    run.finish(results)
    run.say(f"finished: {run.output_dir}")


def build_model(run, config: BertConfig, data):
    """The tagger, fine-tuned as a whole or on frozen features, and a line on what of it is not from the checkpoint."""
    args, before = run.args, config_labels(config)
    config.id2label = dict(enumerate(data.labels))
    config.label2id = {label: number for number, label in enumerate(data.labels)}
    cls, more = modeling_bert_repro.BertForTokenClassification, {}
    if getattr(config, "feature_based", None):
        module = transformers if args.model_impl == "transformers" else modeling_bert_repro
        cls, more = BertFeatureTagger, {"encoder_class": module.BertModel}
    if args.config_name:
        model, new = cls(config, **more), ["all weights"]
    else:
        options = {"dtype": torch.float32, "ignore_mismatched_sizes": True, "output_loading_info": True}
        model, info = cls.from_pretrained(args.model_name_or_path, config=config, **options, **more)
        new = sorted({*info["missing_keys"], *(key[0] for key in info["mismatched_keys"])})
        if strange := [name for name in new if not name.startswith(("classifier.", "lstm.", "weights"))]:
            raise ValueError(f"{args.model_name_or_path} has no weights, or others, for {', '.join(strange[:3])}")
        if "classifier.weight" not in new and before and set(before) != set(data.labels):  # as many, but others
            torch.nn.init.normal_(model.classifier.weight, std=config.initializer_range)
            torch.nn.init.zeros_(model.classifier.bias)
            new += ["classifier.bias", "classifier.weight"]
    said = f"newly initialised: {', '.join(new)}" if new else "the classifier is the checkpoint's"
    if new and "train" not in data.splits:
        raise ValueError(f"{said}; without training data the model cannot be evaluated")
    run.say(said)
    if cls is BertFeatureTagger:
        model.freeze()
    elif args.model_impl == "transformers":
        model = control_of(model)
    else:
        set_switches(model.config, args)
    if args.torch_compile:
        model.compile()
    return model


def evaluate(run, model, data, rows, features, step: int, split: str = "validation", write: bool = False) -> dict:
    """Tag a split; the scores of its entities, if it has tags, logged; with ``write`` also a file of the tags."""
    part = data.splits[split]
    outputs = predict(run, model, features[split], run.args.per_device_eval_batch_size, per_token=True)
    predicted = ner.find_tags(part, rows[split], outputs["logits"], data.labels)
    if write and run.is_main:
        ner.write_predictions(run.output_dir / f"{split}_predictions.txt", part, predicted)
    if not part.tagged:
        return {}
    values = ner.score(part, predicted) | {"loss": outputs["loss"]}
    results = {f"{'eval' if split == 'validation' else split}_{name}": value for name, value in values.items()}
    run.log(event="eval", step=step, **results)
    run.say(
        f"step {step}, {split}: " + ", ".join(f"{name} {values[name]:.4f}" for name in ("precision", "recall", "f1"))
    )
    return results


if __name__ == "__main__":
    sys.exit(report_errors(main))
