"""Texts that are longer than the model allows: cut at --max_seq_length, or read in overlapping rows (``rows_around``).

Texts that are cut are counted, said and recorded.

A tokenizer cuts in silence; classes and endings would then be learnt, and predicted, from whatever is left.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import BatchEncoding, PreTrainedTokenizerBase

from bert_training.engine.run import Run
from tokenization.errors import UserError

ROWS = ("input_ids", "token_type_ids")


@dataclass(frozen=True)
class CutTexts:
    """The examples of a split that were cut, and by how much.

    Attributes:
        cut: how many of them.
        examples: how many there are.
        first: the place of the first one; "" if none was cut.
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


def check_room(max_length: int, tokenizer: PreTrainedTokenizerBase, texts: int, least: int = 1) -> None:
    """Raise UserError unless an input of ``max_length`` tokens holds at least so many pieces of each of its texts."""
    needed = tokenizer.num_special_tokens_to_add(pair=texts == 2) + least * texts
    if max_length < needed:
        ends = " for the beginning and the end of" if least > 1 else " for"
        raise UserError(f"--max_seq_length {max_length} leaves no room{ends} the text; give {needed} or more")


def encode_cut(
    tokenizer: PreTrainedTokenizerBase,
    columns: Iterable[Sequence[str]],
    max_length: int,
    head_of: Callable[[int], int] | None = None,
) -> tuple[dict[str, list[list[int]]], list[int]]:
    """``ROWS`` of texts or pairs of at most ``max_length`` tokens, and how many each had before it was cut.

    The ids are those of the tokenizer's truncation="longest_first". Of a pair, that builds every combination of what it
    cuts off, so that two long texts would take memory with the product of their lengths.

    Args:
        columns: the texts or, for pairs, the first and the second texts.
        head_of: how many of the tokens that are left of a text are its first ones, the others being its last ones.
            Default: all, or none for a tokenizer that cuts on the left.
    """
    whole = encode_whole(tokenizer, columns)
    rows = {name: list(whole[name]) for name in ROWS}
    lengths = [len(ids) for ids in whole["input_ids"]]
    for row, length in enumerate(lengths):
        if length > max_length:
            head = head_of or (int if tokenizer.truncation_side == "right" else lambda count: 0)
            kept = _kept_places(whole.sequence_ids(row), max_length, head)
            for name in ROWS:
                rows[name][row] = [whole[name][row][place] for place in kept]
    return rows, lengths


def _kept_places(texts: Sequence[int | None], max_length: int, head_of: Callable[[int], int]) -> list[int]:
    """The places in a row, of whose tokens ``texts`` says to which text they belong, that are left after the cut."""
    kept = [place for place, text in enumerate(texts) if text is None]
    first, second = ([place for place, text in enumerate(texts) if text == number] for number in (0, 1))
    room = max(0, max_length - len(kept))
    # Both keep half of the room, unless the shorter one needs less; of an odd room, the longer one has the larger half.
    shorter = min(len(first), len(second), room // 2)
    counts = (shorter, room - shorter) if len(first) <= len(second) else (room - shorter, shorter)
    for places, count in zip((first, second), counts):
        head = head_of(count)
        kept += places[:head] + places[len(places) - (count - head) :]
    return sorted(kept)


def encode_whole(tokenizer: PreTrainedTokenizerBase, columns: Iterable[Sequence[str]]) -> BatchEncoding:
    """The texts or pairs without a cut, whatever their length."""
    options: dict[str, Any] = {
        "split_special_tokens": True,
        "return_token_type_ids": True,
        "return_attention_mask": False,
    }
    return tokenizer(*map(list, columns), truncation=False, verbose=False, **options)


def report_cut(run: Run[Any], splits: Mapping[str, CutTexts], limit: str, remedies: Sequence[str]) -> None:
    """Print how long the inputs are, and a line for every split in which some were cut; record the counts.

    Args:
        limit: the flag beyond which a text is cut, with its value.
        remedies: what the user can do.
    """
    run.add_facts(cut_at_max_seq_length={split: part.facts() for split, part in splits.items()})
    longest = ", ".join(f"{split} {part.longest:,}" for split, part in splits.items())
    run.say(f"longest inputs in tokens: {longest} (--max_seq_length {run.args.max_seq_length})")
    for split, part in splits.items():
        if part.windows:
            run.say(
                f"{split}: {part.in_several:,} of {part.examples:,} examples are read in several windows; there are "
                f"{part.windows:,} windows in all"
            )
        if part.cut:
            share, lost = 100 * part.cut / part.examples, 100 * part.lost / part.tokens
            most = f"; --long_texts windows:{part.most_windows} reads all" if part.windows else ""
            run.say(
                f"warning: {split}: {part.cut:,} of {part.examples:,} examples ({share:.1f} %) "
                f"are longer than {limit} and were cut, the first: {part.first}; {part.lost:,} of {part.tokens:,} "
                f"tokens ({lost:.1f} %) are not read; {', or '.join(remedies)}{most}"
            )


def longer_inputs(max_seq_length: int, positions: int) -> list[str]:
    """The remedy for inputs that are cut, if the network has more positions."""
    return [f"give --max_seq_length up to {positions}"] if max_seq_length < positions else []


def rows_around(parts: Iterable[tuple[int, int]], num_tokens: int, room: int) -> dict[int, list[int]]:
    """For the parts of a text, the stretches of ``room`` tokens around them.

    The part is in the middle of its stretch, unless the stretch would reach beyond an end of the text. Parts with the
    same stretch share a row: a text of up to ``room`` tokens is one row, whatever its parts are.

        text     t0 t1 t2 t3 t4 t5 t6 t7 t8 t9     parts (0, 2) (2, 6) (6, 10), room 6
        part 0   t0 t1 .. .. .. ..                 -> row 0: t0 ... t5
        part 1      .. t2 t3 t4 t5 ..              -> row 1: t1 ... t6
        part 2               .. .. t6 t7 t8 t9     -> row 2: t4 ... t9

    Args:
        parts: the first token of each part and the one after its last, in the order of the text. A part has 1 to
            ``room`` tokens.

    Returns:
        For the first token of each stretch, the numbers of its parts. A stretch ends after ``room`` tokens or at the
        end of the text.
    """
    rows: dict[int, list[int]] = {}
    for number, (begin, end) in enumerate(parts):
        first = begin - (room - (end - begin)) // 2
        rows.setdefault(max(0, min(first, num_tokens - room)), []).append(number)
    return rows
