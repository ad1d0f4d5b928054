"""What ``run_pretraining.py`` is made of: its text, its held-out part, its evaluation."""

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import torch
from accelerate.utils import gather_object
from torch.nn import functional as F

from tokenization.special_tokens import check_special_tokens
from training.builtin_data import documentation
from training.engine.batches import dealt, step_batches, steps_for
from training.engine.checkpoint import named_checkpoint
from training.engine.control import control_of
from training.engine.initial_weights import load_network
from training.engine.loop import IGNORED
from training.engine.models import (
    bert_config,
    check_fit,
    check_length,
    check_model_name,
    checkpoint_config,
    set_switches,
)
from training.engine.phases import Phase, phases_of, scheduled
from training.engine.run import Run
from training.files.hashing import sha256
from training.pretraining.build_corpus import build_corpus, check_text, encode_share
from training.pretraining.corpus import Corpus
from training.pretraining.documents import check_files, read_documents
from training.pretraining.instances import PretrainingInstances
from training.pretraining.sentences import split_sentences


class Text:
    """The documents of a run, readable more than once.

    Attributes: ``name`` says where they come from, ``held_out_name`` where the held-out part does; ``sources`` are
    names and SHA-256 for run.json; ``fingerprint`` and ``checksum`` (short, for names of files) change when they do.
    """

    def __init__(self, args):
        self.files = check_files(args.train_file) if args.train_file else []
        self.limit = args.max_train_documents
        self.args = args
        if self.files:
            self.name = ", ".join(path.name for path in self.files)
            identity = [sha256(path) for path in self.files]
        elif args.dataset_name:
            self.name = args.dataset_name
            identity = _hub_identity(args)
        else:
            self.name = "the documentation carried by this Python installation"
            identity = [zlib.crc32(repr(documentation.documents()).encode())]
        self.fingerprint = json.dumps([*identity, self.limit])
        self.checksum = f"{zlib.crc32(self.fingerprint.encode()):08x}"
        self.sources = [_described(path, sha256) for path, sha256 in zip(self.files, identity, strict=False)] or [
            {"name": self.name, "sha256": hashlib.sha256(self.fingerprint.encode()).hexdigest()}
        ]
        self.held_out_name = self.name
        if args.validation_file:
            held_out = check_files(args.validation_file)
            self.held_out_name = ", ".join(path.name for path in held_out)
            self.sources += [_described(path, sha256(path)) | {"split": "validation"} for path in held_out]

    def check(self) -> None:
        """Read on until the training text, and the part of it that is held out, hold what the objective needs.

        Raises:
            ValueError: the text ends before that, or it cannot be read.
        """
        least = 2 if self.args.objective == "mlm_nsp" else 1  # documents, and sentences of the longest of them
        share = 0.0 if self.args.validation_file else self.args.validation_split
        sides = {"training": [0, 0]} | ({"held-out": [0, 0]} if share else {})
        for document in self.documents():
            side = sides["held-out" if is_held_out(document, share) else "training"]
            if min(side) >= least:
                side[0] += 1
            elif sentences := sum(map(len, map(split_sentences, document))):
                side[:] = side[0] + 1, max(side[1], sentences)
                if all(min(side) >= least for side in sides.values()):
                    return
        held_out = f" and as much to hold out (--validation_split {share})" if share else ""
        remedies = ["put blank lines between documents"]
        remedies += ["give a larger --validation_split or a --validation_file"] if share else []
        remedies += ["use --objective mlm"] if least == 2 else []
        found = " and ".join(
            f"{documents} for the {name} text (its longest has {longest} sentences)"
            for name, (documents, longest) in sides.items()
        )
        raise ValueError(
            f"{self.name}: --objective {self.args.objective} needs at least {least} documents, one of them of at least "
            f"{least} sentences, to train on{held_out}; got {found}. Add text, or {', or '.join(remedies)}"
        )

    def documents(self) -> Iterator[list[str]]:
        """Each document as its paragraphs or sentences."""
        if self.files:
            found: Iterable[list[str]] = read_documents(self.files)
        elif self.args.dataset_name:
            found = _hub_documents(self.args)
        else:
            found = documentation.documents()
        return islice(found, self.limit)


def checked_text(run: Run) -> Text:
    """The run's text, which the main process has looked into: there is enough of it."""
    text = Text(run.args)
    run.say(f"text: {text.name}")
    run.main_first(lambda: run.is_main and text.check())
    return text


def _described(path: Path, sha256: str) -> dict[str, str | int]:
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256}


def check_early(args) -> None:
    """Raise for what is wrong whatever the vocabulary will be: shape, length, start, the whole held-out text."""
    if args.model_name_or_path:
        check_model_name(args.model_name_or_path)
    else:
        length = max(phase.length for phase in phases_of(vars(args)))
        check_length(bert_config(args.config_name or "mini", 1), length)
    if args.resume_from_checkpoint not in (None, "auto"):
        named_checkpoint(args.resume_from_checkpoint)
    if args.validation_file:
        check_text(args.validation_file, need_pairs=args.objective == "mlm_nsp")


