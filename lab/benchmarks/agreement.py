"""How far the ways to compute a step are from transformers' network in float32, on this device and in this type.

A machine that nobody has tried could compute quickly and wrongly. The gradients of each way are compared with those of
transformers' network with the same weights in float32; transformers' own difference in the type of the measurement says
how much of it is rounding.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bert_training.engine.batches import IGNORED
from bert_training.inputs.models import bert_config
from lab.benchmarks.workloads import MASKED_SHARE, Batch, Setting, Side, make_sides, padded_batch, stored_lengths

ROUNDING = 2  # a way may be this many times as far from float32 as transformers' network is in the same type
LEAST = 1e-5  # or this far, which float32 itself may differ by


def agreement(class_name: str, setting: Setting, tiny: bool) -> list[dict[str, Any]]:
    """One row for each way to compute the gradients of a batch of MRPC's lengths, without dropout.

    Returns:
        Dicts with ``network``, ``way``, ``difference`` (the norm of the difference of all gradients, as a share of the
        norm of transformers' in float32) and ``as_expected``: whether rounding explains it.
    """
    rows, shrink = (4, 16) if tiny else (32, 1)
    generator = np.random.default_rng(5)
    lengths = np.maximum(2, generator.choice(stored_lengths("mrpc train")[0], rows) // shrink)
    batch = padded_batch(generator, lengths, int(lengths.max()), setting.vocab_size)
    batch |= labels_of(generator, batch, class_name)
    config = bert_config("tiny" if tiny else "mini", setting.vocab_size)
    # compile() cannot be undone, so that each way has networks of its own.
    own, stock = make_sides(class_name, config, setting, training=False)
    compiled, _ = make_sides(class_name, config, replace(setting, compile=True), training=False)
    exact = gradients(Side(stock.model, replace(setting, dtype=torch.float32), None), batch)
    ways: dict[str, tuple[Side, Any]] = {
        "transformers": (stock, None),
        "ours, every position": (own, False),
        "ours, without padding": (own, True),
        "ours, compiled": (compiled, False),
    }
    found: dict[str, float] = {}
    for way, (side, unpad_inputs) in ways.items():
        if unpad_inputs is not None:
            side.model.config.update({"unpad_inputs": unpad_inputs})
        found[way] = float((gradients(side, batch) - exact).norm() / exact.norm())
    limit = max(LEAST, ROUNDING * found["transformers"])
    return [
        {"network": class_name, "way": way, "difference": value, "as_expected": value <= limit}
        for way, value in found.items()
    ]


def labels_of(generator: np.random.Generator, batch: Batch, class_name: str) -> Batch:
    """Labels for a classifier, or for masked tokens and next sentences; padding does not change these losses."""
    classes = torch.from_numpy(generator.integers(0, 2, len(batch["input_ids"])))
    if class_name != "BertForPreTraining":
        return {"labels": classes}
    masked = (
        torch.from_numpy(generator.random(batch["input_ids"].shape) < MASKED_SHARE) & batch["attention_mask"].bool()
    )
    return {"labels": batch["input_ids"].where(masked, IGNORED), "next_sentence_label": classes}


def gradients(side: Side, batch: Batch) -> Tensor:
    """All gradients of the loss in one vector, in float32; the model has none afterwards."""
    batch = {name: tensor.to(side.setting.device) for name, tensor in batch.items()}
    side.forward(batch).loss.backward()
    found = [weight.grad.float().flatten() for weight in side.model.parameters()]
    side.model.zero_grad(set_to_none=True)
    return torch.cat(found)
