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
from functools import partial

from bert_training.inputs.flags.parsing import check_command_line, parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments

if __name__ == "__main__":
    check_command_line(PretrainingArguments)  # mistakes are said before torch is loaded

import torch
from tqdm import tqdm
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

import modeling_bert_repro
from bert_training.cards.curves import draw_curves
from bert_training.cards.model_card import write_model_card
from bert_training.engine.checkpoint import resume, save_checkpoint, save_model_folder, save_tokenizer
from bert_training.engine.divergence import explain_divergence
from bert_training.engine.errors import report_errors
from bert_training.engine.fsdp import prepare
from bert_training.engine.launch import start_run
from bert_training.engine.loop import Step, training_steps
from bert_training.engine.optimizer import create_optimizer, linear_schedule
from bert_training.engine.output_folder import check_output_dir, is_finished, report_finished, upload_finished
from bert_training.engine.run import Run
from bert_training.engine.state import Origin, TrainingState
from bert_training.engine.throughput import Throughput
from bert_training.files.atomic import make_folder, new_folder
from bert_training.inputs.flags.mixtures import mean_shares
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.phases import Phase, phase_at, phases_in_words
from bert_training.inputs.flags.recipes import recipe_text
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.networks.embedding_modules import carry_modules
from bert_training.pretraining import evaluation
from bert_training.pretraining.corpora import Corpora, build_corpora
from bert_training.pretraining.corpus import unigram_entropy
from bert_training.pretraining.counted_weights import set_counted_weights
from bert_training.pretraining.coverage import check_beginning, record_coverage
from bert_training.pretraining.derived_weights import count_new_weights
from bert_training.pretraining.early_checks import check_early
from bert_training.pretraining.held_out_texts import HeldOutTexts
from bert_training.pretraining.instances import PretrainingInstances
from bert_training.pretraining.mixture import note_new_epochs, phase_streams, record_mixture
from bert_training.pretraining.network import build_pretraining_network
from bert_training.pretraining.new_pieces import extended_tokenizer
from bert_training.pretraining.phased_batches import (
    instances_by_length,
    phase_batches,
    planned_phases,
    training_instances,
)
from bert_training.pretraining.plateau import log_diagnosis
from bert_training.pretraining.teacher import learn_from_teacher, remove_projection
from bert_training.pretraining.text import Text, checked_text
from bert_training.pretraining.used_tokens import record_used_tokens
from bert_training.pretraining.word_borders import check_borders_of_words, note_single_characters
from bert_training.tasks.classification import probes
from tokenization.train_wordpiece import train_wordpiece


