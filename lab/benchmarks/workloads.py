"""The workloads of `lab/benchmarks/step.py`: this project's classes and transformers', with equal weights and equal
work.

A workload has several arms. An arm prepares the batches of a repetition and returns the work on them and the number of
their real tokens. Batches contain random token ids, because the time of a step depends on lengths and not on words.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import transformers
from transformers import BertConfig
from transformers.utils import ModelOutput

import modeling_bert_repro
from bert_training.engine.batches import IGNORED
from bert_training.engine.optimizer import create_optimizer
from bert_training.inputs.models import bert_config

LENGTHS = Path(__file__).parents[1] / "records" / "lengths.json"
VOCAB_SIZE = 30522
MASKED_SHARE = 0.15
MEGABATCH = 50  # transformers' LengthGroupedSampler sorts 50 batches at a time
# Targets, as ratios to transformers' speed; for some sizes also as a share of the measured peak of matrix products.
PRETRAINING_TARGETS = {"base": 1.6, "small": 2.8, "mini": 4.2}
PEAK_TARGETS = {("cpu", "base"): 0.88, ("cuda", "large"): 0.5}
GPU_TARGET = 1.4
# The last target is against rows of similar length, the one before it against padding to the longest row, and the one
# before that against padding to the limit.
TARGETS = {
    ("fine-tuning", "mrpc"): (3.2, 1.35, 1.1),
    ("fine-tuning", "sst2"): (7.0, 1.9, 1.1),
    ("fine-tuning", "squad"): (4.0, 2.0, 1.1),
    ("inference", "mrpc"): (1.5, 1.1),
    ("inference", "squad"): (1.5, 1.1),
}
MEMORY_TARGET = 0.7
Batch = dict[str, torch.Tensor]
Work = tuple[Callable[[], None], int]  # the function to time, and the number of its real tokens


@dataclass(frozen=True)
class Setting:
    """What all workloads of a measurement share.

    Attributes:
        dtype: float32, or the type of autocast.
        compile: whether the networks are compiled.
        fast_dropout: whether this project's classes use their own dropout and attention on CPUs.
    """

    device: torch.device
    dtype: torch.dtype
    compile: bool = False
    vocab_size: int = VOCAB_SIZE
    fast_dropout: bool = True


@dataclass
class Side:
    """One network and its optimiser; None for inference."""

    model: torch.nn.Module
    setting: Setting
    optimizer: torch.optim.Optimizer | None

    def forward(self, batch: Batch) -> ModelOutput:
        """The outputs of the network, with autocast if the type is not float32."""
        enabled = self.setting.dtype != torch.float32
        with torch.autocast(self.setting.device.type, self.setting.dtype, enabled=enabled):
            return self.model(**batch)

    def work(self, batches: list[Batch], training: bool) -> Work:
        """Optimiser steps on the batches, or predictions for them."""
        tokens = int(sum(batch["attention_mask"].sum() for batch in batches))
        batches = [{key: tensor.to(self.setting.device) for key, tensor in batch.items()} for batch in batches]

        def train() -> None:
            for batch in batches:
                self.forward(batch).loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)

        @torch.inference_mode()
        def predict() -> None:
            for batch in batches:
                self.forward(batch)

        return (train if training else predict), tokens


class Workload(NamedTuple):
    """A row of the table, or several that share the first arm.

    Attributes:
        arms: the arms by their names, of which the first is this project's; each takes the number of the repetition.
        facts: sizes, for the record.
        targets: the ratio that is aimed at, by the name of the other arm.
        flops: the operations of one repetition of the first arm; None if they were not counted.
    """

    name: str
    arms: dict[str, Callable[[int], Work]]
    facts: dict[str, int | str]
    targets: dict[str, float]
    flops: float | None = None


def make_sides(class_name: str, config: BertConfig, setting: Setting, training: bool, **switches: bool) -> list[Side]:
    """This project's network and transformers', with the same weights, sdpa attention and fused AdamW.

    Args:
        class_name: the name that the class has in both.
        training: with an optimiser and dropout.
        switches: set for this project's network in addition to those that the scripts set.
    """
    torch.manual_seed(0)
    own = getattr(modeling_bert_repro, class_name)._from_config(deepcopy(config), attn_implementation="sdpa")
    stock = getattr(transformers, class_name)._from_config(config, attn_implementation="sdpa")
    stock.load_state_dict(own.state_dict())
    own.config.update({"unpad_inputs": "auto", "fast_dropout": setting.fast_dropout, **switches})
    sides = []
    for model in (own, stock):
        model.to(setting.device).train(training)
        optimizer = create_optimizer(model, 1e-5, 0.01) if training else None
        if setting.compile:
            model.compile()
        sides.append(Side(model, setting, optimizer))
    return sides


# --- batches ---------------------------------------------------------------------------------------------


def stored_lengths(name: str) -> tuple[np.ndarray, int]:
    """The lengths in tokens of all rows of a data set, and the length that scripts pad it to."""
    stored = json.loads(LENGTHS.read_text(encoding="utf-8"))["lengths"][name]
    return np.repeat([int(length) for length in stored["counts"]], list(stored["counts"].values())), stored["padded_to"]


def padded_batch(generator: np.random.Generator, lengths: np.ndarray, pad_to: int, vocab_size: int) -> Batch:
    """Rows of these lengths, padded on the right with zeros: (B, pad_to)."""
    real = np.arange(pad_to) < np.asarray(lengths)[:, None]
    ids = generator.integers(5, vocab_size, real.shape) * real
    segments = real & (np.arange(pad_to) >= np.asarray(lengths)[:, None] // 2)
    columns = {"input_ids": ids, "token_type_ids": segments, "attention_mask": real}
    return {name: torch.from_numpy(column.astype(np.int64)) for name, column in columns.items()}


def pretraining_batch(generator: np.random.Generator, rows: int, length: int, vocab_size: int) -> Batch:
    """Rows without padding, with labels at 15 % of the positions."""
    batch = padded_batch(generator, np.full(rows, length), length, vocab_size)
    labels = torch.full((rows, length), IGNORED)
    for row in range(rows):
        places = 1 + generator.choice(length - 1, max(1, round(MASKED_SHARE * length)), replace=False)
        labels[row, places] = batch["input_ids"][row, places]
    return batch | {"labels": labels, "next_sentence_label": torch.from_numpy(generator.integers(0, 2, rows))}


def add_labels(generator: np.random.Generator, class_name: str, batch: Batch, lengths: np.ndarray) -> Batch:
    """The batch with random labels for a class of the network."""
    if class_name == "BertForQuestionAnswering":
        ends = torch.from_numpy(generator.integers(1, lengths))
        return batch | {"start_positions": ends // 2, "end_positions": ends}
    return batch | {"labels": torch.from_numpy(generator.integers(0, 2, len(lengths)))}


# --- workloads -------------------------------------------------------------------------------------------


def pretraining(size: str, rows: int, length: int, setting: Setting) -> Workload:
    """Masked LM and next-sentence prediction: forward pass, backward pass and AdamW."""
    config = bert_config(size, setting.vocab_size, max_position_embeddings=max(512, length))
    own, stock = make_sides("BertForPreTraining", config, setting, True, sparse_prediction=True)
    target = GPU_TARGET if setting.device.type == "cuda" else PRETRAINING_TARGETS.get(size)

    def arm(side: Side) -> Callable[[int], Work]:
        def prepare(repetition: int) -> Work:
            generator = np.random.default_rng([1, repetition + 1])
            return side.work([pretraining_batch(generator, rows, length, setting.vocab_size)], training=True)

        return prepare

    compiled = ", compiled" if setting.compile else ""
    return Workload(
        f"pre-training {size}, {rows} x {length}{compiled}",
        {"ours": arm(own), "stock": arm(stock)},
        {"rows": rows, "length": length, "size": size},
        {} if target is None else {"stock": target},
        count_flops(config, [length] * rows, max(1, round(MASKED_SHARE * length)) * rows),
    )


def with_padding(
    data: str, class_name: str, size: str, rows: int, setting: Setting, training: bool, shrink: int = 1
) -> Workload:
    """Compare with three ways of padding for transformers' class.

    Ours trains on random rows, and predicts for sorted rows as `bert_training/engine/predict.py: predict` does. Batches
    of sorted rows differ in length, so each repetition uses three of them: a short one, a middle one and a long one.

    Args:
        data: the name of the lengths in lab/records/lengths.json, such as "mrpc train".
        rows: rows of a batch.
        shrink: divides all lengths, for a quick test.
    """
    lengths, limit = stored_lengths(data)
    lengths, limit = np.maximum(2, lengths // shrink), limit // shrink
    config = bert_config(size, setting.vocab_size)
    own, stock = make_sides(class_name, config, setting, training)

    def batch(generator: np.random.Generator, drawn: np.ndarray, pad_to: int) -> Batch:
        made = padded_batch(generator, drawn, pad_to, setting.vocab_size)
        return add_labels(generator, class_name, made, drawn) if training else made

    def random_rows(side: Side, fixed: bool) -> Callable[[int], Work]:
        def prepare(repetition: int) -> Work:
            generator = np.random.default_rng([2, repetition + 1])
            drawn = generator.choice(lengths, rows)
            return side.work([batch(generator, drawn, limit if fixed else int(drawn.max()))], training)

        return prepare

    def sorted_rows(side: Side) -> Callable[[int], Work]:
        def prepare(repetition: int) -> Work:
            generator = np.random.default_rng([3, repetition + 1])
            drawn = np.sort(generator.choice(lengths, rows * MEGABATCH)).reshape(MEGABATCH, rows)
            chosen = drawn[[MEGABATCH // 6, MEGABATCH // 2, MEGABATCH * 5 // 6]]
            return side.work([batch(generator, row, int(row.max())) for row in chosen], training)

        return prepare

    kind = "fine-tuning" if training else "inference"
    names = [f"stock, padded to {limit}", "stock, padded to the longest", "stock, rows of like length"]
    ways = [random_rows(stock, True), random_rows(stock, False), sorted_rows(stock)]
    arms = {"ours": random_rows(own, False) if training else sorted_rows(own), **dict(zip(names, ways))}
    targets = TARGETS[kind, data.split()[0]]
    facts = {"rows": rows, "size": size, "data": data}
    return Workload(f"{kind} {data}, {size}, batch {rows}", arms, facts, dict(zip(names[-len(targets) :], targets)))


def smallest(size: str, length: int, setting: Setting, training: bool) -> Workload:
    """One row without padding, which shows the cost of the switch where it cannot help."""
    own, stock = make_sides("BertForSequenceClassification", bert_config(size, setting.vocab_size), setting, training)

    def arm(side: Side) -> Callable[[int], Work]:
        def prepare(repetition: int) -> Work:
            generator = np.random.default_rng([4, repetition + 1])
            lengths = np.array([length])
            made = padded_batch(generator, lengths, length, setting.vocab_size)
            made = add_labels(generator, "BertForSequenceClassification", made, lengths) if training else made
            return side.work([made] * 5, training)

        return prepare

    kind = "training" if training else "inference"
    name = f"one row of {length} tokens, {size}, {kind}"
    facts = {"rows": 1, "length": length, "size": size}
    return Workload(name, {"ours": arm(own), "stock": arm(stock)}, facts, {"stock": 1.0})


def count_flops(config: BertConfig, lengths: list[int], labelled_tokens: int) -> float:
    """The number of multiplications and additions in the matrix products of our pre-training step.

    The vocabulary is computed at labelled positions only, and the end of the last layer at these and at [CLS], which
    has no label. The backward pass takes twice as many as the forward pass. Softmax, LayerNorm, GELU, embeddings and
    AdamW are not counted.
    """
    hidden, layers = config.hidden_size, config.num_hidden_layers
    tokens, read = sum(lengths), labelled_tokens + len(lengths)
    linear = tokens * layers * 3 * hidden * hidden
    linear += (tokens * (layers - 1) + read) * (hidden * hidden + 2 * hidden * config.intermediate_size)
    attention = layers * sum(2 * length * length * hidden for length in lengths)
    heads = labelled_tokens * (hidden * hidden + hidden * config.vocab_size) + len(lengths) * (hidden * hidden)
    return 3 * 2.0 * (linear + attention + heads)


# --- memory ----------------------------------------------------------------------------------------------


def peak_memory(which: int, size: str, rows: int, length: int, setting: Setting) -> int:
    """The peak bytes of this process after two pre-training steps; `which` is 0 for our network, 1 for transformers'.

    Call it in a new process. On CUDA this is the peak of the allocator, otherwise that of the resident memory.
    """
    config = bert_config(size, setting.vocab_size, max_position_embeddings=max(512, length))
    side = make_sides("BertForPreTraining", config, setting, True, sparse_prediction=True)[which]
    generator = np.random.default_rng(0)
    for _ in range(2):
        side.work([pretraining_batch(generator, rows, length, setting.vocab_size)], True)[0]()
    if setting.device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    # The peak of getrusage cannot be used, because it is inherited from the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
