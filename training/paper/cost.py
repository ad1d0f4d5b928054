"""What the runs of a plan cost, estimated by the planner (`python -m training plan`).

The planner times a few real steps of the plan's first network on this machine. The floating point operations of every
other run are counted (`training/engine/throughput.py`) and divided by that speed. A network that is much smaller or
larger than the timed one is faster or slower for each operation, and starts, tokenisation and pictures are not counted:
the sum is a guess, good for choosing a scale.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from training.engine.throughput import training_flops
from training.flags.phases import Phase, phases_of, scheduled
from training.paper.data import config_of
from training.paper.plan import CELLS, Cell, Plan, is_finished
from training.paper.scales import Scale, Size
from training.tools import budget

FORWARD = 1 / 3  # the share of a forward pass in the operations of a training step
MASKED = 0.15
TIMED_TOKENS = 1024  # of a step of a large network, so that the timing takes a minute and not an hour


def shape_of(size: Size, vocab_size: int) -> SimpleNamespace:
    """The fields of a BertConfig that ``training_flops`` reads."""
    wide = {"hidden_size": size.hidden, "intermediate_size": 4 * size.hidden}
    return SimpleNamespace(vocab_size=vocab_size, num_hidden_layers=size.layers, **wide)


def flops_of(cell: Cell, vocab_size: int) -> float:
    """The floating point operations of a cell: training and, in fine-tuning, an evaluation after every epoch."""
    flags, shape = cell.flags, shape_of(cell.size, vocab_size)
    if cell.task is None:
        share = 1.0 if flags.get("objective") == "ltr" else MASKED
        phases = scheduled(phases_of({"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1, **flags}),
                           int(flags["max_steps"]))  # fmt: skip
        seen = [((p.stop - p.start) * p.size * p.accumulation, p.length) for p in phases]
        return sum(training_flops(shape, n * length, n, share * n * length) for n, length in seen)
    length, batch = int(flags["max_seq_length"]), int(flags["per_device_train_batch_size"])
    epochs = float(flags.get("num_train_epochs", 1))
    trained = int(flags["max_steps"]) * batch if "max_steps" in flags else cell.task.examples * epochs
    evaluated = cell.task.evaluated * max(1, int(epochs))
    tokens, read = trained * length, evaluated * length
    frozen = "feature_based" in flags
    total = training_flops(shape, tokens, trained, 0) * (FORWARD if frozen else 1)
    total += training_flops(shape, read, evaluated, 0) * FORWARD
    if frozen or "bilstm_on_top" in flags:
        width = cell.size.hidden * (4 if "concat" in flags.get("feature_based", "") else 1)
        total += lstm_flops(width, int(flags.get("lstm_size", cell.size.hidden))) * (3 * tokens + read)
    return total * int(flags.get("seeds", 1))


def lstm_flops(width: int, units: int) -> float:
    """The operations of a forward pass of the two-layer BiLSTM for one token with ``width`` features."""
    return 2 * 8 * units * ((width + units) + (2 * units + units))


def measured_speed(plan: Plan, scale: Scale, start: Callable[..., None] = budget.start) -> tuple[float, str]:
    """(operations per second, name of the device) of the first network of the plan, as the planner measures them."""
    size = plan.cells[0].size
    shape = shape_of(size, scale.vocab_size)
    flags = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1, "phases": scale.phases}
    phases = [_timed(phase, size) for phase in phases_of(flags)]
    more = ["--mixed_precision", scale.pretraining["mixed_precision"]] if "mixed_precision" in scale.pretraining else []
    with tempfile.TemporaryDirectory() as folder:
        config_of(size, scale.vocab_size).save_pretrained(folder)
        records, _, facts = budget.timed_run(folder, scale.vocab_size, phases, more, start)
    operations = seconds = 0.0
    for phase in phases:
        tokens = phase.size * phase.length
        own = sorted(r["seconds_per_step"] for r in records if r["max_seq_length"] == phase.length)
        seconds += phase.share * own[len(own) // 2]
        operations += phase.share * training_flops(shape, tokens, phase.size, MASKED * tokens)
    return operations / seconds, str(facts["device"])


def _timed(phase: Phase, size: Size) -> Phase:
    """The phase with one forward pass a step, of few sequences if the network is large."""
    most = max(1, TIMED_TOKENS // phase.length) if size.hidden >= 512 else phase.size
    return Phase(phase.length, phase.share, min(phase.size, most), 1)


def costs(plan: Plan, vocab_size: int, speed: float) -> dict[str, float]:
    """Name of the cell -> estimated seconds."""
    return {cell.name: flops_of(cell, vocab_size) / speed for cell in plan.cells}


def dry_run(plan: Plan, folder: Path, seconds: dict[str, float], device: str, jobs: int) -> str:
    """Every run with its command and its cost, and the sums. Finished cells show the time that their training took."""
    lines, left, finished = [], 0.0, 0
    for cell in plan.cells:
        done = folder.is_dir() and is_finished(folder, cell)
        finished += done
        left += 0 if done else seconds[cell.name]
        cost = f"finished{_took(folder / CELLS / cell.name)}" if done else f"about {in_words(seconds[cell.name])}"
        lines.append(f"{cell.name}: {cost}\n    python {cell.script} {' '.join(cell.command)}")
    lines.append(
        f"\n{len(plan.cells)} runs, {finished} of them finished; {in_words(left)} of training left on {device}, about "
        f"{in_words(left / jobs)} with {jobs} side by side"
    )
    return "\n".join(lines)


def in_words(seconds: float) -> str:
    """A duration with two digits: "3.2 minutes"."""
    for unit, size in (("years", 31_557_600), ("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} seconds"


def _took(place: Path) -> str:
    path = place / "all_results.json"
    runtime = json.loads(path.read_text(encoding="utf-8")).get("train_runtime") if path.is_file() else None
    return "" if runtime is None else f", {in_words(runtime)} of training"
