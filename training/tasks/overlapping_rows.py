"""Rows of a text that is longer than the model: every part of it is read with as much around it as fits."""

from collections.abc import Iterable


def rows_around(parts: Iterable[tuple[int, int]], num_tokens: int, room: int) -> dict[int, list[int]]:
    """The stretch of ``room`` tokens around each part of a text, as even on both sides as the text's ends allow.

    Parts with the same stretch share it: a text of up to ``room`` tokens is one row, whatever its parts are.

        text     t0 t1 t2 t3 t4 t5 t6 t7 t8 t9     parts (0, 2) (2, 6) (6, 10), room 6
        part 0   t0 t1 .. .. .. ..                 -> row 0: t0 ... t5
        part 1      .. t2 t3 t4 t5 ..              -> row 1: t1 ... t6
        part 2               .. .. t6 t7 t8 t9     -> row 2: t4 ... t9

    Args:
        parts: (first, beyond last) token of each, of 1 to ``room`` tokens, in the order of the text.

    Returns:
        first token of a stretch -> numbers of its parts; the stretch ends ``room`` tokens later, or with the text.
    """
    rows: dict[int, list[int]] = {}
    for number, (begin, end) in enumerate(parts):
        first = begin - (room - (end - begin)) // 2
        rows.setdefault(max(0, min(first, num_tokens - room)), []).append(number)
    return rows
