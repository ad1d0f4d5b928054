"""``--mixed_precision auto``: bfloat16 where the machine computes with it, float32 elsewhere.

On a CPU it is the default of fine-tuning and of ``--recipe fast``, where neither a flag nor a launcher names a type.
lab/records/two_types.json compares losses and scores of both types. The main process decides for all. A run that goes
on keeps the type that it began with, on another machine too: a training that changed it halfway could not be repeated.
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import PartialState
from transformers.utils import is_torch_xla_available

from bert_training.engine.run import broadcast_object_list
from bert_training.inputs.flags.pretraining import network_width
from bert_training.inputs.flags.shared import SharedArguments
from bert_training.record import Record

Precision = Literal["no", "bf16", "fp16"]
AUTO = "auto"
LAUNCHER = "ACCELERATE_MIXED_PRECISION"  # accelerate launch always sets it: to "no" where nobody has chosen
CHOSEN = "precision_chosen"  # of run.json
NARROWEST = 256  # the hidden size of BERT-Mini; whole runs of BERT-Tiny take as long in bfloat16 (lab/notes/log.md)
# Instructions of x86 CPUs, by their names in torch.cpu.get_capabilities(). Without them, oneDNN emulates bfloat16.
CPU_PRODUCTS = ("amx_bf16", "avx512_bf16")


@dataclass(frozen=True)
class Settled:
    """What auto has become.

    Attributes:
        precision: the type of autocast.
        why: for the user, in words.
        first: what the run recorded when it chose, if it goes on.
    """

    precision: Precision
    why: str
    first: dict[str, Any] | None = None

    def said(self) -> str:
        """For the user."""
        return f"--mixed_precision {AUTO}: {self.why}"

    def facts(self) -> dict[str, Any]:
        """For run.json: why the type was chosen, once."""
        return {CHOSEN: self.first or {"why": self.why}}


def is_asked_for(args: SharedArguments, folders: Sequence[str] = ()) -> bool:
    """Whether the run leaves the type to the machine: by its flag, by default on a CPU, or because it began so.

    Args:
        folders: see ``settle``.
    """
    if args.mixed_precision or LAUNCHER in os.environ:
        return args.mixed_precision == AUTO
    if args.leaves_type_to_cpu and no_device():
        return True
    began = _first_start(folders)
    return began is not None and CHOSEN in began[1]


def no_device() -> bool:
    """Whether there are CPUs only. Accelerate must be told, or it starts several runs of one process each."""
    return not (torch.accelerator.is_available() or is_torch_xla_available())


def settle(args: SharedArguments, state: PartialState, folders: Sequence[str]) -> Settled:
    """The type for ``auto``, the same on all processes, which all call it.

    Args:
        folders: that of the run, that of the checkpoint that it goes on from, or those of the runs of a series; the
            first one that holds a run decides.
    """
    found = [choose(args, folders) if state.is_main_process else None]
    if state.num_processes > 1:
        broadcast_object_list(found)
    settled = found[0]
    assert settled is not None  # the main process has chosen
    return settled


def choose(args: SharedArguments, folders: Sequence[str]) -> Settled:
    """The type that earlier starts of the run had, or else that of this machine."""
    best = _of_this_machine(args)
    if began := _first_start(folders):
        precision, facts = began
        why, first = f"{precision}; as the run began; for this machine, auto would choose {best.why}", facts.get(CHOSEN)
        return Settled(precision, why, first=first if isinstance(first, dict) else None)
    for path in (Path(folder, "run.json") for folder in folders):
        if path.is_file():  # the run goes on from its checkpoint, and writes this file again
            best = replace(best, why=f"{best.why}; {path} is damaged, or does not say in which type the run began")
    return best


def advice(args: SharedArguments, precision: str) -> str | None:
    """A line for a new run that computes in float32 on a GPU with bfloat16, because nobody has named a type."""
    named = args.mixed_precision or LAUNCHER in os.environ or args.resume_from_checkpoint
    if named or precision != "no" or not torch.cuda.is_available():
        return None
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        return None
    name = torch.cuda.get_device_name()
    faster = "whose matrix products are several times as fast"
    return f"{name} computes in float32; with --mixed_precision {AUTO} it takes bfloat16, {faster}"


def _first_start(folders: Sequence[str]) -> tuple[Precision, dict[str, Any]] | None:
    """The type of the first start of the run in one of the folders, and the run.json there; None if no file says it."""
    for folder in map(Path, folders):
        if (folder / "run.json").is_file():
            with contextlib.suppress(ValueError):  # it is damaged
                facts = Record.read(folder).facts
                return [*facts.get("earlier", []), facts][0]["mixed_precision"], facts
    return None


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
    width = network_width(vars(args))
    if width < NARROWEST:
        return Settled("no", f"no (float32), because a network of width {width} has little to gain")
    found = [name for name in CPU_PRODUCTS if torch.cpu.get_capabilities().get(name)]
    if found:
        return Settled("bf16", f"bf16, because this CPU multiplies in bfloat16 ({found[0]})")
    return Settled("no", "no (float32), because this CPU has no products in bfloat16")


def keep_cudnn_from_attention() -> None:
    """Let torch compute attention on GPUs by FlashAttention and, with a mask, by its memory-efficient kernel.

    cuDNN makes a plan for every new shape, and batches differ in length. On an H100, a plan takes a fifth of a second;
    the first 60 steps of transformers' network with 32 pairs of MRPC took five times as long with cuDNN, and steps of
    one length no less time than with FlashAttention (lab/notes/performance.md).
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
