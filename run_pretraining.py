#!/usr/bin/env python3
"""Pre-train BERT on unlabelled documents: masked LM and next sentence prediction.

With no data flags, on the built-in corpus, the documentation of this Python (a vocabulary is learnt first):

    python run_pretraining.py --output_dir runs/first

On text of your own (.txt with a blank line between documents, .jsonl or .parquet; also .gz and .xz of these):

    python run_pretraining.py --train_file wiki.txt.xz books.txt.xz --validation_file heldout.txt \
        --vocab_size 30522 --config_name mini --max_seq_length 128 --max_steps 10000 --output_dir runs/mini

BERT-Base as in the paper, on 8 GPUs (256 sequences a step; 90 % of the steps at length 128, the rest at 512):

    accelerate launch --multi_gpu --num_processes 8 run_pretraining.py --train_file wiki.jsonl books.jsonl \
        --tokenizer_name vocab --config_name base --phases 128:0.9:32,512:0.1:8x4 \
        --max_steps 1000000 --warmup_steps 10000 --learning_rate 1e-4 --mixed_precision bf16 --output_dir runs/base

A published model continues on a domain of its own, with 2,000 pieces for words that its tokenizer splits:

    python run_pretraining.py --model_name_or_path google-bert/bert-base-uncased --train_file domain.txt \
        --extend_vocab 2000 --objective mlm --learning_rate 5e-5 --output_dir runs/domain

For a few hours on a small machine; the flags that this sets are printed, and every flag that is given wins:

    python run_pretraining.py --recipe fast --config_name mini --max_steps 5000 --output_dir runs/fast

A smaller network learns from a finished one with --teacher and --keep_layers: docs/distil.md.
To see what fits into the time at hand, run: bert-repro plan --config_name base --hours 6
After an interruption, the same command with --resume_from_checkpoint auto continues from the newest checkpoint.
On SIGTERM, SIGHUP, SIGUSR1 or Ctrl-C, the step is finished and a checkpoint is saved (exit status 75).
At the end the output folder contains model, tokenizer, model card, curves, run.json, metrics.jsonl, all_results.json.
"""

import sys

from bert_training.inputs.flags.parsing import check_command_line, parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments

if __name__ == "__main__":
    check_command_line(PretrainingArguments)  # mistakes are said before torch is loaded

import modeling_bert_repro
from bert_training.engine import checkpoint
from bert_training.engine.errors import report_errors
from bert_training.engine.launch import start_run
from bert_training.engine.loop import training_steps
from bert_training.engine.optimizer import create_optimizer, linear_schedule
from bert_training.engine.run import nothing_to_do
from bert_training.pretraining.data import PretrainingData
from bert_training.pretraining.evaluation import Progress
from bert_training.pretraining.network import begin, build_pretraining_network, save_results
from bert_training.pretraining.text import text_of
from bert_training.pretraining.tokenizer import tokenizer_of


def main(argv: list[str] | None = None) -> None:
    """Pre-train as the flags say."""
    args = parse_arguments(PretrainingArguments, argv)
    if nothing_to_do(args):
        return
    run = start_run(args)

    text = text_of(run)
    tokenizer = tokenizer_of(run, text)
    model, initial_weights = build_pretraining_network(run, getattr(modeling_bert_repro, args.network), tokenizer)
    data = PretrainingData(run, text, tokenizer)
    origin = begin(run, model, initial_weights, data, modeling_bert_repro.BertForMaskedLM)
    progress = Progress(run, data)

    optimizer = create_optimizer(model, args.learning_rate, args.weight_decay)
    scheduler = linear_schedule(optimizer, args.warmup_steps, data.total_steps)
    state = checkpoint.prepared_state(run, model, optimizer, scheduler, data.total_steps, origin)
    done = checkpoint.resume(run, state)
    checkpoint.save_tokenizer(run, tokenizer, model)
    if done == 0:
        progress.begin(state.model)

    batches = data.batches(run, done)
    steps = training_steps(run, state, batches, max_grad_norm=args.max_grad_norm, start_step=done)
    for step in progress.timed(steps):
        last = step.index == data.total_steps
        if step.index % args.logging_steps == 0 or step.index == 1 or last:
            progress.log(step)
        if args.eval_steps and step.index % args.eval_steps == 0 and not last:
            progress.evaluate(state.model, step.index)
        if args.save_steps and step.index % args.save_steps == 0:
            checkpoint.save_checkpoint(run, step.index, state)

    results = progress.evaluate(state.model, data.total_steps)
    save_results(run, state.model, data, results | progress.results(state.totals))


if __name__ == "__main__":
    sys.exit(report_errors(main))
