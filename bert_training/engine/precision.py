"""``--mixed_precision auto``: bfloat16 where the machine computes with it, float32 elsewhere.

The main process decides for all. A run that goes on keeps the type that it began with, on another machine too: a
training that changed it halfway could not be repeated.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from torch.nn.functional import linear
from transformers.utils import is_torch_xla_available

from bert_training.engine.finished import read_facts
from bert_training.flags.pretraining import CONFIG_SIZES
from bert_training.flags.recipes import width_of
from bert_training.flags.shared import SharedArguments

Precision = Literal["no", "bf16", "fp16"]
AUTO = "auto"
FASTER = 1.3  # so many times as fast must bfloat16 be on a CPU; a step has more to do than products
TOKENS = 512  # rows of the products that are timed
REPETITIONS = 3


@dataclass(frozen=True)
class Settled:
    """What auto has become.

    Attributes:
        precision: the type of autocast.
        why: for the user, in words.
        ratio: how many times as fast the products were in bfloat16; None if they were not timed.
    """

    precision: Precision
    why: str
    ratio: float | None = None

    def facts(self) -> dict[str, Any]:
        """For run.json."""
        return {"precision_chosen": {"by": AUTO, "why": self.why, "ratio": self.ratio and round(self.ratio, 2)}}


def settle(args: SharedArguments, state: PartialState, folders: Sequence[str]) -> Settled:
    """The type for ``auto``, the same on all processes, which all call it.

    Args:
        folders: that of the run, or those of the runs of a series; the first one that holds a run decides.
    """
    found = [choose(args, folders) if state.is_main_process else None]
    if state.num_processes > 1:
        broadcast_object_list(found)
    settled = found[0]
    assert settled is not None  # the main process has chosen
    return settled


def choose(args: SharedArguments, folders: Sequence[str]) -> Settled:
    """The type that earlier starts of the run had, or else the faster one of this machine."""
    best = _of_this_machine(args)
    for folder in map(Path, folders):
        if (folder / "run.json").is_file():
            recorded: Any = read_facts(folder).get("mixed_precision")
            if recorded in get_args(Precision):
                return Settled(recorded, f"as the run began; for this machine, auto would choose {best.why}")
    return best


def _of_this_machine(args: SharedArguments) -> Settled:
    if is_torch_xla_available():
        return Settled("bf16", "bf16, the type of TPUs")
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Settled("bf16", f"bf16, which {name} computes with")
        return Settled("no", f"no (float32), because {name} has no bfloat16")
    if torch.accelerator.is_available():
        return Settled(
            "no", f"no (float32), because bfloat16 was not tried on {torch.accelerator.current_accelerator()}"
        )
    width = _width(args)
    ratio = speed_ratio(width)
    products = f"matrix products of width {width} are {ratio:.2f} times as fast in bfloat16 here"
    if ratio >= FASTER:
        return Settled("bf16", f"bf16: {products}", ratio)
    return Settled("no", f"no (float32): {products}, less than the {FASTER} times that pay", ratio)


def _width(args: SharedArguments) -> int:
    """The hidden size of the network, from the flags: nothing is loaded yet."""
    if weights := getattr(args, "model_name_or_path", None):
        return width_of(weights)
    name = getattr(args, "config_name", None) or "mini"
    return CONFIG_SIZES[name][1] if name in CONFIG_SIZES else width_of(name)


def speed_ratio(width: int) -> float:
    """How many times as fast this CPU multiplies in bfloat16 as in float32, with the matrices of a feed-forward layer.

    It takes a tenth of a second for BERT-Base on two cores.
    """
    generator = torch.Generator().manual_seed(0)
    states, weights = (torch.randn(rows, width, generator=generator) for rows in (TOKENS, 4 * width))
    return _seconds(states, weights) / _seconds(states.bfloat16(), weights.bfloat16())


def _seconds(states: torch.Tensor, weights: torch.Tensor) -> float:
    """The shortest time of a product, after one that is not counted."""
    best = float("inf")
    with torch.inference_mode():
        for repetition in range(-1, REPETITIONS):
            start = time.perf_counter()
            linear(states, weights)
            best = min(best, time.perf_counter() - start) if repetition >= 0 else best
    return best