def main(argv: list[str] | None = None) -> None:
    """Pre-train as the flags say."""
    args = parse_arguments(PretrainingArguments, argv)
    if is_finished(args):
        report_finished(args)
        return
    check_output_dir(args)
    begun = check_early(args)  # before start_run, so that a mistake leaves no output folder behind
    run = start_run(args)
    announce_recipe(run)
    probed = probes.read_tables(args.probe)
    probes.check_unchanged(probed, begun)
    text = checked_text(run)
    run.only_main(lambda: check_borders_of_words(run, text))
    tokenizer = run.main_first(lambda: load_or_learn_tokenizer(run, text))
    run.only_main(lambda: check_beginning(text, tokenizer))
    model, initial_weights = build_pretraining_network(run, network_class(args), tokenizer)
    corpora = build_corpora(run, text, tokenizer)
    counted = set_counted_weights(model, corpora.train[0], args.seed) if args.initial_weights == "counted" else 0
    count_new_weights(run, model, tokenizer, corpora.train)
    train = training_instances(vars(args), corpora.train, tokenizer)
    held_out = instances_by_length(vars(args), corpora.held_out, tokenizer, held_out=True)
    record_coverage(run, tokenizer, corpora, held_out)
    words_and_files = HeldOutTexts(run, text, tokenizer, corpora)
    phases = planned_phases(args, train, run.world_size)
    total_steps = phases[-1].stop
    streams = phase_streams(phases, train, run.world_size)
    origin = record_origin(run, text, corpora, model, initial_weights, phases)
    useful = probes.tokenised(probed, tokenizer, model.config.max_position_embeddings)
    probes.record_probes(run, useful)
    record_used_tokens(run, train)
    record_mixture(run, text, phases, train)
    note_single_characters(run, corpora.train, tokenizer)

    speed = Throughput(run, model.config, total_steps)
    origin = learn_from_teacher(run, model, modeling_bert_repro.BertForMaskedLM, origin)
    optimizer = create_optimizer(model, args.learning_rate, args.weight_decay)
    scheduler = linear_schedule(optimizer, args.warmup_steps, total_steps)
    model, optimizer = prepare(run, model, optimizer)
    state = TrainingState(model, optimizer, scheduler, total_steps, origin)
    done = resume(run, state)
    if run.is_main:
        save_tokenizer(run, tokenizer, model)
        carry_modules(args.model_name_or_path, run.output_dir)
    if done == 0:
        run.log(event="corpus", unigram_entropy=unigram_entropy(corpora.train, mean_shares(vars(args))))
        if counted:
            rows = f"{counted:,} of {len(tokenizer):,} rows"
            run.say(f"initial weights from counts of the training text, with embeddings of {rows}")
        if args.model_name_or_path and args.eval_steps:
            evaluate(run, 0, model, held_out, words_and_files, phases[0].length, speed)
        if args.eval_steps:
            log_probes(run, 0, model, useful)

    batches = phase_batches(run, phases, streams, done)
    explain = partial(explain_divergence, phases=phases, folder=run.output_dir)
    steps = training_steps(run, state, batches, max_grad_norm=args.max_grad_norm, start_step=done, explain=explain)
    for step in speed.timed(steps):
        length = phase_at(phases, step.index).length
        last = step.index == total_steps
        if step.index % args.logging_steps == 0 or step.index == 1 or last:
            log_step(run, step, length, speed)
        note_new_epochs(run, phases, streams, step.index)
        if args.eval_steps and step.index % args.eval_steps == 0 and not last:
            evaluate(run, step.index, model, held_out, words_and_files, length, speed)
            log_probes(run, step.index, model, useful)
            log_diagnosis(run, *corpora.train)
        if args.save_steps and step.index % args.save_steps == 0:
            save_checkpoint(run, step.index, state)

    results = evaluate(run, total_steps, model, held_out, words_and_files, phases[-1].length, speed)
    results |= log_probes(run, total_steps, model, useful)
    log_diagnosis(run, *corpora.train)
    totals = state.totals
    mean_loss = totals.loss / totals.steps if totals.steps else float("nan")
    sums = {"train_loss": mean_loss, "train_runtime": totals.seconds, "train_steps": total_steps}
    save_results(run, model, text, results | speed.results() | sums)


def announce_recipe(run: Run[PretrainingArguments]) -> None:
    """Print and record what --recipe has chosen; the paper's defaults need no mention."""
    if chosen := run.args.recipe_choices():
        run.add_facts(recipe={"name": run.args.recipe, "chosen": chosen})
        run.say(f"recipe {run.args.recipe}: {recipe_text(chosen, vars(run.args))}")


def load_or_learn_tokenizer(run: Run[PretrainingArguments], text: Text) -> PreTrainedTokenizerBase:
    """The tokenizer of --tokenizer_name, or one with a vocabulary that is learnt from the text and kept."""
    args = run.args
    if args.extend_vocab:
        return extended_tokenizer(run, text)
    if args.tokenizer_name:
        return load_tokenizer(args.tokenizer_name, quiet=True)  # check_early has opened it and said what it found
    case = "uncased" if args.do_lower_case else "cased"
    folder = run.output_dir / "corpus" / f"vocabulary-{args.vocab_size}-{case}-{text.checksum}"
    if not (folder / "vocab.txt").exists():  # it exists after an interruption, and on the other processes
        run.say(f"learning a vocabulary of {args.vocab_size:,} rows")
        lines = (line for line in tqdm(text.lines(), unit=" lines", desc="reading", disable=None) if line is not None)
        make_folder(folder.parent)
        with new_folder(folder) as draft:
            train_wordpiece(
                lines,
                args.vocab_size,
                output_dir=draft,
                do_lower_case=args.do_lower_case,
                count=text.word_counter(),
            )
    return AutoTokenizer.from_pretrained(folder)


