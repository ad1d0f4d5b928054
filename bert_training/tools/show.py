"""Print the instances of an optimiser step as the network saw them.

    bert-repro show DIR --step N

DIR is an output folder of run_pretraining.py. The flags, phases and processes are read from its run.json, the token ids
from DIR/corpus. With a mixture, each instance is shown with the file that it comes from.
"""

import argparse
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from bert_training.engine.batches import IGNORED
from bert_training.inputs.flags.objectives import PairTask
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.phases import phase_at, phases_of, with_steps
from bert_training.pretraining.mixture import MixedInstances, phase_streams
from bert_training.tools.audit import add_run_arguments, open_run, read_pretraining_facts
from tokenization.errors import UserError

Column = tuple[str, str, str]  # a token, its type id, its label
INSTANCE_ROWS = ("input_ids", "token_type_ids", "labels")  # the lines of a drawn instance


def instance_text(
    tokenizer: PreTrainedTokenizerBase, instance: dict[str, Any], pairs: PairTask | None, width: int = 110
) -> str:
    """One row of a batch as text of at most `width` characters per line: columns of token, type id and label.

    A label is the token to predict; `.` means that the position is excluded from the loss. Padding is not shown.

    Args:
        instance: the row, by the names of the batch.
        pairs: the task of its two segments; None if it has one.
    """
    length = int(instance["attention_mask"].sum())
    ids, types, labels = (instance[name][:length].tolist() for name in INSTANCE_ROWS)
    targets = ["." if label == IGNORED else str(tokenizer.convert_ids_to_tokens(label)) for label in labels]
    columns = list(zip(tokenizer.convert_ids_to_tokens(ids), map(str, types), targets, strict=True))
    margin = max(map(len, INSTANCE_ROWS)) + 2
    lines = []
    for block in _blocks(columns, width - margin):
        for number, name in enumerate(INSTANCE_ROWS):
            cells = "".join(column[number].ljust(_width(column)) for column in block)
            lines.append((name.ljust(margin) + cells).rstrip())
        lines.append("")
    if pairs:
        label = int(instance["next_sentence_label"])
        lines[-1] = f"next_sentence_label  {label} ({pairs.classes[label]})"
    return "\n".join(lines).rstrip()


def _blocks(columns: list[Column], width: int) -> list[list[Column]]:
    """The columns, cut into blocks of at most `width` characters; a column that is wider has its own block."""
    blocks: list[list[Column]] = []
    used = 0
    for column in columns:
        if not blocks or used + _width(column) > width:
            blocks.append([])
            used = 0
        blocks[-1].append(column)
        used += _width(column)
    return blocks


def _width(column: Column) -> int:
    """The characters that a column takes, with a space behind it."""
    return max(map(len, column)) + 1


def step_positions(step: int, rank: int | None, world: int, size: int, accumulation: int) -> list[tuple[int, int, int]]:
    """(micro-batch, rank, position) of every instance in an optimiser step.

    Args:
        step: the step, counted from 1 in its phase.
        rank: the process whose instances are listed, counted from 0; None lists those of all processes.
        world: the number of processes.
        size: instances per forward pass and process.
        accumulation: forward passes per optimiser step.
    """
    positions = []
    for micro_batch in range(accumulation):
        for process in range(world) if rank is None else [rank]:
            start = (((step - 1) * accumulation + micro_batch) * world + process) * size
            positions += [(micro_batch, process, position) for position in range(start, start + size)]
    return positions


def _print_step(arguments: argparse.Namespace) -> None:
    facts = read_pretraining_facts(arguments.folder)
    flags, world, total = facts["flags"], facts["processes"], facts["total_steps"]
    flags["seed"] = flags["seed"] if arguments.seed is None else arguments.seed
    if not 1 <= arguments.step <= total:
        raise UserError(f"--step is {arguments.step}; the run has optimiser steps 1 to {total}")
    if arguments.rank is not None and not 0 <= arguments.rank < world:
        raise UserError(f"--rank is {arguments.rank}; the run has {world} processes, counted from 0")
    phases = with_steps(phases_of(flags), total)
    number = phases.index(phase_at(phases, arguments.step))
    phase, train, tokenizer = phases[number], *open_run(arguments.folder, flags)
    stream = phase_streams(phases, train, world)[number]
    step = arguments.step - phase.start
    positions = step_positions(step, arguments.rank, world, phase.size, phase.accumulation)
    for micro_batch, rank, position in positions[: arguments.limit]:
        instances, own, source = train[phase.length][0], position, ""
        if isinstance(stream, MixedInstances):
            (file,), (own,) = (part.tolist() for part in stream.places(position, position + 1))
            instances, source = stream.sources[file], f" of {Path(flags['train_file'][file]).name}"
        epoch, index = instances.locate(own)
        row = {name: tensor[0] for name, tensor in stream.batch(position, position + 1).items()}
        where = f"position {position:,} of length {phase.length} = epoch {epoch}, instance {index:,}{source}"
        print(f"--- step {arguments.step}, rank {rank}, micro-batch {micro_batch}: {where}")
        print(instance_text(tokenizer, row, instances.settings.pairs) + "\n")
    if len(positions) > arguments.limit:
        print(f"({len(positions) - arguments.limit:,} more; --limit shows them)")


def main(argv: list[str] | None = None) -> None:
    """Print the instances; a mistake of the user's ends the command with status 2 and one line on stderr."""
    parser = command_parser("show", __doc__)
    add_run_arguments(parser)
    parser.add_argument("--step", type=int, required=True, help="the optimiser step, counted from 1")
    parser.add_argument("--rank", type=int, help="print only the instances of this process, counted from 0")
    parser.add_argument("--limit", type=int, default=16, help="the largest number of instances to print (16)")
    _print_step(parser.parse_args(argv))
