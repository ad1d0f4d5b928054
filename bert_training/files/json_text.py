"""JSON of unknown origin: whatever is wrong with a text, the error is a ``json.JSONDecodeError``.

``json.loads`` alone raises RecursionError for thousands of nested brackets and a bare ValueError for a number of
thousands of digits, which callers forget. Of two fields with one name it silently keeps the last, so that an edited
file could lose half of its rows.
"""

import contextlib
import json
import json.scanner
from collections import Counter
from typing import Any

from tokenization.errors import UserError


class _Doubled(ValueError):
    """A field occurs twice in one object; ``start`` is the place of the object's brace, if it is known."""

    start: int | None = None


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        doubled = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise _Doubled(f"the field {doubled[:40]!r} occurs twice in one object")
    return fields


def _constant(name: str) -> Any:
    raise UserError(f"{name} is no number of JSON")


# json.loads would make a decoder for every text, which takes as long as decoding a line.
_DECODER = json.JSONDecoder(object_pairs_hook=_fields)
_STRICT = json.JSONDecoder(object_pairs_hook=_fields, parse_constant=_constant)


def parse_json(text: str, strict: bool = False) -> Any:
    """The content of a text of JSON.

    Args:
        strict: refuse NaN and Infinity, which Python writes although they are no JSON.

    Raises:
        json.JSONDecodeError: it is not JSON, is nested too deeply, has a number that is too long, or an object has two
            fields with one name.
    """
    try:
        return (_STRICT if strict else _DECODER).decode(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise json.JSONDecodeError("it is nested too deeply", text, 0) from None
    except _Doubled as error:
        raise json.JSONDecodeError(str(error), text, _place_of_doubled(text)) from None
    except ValueError as error:  # of int(), or of _constant
        raise json.JSONDecodeError(str(error).partition(";")[0], text, 0) from None


def _place_of_doubled(text: str) -> int:
    """Where the object begins that has a field twice. Only json's slower decoder knows the places."""
    decoder: Any = json.JSONDecoder(object_pairs_hook=_fields)
    scanner: Any = json.scanner  # The types of Python's library do not know its slower function.
    parse_object, place = decoder.parse_object, 0

    def with_place(text_and_place: tuple[str, int], *options: Any) -> Any:
        nonlocal place
        try:
            return parse_object(text_and_place, *options)
        except _Doubled as error:
            if error.start is None:
                error.start = place = text_and_place[1] - 1
            raise

    decoder.parse_object = with_place
    decoder.scan_once = scanner.py_make_scanner(decoder)
    with contextlib.suppress(ValueError, RecursionError):
        decoder.decode(text)
    return place
