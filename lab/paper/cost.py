"""What the runs of a plan cost, estimated by the planner (`bert-repro plan`).

The planner times a few real steps of the plan's first network on this machine. The floating point operations of every
other run are counted (`bert_training/engine/throughput.py`) and divided by that speed. A network that is much smaller
or larger than the timed one needs more or less time for an operation, and the start of a run, its tokenisation and its
pictures are not counted: the sum is a guess, good for choosing a scale.
"""

import shlex
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bert_training.engine.throughput import training_flops
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.phases import Phase, phases_of, with_steps
from bert_training.record import read_results
from lab.paper.data import config_of
from lab.paper.plan import Cell, Plan, words_of
from lab.paper.record import is_finished
from lab.paper.scales import CELLS, Scale, Size

FORWARD = 1 / 3  # the share of the forward pass in the operations of a training step
MASKED = 0.15  # the share of the tokens that a masked LM predicts
TIMED_TOKENS = 1024  # of a step of a large network, so that the timing takes a minute and not an hour
LARGE = 512  # the hidden size from which a network counts as large
Facts = dict[str, Any]
# The configuration, the size of the vocabulary, the phases and further flags -> training records, results, run.json.
TimedRun = Callable[[str, int, Sequence[Phase], Sequence[str]], tuple[list[Facts], Facts, Facts]]
# The flags of run_pretraining.py that ``phases_of`` needs; --phases has its own batches.
NO_BATCH = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1}


def flops_of(cell: Cell, scale: Scale) -> float:
    """The floating point operations of a cell."""
    return _pretraining_flops(cell, scale) if cell.task is None else _fine_tuning_flops(cell, scale)


def _pretraining_flops(cell: Cell, scale: Scale) -> float:
    config, args = config_of(scale, cell.size, scale.vocab_size), cell.arguments()
    predicted = MASKED if objective_of(vars(args)).masks else 1.0
    flops = 0.0
    for phase in with_steps(phases_of(vars(args)), args.max_steps):
        sequences = (phase.stop - phase.start) * phase.size * phase.accumulation
        tokens = sequences * phase.length
        flops += training_flops(config, tokens, sequences, predicted * tokens)
    return flops


def _fine_tuning_flops(cell: Cell, scale: Scale) -> float:
    """Training, and an evaluation after every epoch."""
    assert cell.task is not None
    config, args = config_of(scale, cell.size, scale.vocab_size), cell.arguments()
    if args.max_steps > 0:
        trained, evaluations = float(args.max_steps * args.per_device_train_batch_size), 1
    else:
        trained, evaluations = cell.task.train_examples * args.num_train_epochs, max(1, int(args.num_train_epochs))
    evaluated = cell.task.validation_examples * evaluations
    features = getattr(args, "feature_based", None)  # only run_ner.py has it
    flops = training_flops(config, trained * args.max_seq_length, trained, 0) * (FORWARD if features else 1)
    flops += training_flops(config, evaluated * args.max_seq_length, evaluated, 0) * FORWARD
    if features or getattr(args, "bilstm_on_top", False) or getattr(args, "label_token", "") == "bilstm":
        layers_read = 4 if features and "concat" in features else 1
        units = args.lstm_size if features else cell.size.hidden
        tokens = args.max_seq_length * (trained / FORWARD + evaluated)
        flops += lstm_flops(layers_read * cell.size.hidden, units) * tokens
    return flops * (args.seeds or 1)


def lstm_flops(features: int, units: int) -> float:
    """The operations of a forward pass of the two-layer BiLSTM for one token.

    Each layer has 4 gates in each of 2 directions, and a product of a matrix with a vector needs 2 operations for each
    element of the matrix.

    Args:
        features: the length of the token's vector.
        units: those of one layer in one direction.
    """
    first, second = features + units, 2 * units + units
    return 2 * 8 * units * (first + second)


def measure_speed(plan: Plan, scale: Scale, timed_run: TimedRun) -> tuple[float, str]:
    """(operations per second, name of the device) of the first network of the plan.

    Args:
        timed_run: trains a few steps as the planner does (``bert_tools.budget.timed_run``).
    """
    size = plan.cells[0].size
    config = config_of(scale, size, scale.vocab_size)
    phases = [_shorten_for_timing(phase, size) for phase in phases_of(NO_BATCH | {"phases": scale.phases})]
    shared = {name: value for name, value in scale.pretraining.items() if name == "mixed_precision"}
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        records, _, facts = timed_run(folder, scale.vocab_size, phases, words_of(shared))
    operations = seconds = 0.0
    for phase in phases:
        tokens = phase.size * phase.length
        own = [record["seconds_per_step"] for record in records if record["max_seq_length"] == phase.length]
        seconds += phase.share * statistics.median_high(own)
        operations += phase.share * training_flops(config, tokens, phase.size, MASKED * tokens)
    return operations / seconds, str(facts["device"])


def _shorten_for_timing(phase: Phase, size: Size) -> Phase:
    """The phase with one forward pass a step, of few sequences if the network is large."""
    sequences = phase.size
    if size.hidden >= LARGE:
        sequences = min(sequences, max(1, TIMED_TOKENS // phase.length))
    return Phase(phase.length, phase.share, sequences, 1)


def costs(plan: Plan, scale: Scale, speed: float) -> dict[str, float]:
    """Name of the cell -> estimated seconds, at a speed in operations per second."""
    return {cell.name: flops_of(cell, scale) / speed for cell in plan.cells}


def dry_run(plan: Plan, folder: Path, seconds: dict[str, float], device: str, jobs: int) -> str:
    """Every run with its command and its cost, and the sums. Finished cells show the time that their training took.

    Args:
        seconds: the estimates that ``costs`` returned.
        device: the name of the device on which the speed was measured.
    """
    lines, remaining, finished = [], 0.0, 0
    for cell in plan.cells:
        if is_finished(folder, cell):
            finished += 1
            cost = f"finished{_training_time(folder / CELLS / cell.name)}"
        else:
            remaining += seconds[cell.name]
            cost = f"about {duration_text(seconds[cell.name])}"
        lines.append(f"{cell.name}: {cost}\n    {shlex.join(['python', cell.script, *cell.command])}")
    lines.append(
        f"\n{len(plan.cells)} runs, {finished} of them finished; {duration_text(remaining)} of training left "
        f"on {device}, about {duration_text(remaining / jobs)} with {jobs} side by side"
    )
    return "\n".join(lines)


def duration_text(seconds: float) -> str:
    """A duration with one decimal place, in the largest fitting unit: "3.2 minutes"."""
    for unit, size in (("years", 31_557_600), ("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} seconds"


def _training_time(cell_folder: Path) -> str:
    """The time that the training of a finished run took, for the line of the dry run; "" if it is not recorded."""
    runtime = (read_results(cell_folder) or {}).get("train_runtime")
    return "" if runtime is None else f", {duration_text(runtime)} of training"
