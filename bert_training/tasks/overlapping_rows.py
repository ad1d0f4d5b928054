"""Overlapping rows for texts that are longer than the model allows: every part has as much context as fits."""

from collections.abc import Iterable


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
