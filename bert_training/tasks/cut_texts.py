"""Texts that are cut at --max_seq_length: they are counted, said and recorded, and refused if nothing else is left.

A tokenizer cuts in silence; classes and endings would then be learnt, and predicted, from whatever is left.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import BatchEncoding, PreTrainedTokenizerBase

from bert_training.engine.run import Run
from bert_training.inputs.flags.fine_tuning import GlueArguments, SwagArguments
from tokenization.errors import UserError


@dataclass(frozen=True)
class CutTexts:
    """The examples of a split that were cut, and by how much.

    Attributes:
        cut: how many of them.
        examples: how many there are.
        first: the place of the first one; "" if none was cut.
        alike: how many can no longer be told apart: all of them, if all are the same after the cut; in multiple choice,
            those whose choices are.
        tokens: of all examples before the cut, with the special tokens.
        lost: how many of these tokens the model does not see.
        longest: the tokens of the longest input.
        windows, in_several: if texts are read in windows, how many windows there are, and how many examples have more
            than one.
        most_windows: as many as the longest text needs, whether or not they are read.
    """

    cut: int = 0
    examples: int = 0
    first: str = ""
    alike: int = 0
    tokens: int = 0
    lost: int = 0
    longest: int = 0
    windows: int = 0
    in_several: int = 0
    most_windows: int = 0

    def facts(self) -> dict[str, int]:
        """The counts for run.json."""
        facts = {"cut": self.cut, "examples": self.examples, "longest": self.longest}
        facts |= {"tokens": self.tokens, "tokens_lost": self.lost}
        if self.windows:
            facts |= {"windows": self.windows, "in_several_windows": self.in_several}
        return facts


def check_room(max_length: int, tokenizer: PreTrainedTokenizerBase, texts: int) -> None:
    """Raise ValueError unless an input of ``max_length`` tokens holds at least one piece of each of its texts."""
    needed = tokenizer.num_special_tokens_to_add(pair=texts == 2) + texts
    if max_length < needed:
        raise UserError(f"--max_seq_length {max_length} leaves no room for the text; give {needed} or more")


def cut_rows(coded: BatchEncoding, lengths: Sequence[int]) -> list[int]:
    """The numbers of the texts or pairs that were longer, as ``whole_lengths`` says, than what is left of them.

    The library's own ``overflowing`` may be empty or lack the end (tokenizers 0.23.1 and 0.23.2).
    """
    return [row for row, (ids, length) in enumerate(zip(coded["input_ids"], lengths)) if length > len(ids)]


def refuse_alike(split: str, found: CutTexts, limit: str, instead: str = "") -> None:
    """Raise ValueError if the cut has left nothing that a training could learn from.

    Args:
        limit: the flag that says where they are cut, with its value.
        instead: another way to read them, as words of a command.
    """
    if split == "train" and found.cut and found.alike == found.examples > 1:
        raise UserError(
            f"{found.first}: this and other training examples ({found.cut:,} of {found.examples:,}) are longer than "
            f"{limit} and were cut, after which nothing that differs is left to learn from; raise "
            f"{limit.split()[0]}{f', give {instead}' if instead else ''}, or shorten or split the texts"
        )


def count_alike(rows: Sequence[Sequence[Any]]) -> int:
    """The number of rows if all are the same, otherwise 0."""
    return len(rows) if all(row == rows[0] for row in rows) else 0


def whole_lengths(
    coded: BatchEncoding, tokenizer: PreTrainedTokenizerBase, columns: Iterable[Sequence[str]], max_length: int
) -> list[int]:
    """The number of tokens that every text or pair of an encoded batch had before it was cut.

    Args:
        columns: what was encoded: the texts or, for pairs, the first and the second texts.
        max_length: where they were cut.
    """
    lengths = [len(ids) for ids in coded["input_ids"]]
    rows = [row for row, length in enumerate(lengths) if length == max_length]
    if rows:
        whole = encode_whole(tokenizer, [[column[row] for row in rows] for column in columns])
        for row, ids in zip(rows, whole["input_ids"]):
            lengths[row] = len(ids)
    return lengths


def encode_whole(tokenizer: PreTrainedTokenizerBase, columns: Iterable[Sequence[str]]) -> BatchEncoding:
    """The texts or pairs without a cut, whatever their length."""
    options: dict[str, Any] = {
        "split_special_tokens": True,
        "return_token_type_ids": True,
        "return_attention_mask": False,
    }
    return tokenizer(*map(list, columns), truncation=False, verbose=False, **options)


def summarise_cut(
    rows: Sequence[int], examples: int, where: Callable[[int], str], alike: int, **counts: int
) -> CutTexts:
    """What is said of a split whose examples with these numbers were cut; for the counts see ``CutTexts``."""
    return CutTexts(len(rows), examples, where(rows[0]) if rows else "", alike, **counts)


def report_cut(
    run: Run[GlueArguments] | Run[SwagArguments],
    splits: Mapping[str, CutTexts],
    positions: int,
    instead: str = "",
) -> None:
    """Print how long the inputs are and a line for every split in which something was cut; record the counts of all.

    Args:
        positions: the longest input that the network can read.
        instead: as in ``refuse_alike``.
    """
    length = run.args.max_seq_length
    run.add_facts(cut_at_max_seq_length={split: part.facts() for split, part in splits.items()})
    longest = ", ".join(f"{split} {part.longest:,}" for split, part in splits.items())
    none = "" if any(part.cut or part.in_several for part in splits.values()) else "; nothing is cut"
    run.say(f"longest inputs in tokens: {longest} (--max_seq_length {length}){none}")
    for split, part in splits.items():
        if part.windows:
            run.say(
                f"{split}: {part.in_several:,} of {part.examples:,} examples are read in several windows; there are "
                f"{part.windows:,} windows in all"
            )
        if part.cut:
            alike = f", after which {part.alike:,} cannot be told apart" if part.alike else ""
            share = 100 * part.cut / part.examples
            lost = f"{part.lost:,} of {part.tokens:,} tokens ({100 * part.lost / part.tokens:.1f} %) are not read"
            run.say(
                f"warning: {split}: {part.cut:,} of {part.examples:,} examples ({share:.1f} %) "
                f"{_what_was_done(run.args)}, the first: {part.first}{alike}; {lost}; "
                f"{_remedy(run.args, positions, part, instead)}"
            )


def _what_was_done(args: GlueArguments | SwagArguments) -> str:
    how = getattr(args, "long_texts", "cut")
    if isinstance(args, GlueArguments) and how == "windows":
        return f"need more than --max_windows {args.max_windows} and were cut"
    middle = " in their middle" if how == "head_tail" else ""
    return f"are longer than --max_seq_length {args.max_seq_length} and were cut{middle}"


def _remedy(args: GlueArguments | SwagArguments, positions: int, part: CutTexts, instead: str) -> str:
    if isinstance(args, GlueArguments) and args.long_texts == "windows":
        return (
            f"--max_windows {part.most_windows} reads all of them, and needs the memory for so many windows of a text"
        )
    ways = f"{f'give {instead}, or ' if instead else ''}split the texts"
    if args.max_seq_length < positions:
        return f"give --max_seq_length up to {positions}, the model's maximum, or {ways}"
    return f"the model reads no more, so {ways}"