def build_model(run: Run, cls: type, tokenizer):
    """The network, with new weights or those of --model_name_or_path, checked against tokenizer and length.

    The objective decides what a token attends to, also where the checkpoint was trained with another one.

    Raises:
        ValueError: as ``load_network``; only the heads may be new.
    """
    args = run.args
    left_to_right = args.objective == "ltr"
    check_special_tokens(tokenizer, masking=not left_to_right)
    if args.model_name_or_path:
        config = checkpoint_config(args.model_name_or_path)
        check_fit(config, tokenizer, args.max_seq_length)
        before, config.is_decoder = config.is_decoder, left_to_right
        model, new, _ = load_network(cls, args.model_name_or_path, ("cls.", "bert.pooler."), run, config=config)
        run.say(f"weights of {args.model_name_or_path}" + (f", newly initialised: {', '.join(new)}" if new else ""))
        if before != left_to_right:
            ways = ("left to right", "in both directions")
            now, then = ways if left_to_right else ways[::-1]
            run.say(f"attention: {now}, as --objective {args.objective} needs it; the checkpoint attended {then}")
    else:
        config = bert_config(args.config_name or "mini", len(tokenizer), pad_token_id=tokenizer.pad_token_id)
        config.is_decoder = left_to_right
        check_fit(config, tokenizer, args.max_seq_length)
        model = cls(config)
    if args.model_impl == "transformers":
        model = control_of(model)
    else:
        model.config.sparse_prediction = not args.static_shapes  # how many are labelled differs from step to step
        set_switches(model.config, args)
    if args.torch_compile:
        model.compile()
    return model


def _from_hub(args, work: Callable):
    """``work(datasets)``, with one clear error for whatever the library raises."""
    try:
        import datasets  # here: slow to import, and most runs read files

        if not sys.stderr.isatty():
            datasets.disable_progress_bars()
        return work(datasets)
    except Exception as error:  # datasets raises its own, requests' and huggingface_hub's types here
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"--dataset_name {args.dataset_name}: cannot be read ({reason}); check the name, --dataset_config_name, "
            "that it has a split `train`, and the network, or give files with --train_file"
        ) from error


def _hub_identity(args) -> list[str | None]:
    """What changes when the data set does: its files' commit on the Hub, or their times on this disk, hashed."""
    where = (args.dataset_name, args.dataset_config_name)
    return [*where, _from_hub(args, lambda datasets: datasets.load_dataset_builder(*where).hash)]


def _hub_documents(args) -> Iterator[list[str]]:
    where = (args.dataset_name, args.dataset_config_name)
    rows = iter(
        _from_hub(args, lambda datasets: datasets.load_dataset(*where, split="train", streaming=args.streaming))
    )
    end = object()
    number = 0
    while (row := _from_hub(args, lambda _: next(rows, end))) is not end:  # a stream may break in the middle
        number += 1
        if not isinstance(row.get("text"), str):
            raise ValueError(
                f"--dataset_name {args.dataset_name}, row {number}: expected a string in the column `text`, got "
                f"{type(row.get('text')).__name__}; its columns are {', '.join(row)}"
            )
        yield [stripped for line in row["text"].split("\n") if (stripped := line.strip())]


def is_held_out(document: list[str], share: float) -> bool:
    """Whether a document belongs to the held-out part: by its content, so that copies fall on one side."""
    return zlib.crc32("\n".join(document).encode()) < share * 2**32


