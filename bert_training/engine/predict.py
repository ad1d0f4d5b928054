"""Prediction: run a network once over every row of ``Features``, with rows of similar length in one batch.

Fine-tuning evaluates with ``predict``, on all processes together. ``bert-repro ask`` and extract_features.py
run in a single process without a ``Run`` and use ``predict_alone``. Both take their batches from
``outputs_by_length``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from transformers.utils import ModelOutput

from bert_training.engine.batches import Features, deal_batches
from bert_training.engine.loop import in_float32, labelled_items
from bert_training.engine.run import Run, gather_object
from bert_training.inputs.flags.shared import SharedArguments


@torch.no_grad()
def outputs_by_length(
    model: torch.nn.Module,
    features: Features,
    batch_size: int,
    device: torch.device,
    run: Run[SharedArguments] | None = None,
    **options: Any,
) -> Iterator[tuple[np.ndarray, dict[str, torch.Tensor], ModelOutput]]:
    """Run the model in evaluation mode over all rows, sorted from long to short so that batches need little padding.

    How a batch is filled is up to the features (``Features.by_length``).

    Args:
        model: unwrapped, or as prepared by Accelerate; it is left in evaluation mode.
        run: if given, its processes share the batches, and a progress bar is shown; if None, this process computes
            all batches.
        options: further keyword arguments of the model, such as ``output_hidden_states``.

    Yields:
        For every batch: the indices of its rows in ``features`` (B,), the batch on ``device``, and the outputs.
    """
    model.eval()
    batches = features.by_length(batch_size)
    own = deal_batches(batches, run) if run else [(indices, False) for indices in batches]
    with run.progress(len(own), "evaluating") if run else nullcontext() as bar:
        for indices, is_filler in own:
            batch = {name: tensor.to(device) for name, tensor in features.collate(indices).items()}
            outputs = model(**batch, **options)
            if bar is not None:
                bar.update()
            if not is_filler:
                yield indices, batch, outputs


def logits_of(outputs: ModelOutput) -> dict[str, torch.Tensor]:
    """The fields of a model's outputs whose names end in "logits"."""
    return {name: value for name, value in outputs.items() if name.endswith("logits")}


def _rows(
    fields: Mapping[str, torch.Tensor], indices: np.ndarray, features: Features, per_token: bool
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """The index of every row of a batch with its part of each field, as float32 on the CPU."""
    arrays = {name: value.float().cpu().numpy() for name, value in fields.items()}
    for place, index in enumerate(indices):
        length = features.lengths[index] if per_token else None
        yield index, {name: array[place][:length] for name, array in arrays.items()}


def _columns(rows: list[tuple[int, dict[str, np.ndarray]]]) -> dict[str, list[np.ndarray]]:
    """One list per field, in the order of ``features``."""
    ordered = [row for _, row in sorted(rows, key=lambda indexed: indexed[0])]
    return {name: [row[name] for row in ordered] for name in ordered[0]}


def check_outputs(culprits: Sequence[int], total: int, precision: str) -> None:
    """Raise FloatingPointError if there are rows or instances of an evaluation whose outputs are not finite.

    Args:
        culprits: their numbers, counted from 0.
        total: the number of all rows that were evaluated.
        precision: the type of autocast, "no" for none.
    """
    if culprits:
        shown = ", ".join(map(str, culprits[:8])) + (", ..." if len(culprits) > 8 else "")
        raise FloatingPointError(
            f"evaluation: the outputs of the network are NaN or infinite for {len(culprits)} of {total} rows (counted "
            f"from 0: {shown}), so that there is no score; the weights are unchanged. If the training has just "
            f"begun to diverge, try a lower --learning_rate from an earlier checkpoint{in_float32(precision)}"
        )


def predict(
    run: Run[SharedArguments], model: torch.nn.Module, features: Features, batch_size: int, per_token: bool = False
) -> dict:
    """The model's outputs for every row of ``features``, in the order of the rows, on every process.

    Args:
        model: as prepared by Accelerate.
        batch_size: rows per batch and process.
        per_token: the outputs are (B, L, ...) and are returned as one array per row, cut to the row's real length;
            otherwise they are (B, ...) and are returned stacked.

    Returns:
        One entry per output field, e.g. ``logits``; and ``loss``, the mean over all labelled items, if the
        features have labels.

    Raises:
        FloatingPointError: the outputs for a row are not finite.
    """
    rows: list[tuple[int, dict[str, np.ndarray]]] = []
    loss, items = 0.0, 0.0
    for indices, batch, outputs in outputs_by_length(model, features, batch_size, run.device, run):
        if outputs.get("loss") is not None:
            count = labelled_items(batch).item()
            loss += float(outputs["loss"]) * count
            items += count
        rows.extend(_rows(logits_of(outputs), indices, features, per_token))
    results: dict[str, Any] = _columns(gather_object(rows))
    broken = [not all(np.isfinite(array).all() for array in row) for row in zip(*results.values())]
    check_outputs(np.flatnonzero(broken).tolist(), len(broken), run.accelerator.mixed_precision)
    if not per_token:
        results = {name: np.stack(column) for name, column in results.items()}
    totals = gather_object([(loss, items)])
    if any(count for _, count in totals):
        results["loss"] = sum(part for part, _ in totals) / sum(count for _, count in totals)
    return results


def predict_alone(
    model: torch.nn.Module,
    features: Features,
    batch_size: int,
    device: torch.device,
    read: Callable[[ModelOutput], Mapping[str, torch.Tensor]] = logits_of,
    **options: Any,
) -> dict[str, list[np.ndarray]]:
    """What ``read`` takes from the model's outputs for every row, in the order of the rows, in this process alone.

    Args:
        model: not wrapped for several processes.
        read: returns the wanted fields of the outputs of one batch, each of shape (B, L, ...).
        options: further keyword arguments of the model, such as ``output_hidden_states``.

    Returns:
        For every field of ``read`` one float32 array per row, cut to the row's real length.
    """
    rows: list[tuple[int, dict[str, np.ndarray]]] = []
    for indices, _, outputs in outputs_by_length(model, features, batch_size, device, **options):
        rows.extend(_rows(read(outputs), indices, features, per_token=True))
    return _columns(rows)
