"""Texts that are longer than the model allows: cut at --max_seq_length, or read in overlapping rows (``rows_around``).

Texts that are cut are counted, said and recorded.

A tokenizer cuts in silence; classes and endings would then be learnt, and predicted, from whatever is left.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from bert_training.engine.run import Run
from tokenization.bert_tokenizer import TextEncoder
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


class Frame(NamedTuple):
    """The special tokens of a row with one or two texts, as in [CLS] text [SEP] text [SEP].

    Attributes:
        around: the ids before the first text, between two texts, and after the last one.
        types: the type ids of a row whose texts have one piece each.
        places: where these pieces are.
    """

    around: list[np.ndarray]
    types: np.ndarray
    places: list[int]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, texts: int) -> "Frame":
        """That of so many texts, as the tokenizer frames a letter for each."""
        letters = tokenizer(*["a"] * texts, return_token_type_ids=True)
        sides = letters.sequence_ids(0)
        kept = [place for place, side in enumerate(sides) if side is None or sides.index(side) == place]
        ids, types = (np.array(letters[name])[kept] for name in ROWS)
        places = [kept.index(sides.index(text)) for text in range(texts)]
        bounds = [-1, *places, len(kept)]
        around = [ids[last + 1 : place].astype(np.int32) for last, place in pairwise(bounds)]
        return cls(around, types.astype(np.int8), places)

    @property
    def size(self) -> int:
        """The number of special tokens."""
        return sum(map(len, self.around))

    def row(self, parts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """``ROWS`` of the pieces of one or two texts, int32 and int8."""
        counts = [1] * len(self.types)
        for place, part in zip(self.places, parts):
            counts[place] = len(part)
        ids = np.concatenate([self.around[0], *chain(*zip(parts, self.around[1:]))])
        return dict(zip(ROWS, (ids, self.types.repeat(counts))))


def encode_cut(
    encoder: TextEncoder,
    columns: Sequence[Sequence[str]],
    max_length: int,
    head_of: Callable[[int], int] | None = None,
) -> tuple[dict[str, list[np.ndarray]], list[int]]:
    """``ROWS`` of texts or pairs of at most ``max_length`` tokens, and how many each had before it was cut.

    The ids are those of the tokenizer's truncation="longest_first". Of a pair, that builds every combination of what it
    cuts off, so that two long texts would take memory with the product of their lengths.

    Args:
        columns: the texts or, for pairs, the first and the second texts.
        head_of: how many of the tokens that are left of a text are its first ones, the others being its last ones.
            Default: all, or none for a tokenizer that cuts on the left.
    """
    frame = Frame.of(encoder.tokenizer, len(columns))
    head_of = head_of or (int if encoder.tokenizer.truncation_side == "right" else lambda count: 0)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ROWS}
    lengths = []
    for parts in zip(*map(encoder, columns)):
        lengths.append(frame.size + sum(map(len, parts)))
        if lengths[-1] > max_length:
            parts = _cut(parts, max(0, max_length - frame.size), head_of)
        for name, row in frame.row(parts).items():
            rows[name].append(row)
    return rows, lengths


def _cut(parts: Sequence[np.ndarray], room: int, head_of: Callable[[int], int]) -> list[np.ndarray]:
    """What is left of the pieces of one or two texts.

    Both keep half of the room, unless the shorter one needs less; of an odd room, the longer one has the larger half.
    """
    first, second = (*map(len, parts), 0)[:2]
    shorter = min(first, second, room // 2)
    counts = (shorter, room - shorter) if first <= second else (room - shorter, shorter)
    return [
        np.concatenate([part[: head_of(count)], part[len(part) - (count - head_of(count)) :]])
        for part, count in zip(parts, counts)
    ]


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