def network_class(args: PretrainingArguments) -> type[PreTrainedModel]:
    """The class of the network that the objective trains."""
    found: type[PreTrainedModel] = getattr(modeling_bert_repro, objective_of(vars(args)).network)
    return found


def record_origin(
    run: Run[PretrainingArguments],
    text: Text,
    corpora: Corpora,
    model: PreTrainedModel,
    initial_weights: dict[str, str] | None,
    phases: list[Phase],
) -> Origin:
    """Record and print what is trained on what; return the part that must be the same in a resumed run."""
    plan = phases_in_words(phases, run.world_size)
    held_out = corpora.held_out
    tokenizer = held_out.manifest["key"]["tokenizer_sha256"]
    run.add_facts(
        data=text.sources,
        tokenizer_sha256=tokenizer,
        initial_weights=initial_weights,
        corpus={"documents": corpora.num_documents, "tokens": corpora.num_tokens},
        held_out={"documents": held_out.num_documents, "tokens": held_out.num_tokens},
        parameters=model.num_parameters(),
        total_steps=phases[-1].stop,
    )
    if run.args.phases or run.args.mixture:
        run.add_facts(phases=plan)
    run.say(
        f"{corpora.num_documents:,} documents, {corpora.num_tokens:,} tokens; {model.num_parameters():,} "
        f"parameters; {plan}"
    )
    return Origin(text.sources, tokenizer, initial_weights, plan if run.args.phases else None)


def log_step(run: Run[PretrainingArguments], step: Step, length: int, speed: Throughput) -> None:
    """Record a training step in metrics.jsonl."""
    pairs = objective_of(vars(run.args)).pairs
    # The head of next sentence prediction may have learnt another task.
    names = {"nsp_loss": f"{pairs.name}_loss"} if pairs else {}
    losses = {"loss": step.loss, **{names.get(name, name): loss for name, loss in step.parts.items()}}
    rates = {"learning_rate": step.lr, "grad_norm": step.grad_norm, "max_seq_length": length}
    run.log(event="train", step=step.index, **losses, **rates, **speed.record())


def evaluate(
    run: Run[PretrainingArguments],
    step: int,
    model: torch.nn.Module,
    held_out: dict[int, PretrainingInstances],
    words_and_files: HeldOutTexts,
    length: int,
    speed: Throughput,
) -> dict[str, float]:
    """Evaluate on the held-out instances of `length` tokens, and record and print the results."""
    results = evaluation.evaluate(run, model, held_out[length])
    shown = ["eval_mlm_loss", *(name for name in results if name.endswith("_accuracy"))]
    results |= words_and_files.evaluate(run, model, length)
    run.log(event="eval", step=step, max_seq_length=length, **results)
    shown += [name for name in ("eval_nats_per_word",) if name in results]
    numbers = ", ".join(f"{name} {results[name]:.4f}" for name in shown)
    run.say(f"step {step}: {numbers}" + (f"; {speed.time_left()} left" if step else ""))
    for line in words_and_files.lines_by_file(results):
        run.say(line)
    return results


def log_probes(
    run: Run[PretrainingArguments], step: int, model: torch.nn.Module, useful: list[probes.Probe]
) -> dict[str, float]:
    """Record and print what the encoder is worth for the tables of --probe; returns the scores."""
    scores = probes.score_probes(run, model, useful)
    if scores:
        run.log(event="probe", step=step, **scores)
        run.say(f"step {step}: probes {probes.scores_text(scores, run.facts['probes'])}")
    return scores


def save_results(run: Run[PretrainingArguments], model: torch.nn.Module, text: Text, results: dict[str, float]) -> None:
    """Write the finished folder: model, curves, model card and results; upload it with --push_to_hub."""
    remove_projection(run.accelerator.unwrap_model(model))
    save_model_folder(run, model)
    if run.is_main:
        draw_curves(run.output_dir)
        write_model_card(run.output_dir, datasets=[text.name], metrics=results, held_out=text.held_out_name)
    run.finish(results)
    run.say(f"finished: {run.output_dir}")
    if run.is_main:
        upload_finished(run.args)


if __name__ == "__main__":
    sys.exit(report_errors(main))
