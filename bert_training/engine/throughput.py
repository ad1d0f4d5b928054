"""Measure a run: tokens per second, model FLOPs utilisation (MFU), time left, memory.

Model FLOPs are the operations that the definition of the network requires, whatever is actually computed: they include
neither padding nor recomputation, and the projection onto the vocabulary at labelled positions only. A multiplication
and an addition count as two operations; the backward pass costs twice as much as the forward pass.

    forward = tokens * layers * (8 H^2 + 4 H I + 4 n H)     projections, feed-forward, attention scores and contexts
            + labels * (2 H^2 + 2 H V)                      masked-LM head
            + sequences * 2 H^2                             pooler
    training = 3 * forward

H is the hidden size, I the intermediate size, V the size of the vocabulary, and n the mean length of a sequence. The
formula follows appendix B of PaLM (Chowdhery et al. 2022), where MFU is defined: training FLOPs per second, divided by
the peak FLOP/s of the machine.
"""

import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any

import torch

from bert_training.engine.loop import Step
from bert_training.engine.run import Run
from bert_training.inputs.flags.pretraining import PretrainingArguments

_MEASURED_SECONDS = 0.15


def training_flops(config: Any, tokens: float, sequences: float, labels: float) -> float:
    """Model FLOPs of training on `tokens` real tokens in `sequences` sequences with `labels` labelled positions."""
    hidden, length = config.hidden_size, tokens / sequences
    layer = 8 * hidden**2 + 4 * hidden * config.intermediate_size + 4 * length * hidden
    head = 2 * hidden**2 + 2 * hidden * config.vocab_size
    return 3 * (tokens * config.num_hidden_layers * layer + labels * head + sequences * 2 * hidden**2)


def measured_peak(device: torch.device, mixed_precision: str) -> float:
    """FLOP/s of the best large matrix product on `device` in the precision of the run; takes about 0.2 s.

    This is what the machine reaches under its present load, which may be less than its data sheet says.
    """
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(mixed_precision, torch.float32)
    # A small product may finish between two interruptions on a busy machine; a large one can use many cores.
    sizes = (512, 1024) if device.type == "cpu" else (4096, 8192)
    matrices = [torch.ones(size, size, dtype=dtype, device=device) for size in sizes]

    def rate(matrix: torch.Tensor) -> float:
        started = time.perf_counter()
        # Reading one number makes the host wait for the device.
        (matrix @ matrix)[0, 0].item()
        return 2 * len(matrix) ** 3 / (time.perf_counter() - started)

    for matrix in matrices:
        rate(matrix)
    begun, best = time.perf_counter(), 0.0
    while time.perf_counter() - begun < _MEASURED_SECONDS:
        best = max(best, *map(rate, matrices))
    return best


def peak_of(run: Run[PretrainingArguments]) -> float:
    """The measured peak FLOP/s of all processes together, which all call it."""
    own = measured_peak(run.device, run.accelerator.mixed_precision)
    if run.device.type == "cuda":  # the matrices must not count as memory of the training
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(run.device)
    # All processes measure at the same time, so those that share the cores of a machine share its peak as well.
    return float(run.accelerator.reduce(torch.tensor(own, device=run.device), "sum"))


def peak_memory_gb(device: torch.device) -> float:
    """The most memory that this process has used so far, in units of 1e9 bytes: GPU memory, or else resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    unit = 1 if sys.platform == "darwin" else 1024  # macOS reports bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


class Throughput:
    """A clock for the training steps, without the time for evaluation and saving."""

    def __init__(self, run: Run[PretrainingArguments], config: Any, total_steps: int):
        self.run, self.config, self.device, self.total_steps = run, config, run.device, total_steps
        self.peak = peak_of(run)
        self.all = self.recent = _Work()
        self.index = 0

    def timed(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Yield `steps` and time them."""
        while True:
            started = time.perf_counter()
            step = next(steps, None)
            if step is None:
                return
            counts = step.counts
            flops = training_flops(self.config, counts.tokens, counts.sequences, counts.items)
            work = _Work(1, time.perf_counter() - started, counts.tokens, flops, counts.sequences)
            self.index, self.all, self.recent = step.index, self.all + work, self.recent + work
            yield step

    def record(self) -> dict[str, float]:
        """tokens_per_second, mfu and seconds_per_step of the steps since the last call, of which there must be some."""
        recent, self.recent = self.recent, _Work()
        return {
            "tokens_per_second": round(recent.tokens / recent.seconds, 1),
            "mfu": round(recent.flops / recent.seconds / self.peak, 4),
            "seconds_per_step": round(recent.seconds / recent.steps, 5),
        }

    def time_left(self) -> str:
        """The time that the remaining steps will take at the mean speed so far, in the form `1:23:45`."""
        seconds = round((self.total_steps - self.index) * self.all.seconds / max(self.all.steps, 1))
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    def results(self) -> dict[str, float]:
        """The entries of all_results.json about the steps since the last start, without evaluations."""
        seconds = max(self.all.seconds, 1e-9)
        return {
            "train_tokens_per_second": self.all.tokens / seconds,
            "train_samples_per_second": self.all.sequences / seconds,
            "train_mfu": self.all.flops / seconds / self.peak,
            "peak_tflops": self.peak / 1e12,
            "peak_memory_gb": peak_memory_gb(self.device),
        }


@dataclass(frozen=True)
class _Work:
    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    flops: float = 0.0
    sequences: int = 0

    def __add__(self, other: "_Work") -> "_Work":
        return _Work(*map(sum, zip(astuple(self), astuple(other))))
