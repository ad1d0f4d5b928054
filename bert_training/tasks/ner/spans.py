"""Texts with spans of characters, as tools for annotation export them, and the tags of their words.

    {"text": "Ada slept in London.", "label": [[0, 3, "PER"], [13, 19, "LOC"]]}

    Ada    slept  in  London  .
    B-PER  O      O   B-LOC   O

A span is [start, end, label] (doccano), or an object with these fields (Prodigy, Argilla, JSON_MIN of Label Studio). In
the JSON of Label Studio, a row is a task. Characters are counted as Python does, from 0, and end is one after the last.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tokenization.errors import UserError

TEXT, SPANS = ("text",), ("label", "labels", "spans", "entities")
STARTS, ENDS, LABELS = ("start", "start_offset"), ("end", "end_offset"), ("label", "labels")


class Span(NamedTuple):
    """A span: its first character, the one after its last, and its label."""

    start: int
    end: int
    label: str


def text_of_task(task: Mapping[str, str | None], column: str, place: str) -> tuple[str, str | None]:
    """The text of a task of Label Studio, and its spans as JSON; None if nobody has annotated it.

    Args:
        task: "data" and "annotations", as JSON.
        column: the name of the text in the data.

    Raises:
        UserError: it has no such text, or several annotations.
    """
    data = json.loads(task["data"] or "{}")
    if not isinstance(data, dict) or not isinstance(data.get(column), str):
        raise UserError(f"{place}: expected a text as {column!r} in 'data', got {str(data)[:80]}; name it with "
                        "--text_column")  # fmt: skip
    annotations = [one for one in json.loads(task.get("annotations") or "[]") if not one.get("was_cancelled")]
    results = [[one["value"] for one in part["result"] if "labels" in one.get("value", {})] for part in annotations]
    return data[column], json.dumps(_of_one_annotator(results, place)) if results else None


def _of_one_annotator(found: Sequence[Any], place: str) -> Any:
    if len(found) > 1:
        raise UserError(f"{place}: expected the spans of one annotator, got those of {len(found)}; export one of them")
    return found[0]


def spans_of_cell(cell: str, text: str, place: str) -> list[Span]:
    """The spans of a text, in its order, each once.

    Raises:
        UserError: with the place, for what is no span of this text.
    """
    found = json.loads(cell)
    if isinstance(found, dict) and {*map(type, found.values())} == {list}:  # how datasets shows a Sequence of objects
        found = [dict(zip(found, one)) for one in zip(*found.values())]
    if isinstance(found, list) and found and all(isinstance(one, list) and not _is_triple(one) for one in found):
        found = _of_one_annotator(found, place)  # responses in Argilla, a list for each
    spans = {_span(one, text, place) for one in (found if isinstance(found, list) else [found])}
    return sorted(spans)


def _is_triple(found: Sequence[Any]) -> bool:
    return len(found) == 3 and [*map(type, found)] == [int, int, str]


def _span(found: Any, text: str, place: str) -> Span:
    given: Any = found
    if isinstance(found, dict):
        given = [next((found[name] for name in names if name in found), None) for names in (STARTS, ENDS, LABELS)]
        if isinstance(given[2], list) and len(given[2]) == 1:
            given[2] = given[2][0]
    is_span = isinstance(given, list) and _is_triple(given) and given[2].strip() == given[2] != ""
    if not is_span or not 0 <= given[0] < given[1] <= len(text):
        raise UserError(
            f"{place}: expected a span [start, end, label], or an object with these fields, within the {len(text):,} "
            f"characters of the text and with no space around its label, got {json.dumps(found)[:80]}; correct it"
        )
    span, said = Span(*given), found.get("text") if isinstance(found, dict) else None
    # Label Studio counts characters such as emoji as two: https://github.com/HumanSignal/label-studio/issues/1347
    if isinstance(said, str) and _letters(said) != _letters(text[span.start : span.end]):
        raise UserError(
            f"{place}: expected the text {said!r:.60} at {span.start} to {span.end}, got "
            f"{text[span.start : span.end]!r:.60}; count characters as Python does (an emoji is one)"
        )
    return span


def _letters(text: str) -> str:
    """What is left of a text without white space, which tools write in their own ways."""
    return "".join(text.replace("\\n", " ").split())


class Tagged(NamedTuple):
    """The tags of a text's words.

    Attributes:
        overlap: the first two spans that have a character in common, if there are such.
        cut: the numbers of the words within which a span begins or ends; they belong to it as a whole.
        lost: the spans that have no word of their own.
    """

    tags: list[str]
    overlap: tuple[Span, Span] | None
    cut: list[int]
    lost: list[Span]


def tags_of_words(places: Sequence[tuple[int, int]], spans: Sequence[Span]) -> Tagged:
    """The tags, in BIO, of words at these places of a text; of two spans in one word, it belongs to the first."""
    tags, cut, lost = ["O"] * len(places), list[int](), list[Span]()
    starts, ends = [start for start, _ in places], [end for _, end in places]
    for span in spans:
        inside = range(bisect_right(ends, span.start), bisect_left(starts, span.end))
        cut += [n for n in inside if places[n][0] < span.start or span.end < places[n][1]]
        own = [number for number in inside if tags[number] == "O"]
        lost += [] if own else [span]
        for number in own:
            tags[number] = f"{'B' if number == own[0] else 'I'}-{span.label}"
    overlap = next(((one, other) for one, other in pairwise(spans) if other.start < one.end), None)
    return Tagged(tags, overlap, [*dict.fromkeys(cut)], lost)
