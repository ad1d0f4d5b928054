"""Texts that are cut at --max_seq_length: they are counted, said and recorded, and refused if nothing else is left.

A tokenizer cuts in silence; classes and endings would then be learnt, and predicted, from whatever is left.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transformers import BatchEncoding, PreTrainedTokenizerBase

from bert_training.engine.run import Run
from bert_training.flags.fine_tuning import GlueArguments, SwagArguments
from tokenization.errors import UserError


@dataclass(frozen=True)
class CutTexts:
    """The examples of a split that were cut.

    Attributes:
        cut: how many of them.
        examples: how many there are.
        first: the place of the first one; "" if none was cut.
        alike: how many can no longer be told apart: all of them, if all are the same after the cut; in multiple choice,
            those whose choices are.
    """

    cut: int = 0
    examples: int = 0
    first: str = ""
    alike: int = 0

    def facts(self) -> dict[str, int]:
        """The counts for run.json."""
        return {"cut": self.cut, "examples": self.examples}


def check_room(max_length: int, tokenizer: PreTrainedTokenizerBase, texts: int) -> None:
    """Raise ValueError unless an input of ``max_length`` tokens holds at least one piece of each of its texts."""
    needed = tokenizer.num_special_tokens_to_add(pair=texts == 2) + texts
    if max_length < needed:
        raise UserError(f"--max_seq_length {max_length} leaves no room for the text; give {needed} or more")


def cut_rows(coded: BatchEncoding, start: int = 0) -> list[int]:
    """The numbers, counted from ``start``, of the texts or pairs from which the tokenizer has cut something."""
    return [start + number for number, one in enumerate(coded.encodings or ()) if one.overflowing]


def refuse_alike(split: str, found: CutTexts, max_length: int) -> None:
    """Raise ValueError if the cut has left nothing that a training could learn from."""
    if split == "train" and found.cut and found.alike == found.examples > 1:
        raise UserError(
            f"{found.first}: this and other training examples ({found.cut:,} of {found.examples:,}) are longer than "
            f"--max_seq_length {max_length} and were cut, after which nothing that differs is left to learn from; "
            "raise --max_seq_length, or shorten or split the texts"
        )


def count_alike(rows: Sequence[Sequence[int]]) -> int:
    """The number of rows if all are the same, otherwise 0."""
    return len(rows) if all(row == rows[0] for row in rows) else 0


def summarise_cut(rows: Sequence[int], examples: int, where: Callable[[int], str], alike: int) -> CutTexts:
    """What is said of a split whose examples with these numbers were cut."""
    return CutTexts(len(rows), examples, where(rows[0]) if rows else "", alike)


def report_cut(run: Run[GlueArguments] | Run[SwagArguments], splits: Mapping[str, CutTexts], positions: int) -> None:
    """Print one line for every split in which something was cut, and record the counts of all.

    Args:
        positions: the longest input that the network can read.
    """
    length = run.args.max_seq_length
    run.add_facts(cut_at_max_seq_length={split: part.facts() for split, part in splits.items()})
    remedy = "the model reads no more, so split the texts"
    if length < positions:
        remedy = f"give --max_seq_length up to {positions}, the model's maximum, or split the texts"
    for split, part in splits.items():
        if part.cut:
            alike = f", after which {part.alike:,} cannot be told apart" if part.alike else ""
            share = 100 * part.cut / part.examples
            run.say(
                f"warning: {split}: {part.cut:,} of {part.examples:,} examples ({share:.1f} %) are longer than "
                f"--max_seq_length {length} and were cut, the first: {part.first}{alike}; {remedy}"
            )
