"""Micro-batches of examples, addressed by optimiser step.

Training data is any object with ``batch(start, stop)``: a pure function from positions in an endless stream of epochs
to a dict of tensors. Optimiser step s, counted from 1, takes the positions ``[(s - 1) * G, s * G)``, where G is the
number of sequences of the global batch. The order of the data therefore depends neither on the number of processes,
workers and micro-batches nor on where a run was interrupted, and a resumed run need not read the earlier data again.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from bert_training.engine.errors import is_for_the_user
from bert_training.engine.run import Run
from bert_training.files.processes import only_parent_ends_me
from bert_training.inputs.flags.shared import SharedArguments
from tokenization.errors import UserError

# Label of a position or item that the loss excludes: torch's default `ignore_index`. The network has the same constant
# in modeling_bert_repro/losses.py, which training does not import.
IGNORED = -100

# In a batch of examples of several rows each, such as the windows of a text, the number of rows of every example: (B,).
NUM_WINDOWS = "num_windows"


Batch = TypeVar("Batch")


def is_labelled(labels: torch.Tensor) -> torch.Tensor:
    """Where a loss includes a label: everywhere among scores, and otherwise where it is not -100."""
    return torch.ones_like(labels, dtype=torch.bool) if labels.is_floating_point() else labels != IGNORED


class TrainingData(Protocol):
    """What a run is trained on; see the head of this file."""

    def batch(self, start: int, stop: int) -> dict[str, torch.Tensor]:
        """The examples at the positions ``[start, stop)`` of the endless stream."""
        ...


class Features:
    """Tokenised examples in memory.

    Args:
        columns: name -> one entry per row. ``input_ids``, ``token_type_ids``: one sequence of ints per row. ``labels``:
            a number per row, a sequence with one label per token, or an array (rows, C) with a number for each label
            of a text. ``loss_weights``: as the labels, floats by which their losses are multiplied. Others
            (``start_positions``, ...): a number per row; an array (rows, C); or, for the outputs of a teacher, an
            array of floats per row, (length,) or (length, C).
        pad_token_id: the id that pads ``input_ids``.
        seed: seed of the order of the rows in ``batch``.

    Raises:
        ValueError: the columns differ in length or are empty.
    """

    def __init__(self, columns: dict, pad_token_id: int, seed: int = 0):
        sizes = {name: len(column) for name, column in columns.items()}
        assert len(set(sizes.values())) == 1, f"columns must have one length; got {sizes}"
        assert len(columns["input_ids"]), "there are no examples"
        self.columns = columns
        self.pad_token_id = pad_token_id
        self.seed = seed
        self.lengths = np.fromiter((len(row) for row in columns["input_ids"]), dtype=np.int64)
        self._order_epoch: int | None = None  # the epoch whose order is in _order
        self._order = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    def shuffled(self, seed: int) -> "Features":
        """The same rows, not copied, in the order of another seed."""
        other = copy.copy(self)
        other.seed, other._order_epoch = seed, None
        return other

    def collate(self, indices: Sequence[int] | np.ndarray) -> dict[str, torch.Tensor]:
        """The rows at ``indices``, padded on the right to the longest of them: (B, L), (B,) and (B, C)."""
        indices = np.asarray(indices)
        longest = int(self.lengths[indices].max())
        padding = {"input_ids": self.pad_token_id, "token_type_ids": 0, "labels": IGNORED, "loss_weights": 0}
        batch = {}
        for name, column in self.columns.items():
            if np.ndim(column[0]) == 0:
                batch[name] = torch.tensor(np.asarray([column[index] for index in indices]))
                continue
            if isinstance(column, np.ndarray) and column.ndim == 2:
                batch[name] = torch.from_numpy(column[indices])
                continue
            # One sequence per row; the outputs of a teacher are floats, possibly several for a token.
            kind = np.float64 if name == "loss_weights" else getattr(column[0], "dtype", np.dtype(np.int64))
            kind = kind if np.issubdtype(kind, np.floating) else np.int64
            rows = np.full((len(indices), longest, *np.shape(column[0])[1:]), padding.get(name, 0), dtype=kind)
            for row, index in zip(rows, indices):
                row[: self.lengths[index]] = column[index]
            batch[name] = torch.from_numpy(rows)
        mask = np.arange(longest) < self.lengths[indices, None]
        batch["attention_mask"] = torch.from_numpy(mask.astype(np.int64))
        # Scores of a regression are Python floats, which NumPy makes float64; the network computes in float32.
        return {name: values.float() if values.is_floating_point() else values for name, values in batch.items()}

    def by_length(self, batch_size: int) -> list[np.ndarray]:
        """The indices of all rows in batches, from long to short, so that batches need little padding."""
        order = np.argsort(-self.lengths, kind="stable")
        return [order[begin : begin + batch_size] for begin in range(0, len(order), batch_size)]

    def batch(self, start: int, stop: int) -> dict[str, torch.Tensor]:
        """Positions ``[start, stop)`` of the endless stream of shuffled epochs."""
        epochs, places = np.divmod(np.arange(start, stop), len(self))
        return self.collate([self._epoch(int(epoch))[place] for epoch, place in zip(epochs, places)])

    def _epoch(self, epoch: int) -> np.ndarray:
        if self._order_epoch != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            self._order_epoch, self._order = epoch, rng.permutation(len(self))
        return self._order


def num_examples(batch: dict[str, torch.Tensor]) -> int:
    """The number of examples of a batch."""
    return len(batch.get(NUM_WINDOWS, batch["input_ids"]))


def steps_for(args: SharedArguments, epoch_fraction: float) -> int:
    """Optimiser steps of the run: ``--max_steps``, or as many as ``--num_train_epochs`` need, rounded up.

    Args:
        epoch_fraction: the fraction of an epoch that one step takes.
    """
    if args.max_steps > 0:
        return args.max_steps
    return max(1, math.ceil(args.num_train_epochs / epoch_fraction - 1e-9))


def deal_batches(batches: Sequence[Batch], run: Run[SharedArguments]) -> list[tuple[Batch, bool]]:
    """This process's batches of an evaluation, dealt to the processes in turn, as pairs (batch, is_filler).

    Every process gets the same number of batches, because a wrapped network communicates with the other processes in
    every forward pass, also in evaluation, and would wait forever for a process without a batch. If there are too few
    batches, the last one is repeated as a filler, whose outputs must not be used.
    """
    total, last = math.ceil(len(batches) / run.world_size) * run.world_size, len(batches) - 1
    return [(batches[min(number, last)], number > last) for number in range(run.rank, total, run.world_size)]


def evaluation_due(run: Run[SharedArguments], step: int, num_examples: int) -> bool:
    """Whether to evaluate after this step: every ``--eval_steps`` or, by default, when it completes an epoch."""
    if run.args.eval_steps:
        return step % run.args.eval_steps == 0
    return step * run.global_batch_size // num_examples > (step - 1) * run.global_batch_size // num_examples


class _MicroBatches(Dataset[dict[str, torch.Tensor] | str]):
    """Item ``index`` is the micro-batch with this number, from 0, of this process, over all steps of the run."""

    def __init__(
        self, source: TrainingData, run: Run[SharedArguments], size: int | None, accumulation: int | None
    ) -> None:
        self.source = source
        self.size = size or run.args.per_device_train_batch_size
        self.per_step = accumulation or run.args.gradient_accumulation_steps
        self.rank = run.rank
        self.world_size = run.world_size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor] | str:
        """The micro-batch; or, in a worker process, the message of an error that is for the user.

        torch would add the worker's traceback to the message and raise it from a line of its own.
        """
        start = first_position(index, self.rank, self.world_size, self.size)
        try:
            return self.source.batch(start, start + self.size)
        except (ValueError, OSError) as error:
            if get_worker_info() is None or not is_for_the_user(error):
                raise
            return str(error)


def first_position(index: int, rank: int, world_size: int, size: int) -> int:
    """The position of the first example of a process's micro-batch number ``index``, counted from 0.

    Micro-batches of the same number follow each other, in the order of the ranks; each has ``size`` examples.
    """
    return (index * world_size + rank) * size


def step_batches(
    source: TrainingData,
    run: Run[SharedArguments],
    start_step: int,
    total_steps: int,
    size: int | None = None,
    accumulation: int | None = None,
) -> Iterator[list[dict[str, torch.Tensor]]]:
    """This process's micro-batches of the optimiser steps ``start_step + 1 .. total_steps``, one list a step.

    ``--dataloader_num_workers`` processes prepare them in advance; the data does not depend on their number.

    Args:
        size: examples per micro-batch and process; ``--per_device_train_batch_size`` if not given.
        accumulation: micro-batches per step; ``--gradient_accumulation_steps`` if not given.
    """
    data = _MicroBatches(source, run, size, accumulation)
    loader = DataLoader(
        data,
        batch_size=None,
        sampler=range(start_step * data.per_step, total_steps * data.per_step),
        num_workers=run.args.dataloader_num_workers,
        worker_init_fn=only_parent_ends_me,
        pin_memory=run.device.type == "cuda",
    )
    micro_batches = []
    for micro_batch in loader:
        if isinstance(micro_batch, str):
            raise UserError(micro_batch)
        micro_batches.append(micro_batch)
        if len(micro_batches) == data.per_step:
            yield micro_batches
            micro_batches = []