def corpora(run: Run, text: Text, tokenizer) -> tuple[Corpus, Corpus]:
    """Build, or open, the training and the held-out corpus under ``output_dir/corpus``: all processes together."""
    args = run.args
    share = 0.0 if args.validation_file else args.validation_split
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # torchrun's and accelerate's word for processes on a machine
    settings = {"num_workers": max(1, (os.cpu_count() or 1) // local), "need_pairs": args.objective == "mlm_nsp"}

    def part(name: str) -> tuple[Iterable, object, Path, dict]:
        """What `build_corpus` and `encode_share` want to know."""
        target, held_out = run.output_dir / "corpus" / name, name == "validation"
        if held_out and args.validation_file:
            return args.validation_file, tokenizer, target, settings
        chosen = (d for d in text.documents() if is_held_out(d, share) == held_out)
        return chosen, tokenizer, target, settings | {"fingerprint": json.dumps([text.fingerprint, share, held_out])}

    def build(name: str) -> Corpus:
        *where, how = part(name)
        return build_corpus(*where, shares=run.world_size, **how)

    def encode() -> None:
        for name in ("train", "validation"):
            *where, how = part(name)
            encode_share(*where, run.rank, run.world_size, **how)

    if run.world_size > 1:
        _together(run, encode)
    return run.main_first(lambda: (build("train"), build("validation")))


def _together(run: Run, work: Callable[[], None]) -> None:
    """`work()` on every process; where one of them fails, all stop and the main process says why."""
    failure = None
    try:
        work()
    except (ValueError, OSError) as error:
        failure = str(error)
    failures = [found for found in gather_object([failure]) if found is not None]
    if failures and run.is_main:
        raise ValueError(failures[0])
    if failures:
        raise SystemExit(2)


def instances(args, corpus: Corpus, tokenizer, held_out: bool = False) -> dict[int, PretrainingInstances]:
    """Instances as the flags say, by the lengths of the phases.

    Those of the held-out text are the same for every run and every evaluation.
    """
    lengths = [phase.length for phase in phases_of(vars(args))]
    return {length: _instances(args, corpus, tokenizer, length, held_out) for length in lengths}


def _instances(args, corpus: Corpus, tokenizer, length: int, held_out: bool) -> PretrainingInstances:
    return PretrainingInstances(
        corpus,
        tokenizer,
        seed=0 if held_out else args.seed,
        fixed=held_out,
        max_seq_length=length,
        objective=args.objective,
        short_seq_prob=args.short_seq_prob,
        mlm_probability=args.mlm_probability,
        mask_replace_prob=args.mask_replace_prob,
        random_replace_prob=args.random_replace_prob,
        whole_word_mask=args.whole_word_mask,
        max_predictions_per_seq=args.max_predictions_per_seq,
    )


def planned_phases(args, train: dict[int, PretrainingInstances], world_size: int) -> list[Phase]:
    """The phases with their optimiser steps: `--max_steps` of them, or as many as make `--num_train_epochs`."""
    phases = phases_of(vars(args))
    epochs_a_step = 1.0
    if args.max_steps < 0:
        sizes = {phase: phase.size * phase.accumulation * world_size for phase in phases}
        epochs_a_step = sum(phase.share * size / train[phase.length].epoch_size(0) for phase, size in sizes.items())
    return scheduled(phases, steps_for(args, 1, epochs_a_step))


def phase_batches(run: Run, phases: list[Phase], train: dict[int, PretrainingInstances], done: int) -> Iterator[list]:
    """This process's micro-batches of the optimiser steps behind `done`, through all phases.

    Each phase reads the stream of its length from the beginning.
    """
    for phase in phases:
        if done < phase.stop:
            steps = (max(done, phase.start) - phase.start, phase.stop - phase.start)
            yield from step_batches(train[phase.length], run, *steps, phase.size, phase.accumulation)


@torch.no_grad()
def evaluate(run: Run, model, held_out: PretrainingInstances) -> dict[str, float]:
    """Losses and accuracies on held-out instances, each a mean over all predictions (not over batches).

    ``eval_mlm_loss`` is in nats per predicted token; ``eval_perplexity`` is its exponential.
    """
    model.eval()
    args = run.args
    count = min(args.max_eval_instances, held_out.epoch_size(0))
    size = args.per_device_eval_batch_size
    mine = dealt(range(0, count, size), run)
    sums = torch.zeros(6, dtype=torch.float64)
    with run.progress(len(mine), "evaluating") as bar:
        for start, counts in mine:
            batch = held_out.batch(start, min(start + size, count))
            batch = {name: tensor.to(run.device) for name, tensor in batch.items()}
            outputs = model(**batch)
            if counts:
                sums += _batch_sums(outputs, batch)
            bar.update()
    mlm, right, predicted, nsp, nsp_right, pairs = run.accelerator.reduce(
        sums.to(run.device, torch.float32 if run.device.type == "mps" else torch.float64), "sum"
    ).tolist()
    results = {"eval_mlm_loss": mlm / predicted, "eval_mlm_accuracy": right / predicted}
    results["eval_perplexity"] = float(torch.tensor(results["eval_mlm_loss"]).exp())
    results["eval_loss"] = results["eval_mlm_loss"]
    if pairs:
        results |= {"eval_nsp_loss": nsp / pairs, "eval_nsp_accuracy": nsp_right / pairs}
        results["eval_loss"] += results["eval_nsp_loss"]
    return results


def _batch_sums(outputs, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """(MLM loss, right, count, NSP loss, right, count) summed over a batch, float64 on the CPU."""
    logits = outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits
    labelled = batch["labels"] != IGNORED
    if logits.dim() == 3:  # (B, L, V); with sparse_prediction only the labelled positions come: (P, V)
        logits = logits[labelled]
    sums = _sums(logits, batch["labels"][labelled])
    if "next_sentence_label" in batch:
        return torch.tensor(sums + _sums(outputs.seq_relationship_logits, batch["next_sentence_label"])).double()
    return torch.tensor([*sums, 0, 0, 0]).double()


def _sums(logits: torch.Tensor, labels: torch.Tensor) -> list[float]:
    loss = F.cross_entropy(logits.float(), labels, reduction="sum")
    return [float(loss), float((logits.argmax(-1) == labels).sum()), float(len(labels))]


def mean_train_loss(metrics: Path) -> float:
    """Mean loss of the training records of a run, over all its interruptions."""
    with open(metrics, encoding="utf-8") as file:
        losses = [event["loss"] for event in map(json.loads, file) if event["event"] == "train"]
    return sum(losses) / len(losses) if losses else float("nan")
