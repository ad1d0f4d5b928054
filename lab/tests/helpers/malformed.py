"""Read a malformed file as the scripts do, and judge what becomes of it.

Beside the reader stands an oracle, a second reader that knows nothing of ours, takes the format literally and raises
``Invalid`` wherever the format is violated. A file that the oracle refuses must be refused, in one line that names the
file and the place of the fault; one that it reads must give the same rows. Anything else fails: another exception, a
row more or less, a text that differs, more than ten seconds, or more memory than a small file needs.
"""

import contextlib
import json
import re
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bert_training.engine.errors import is_for_the_user

SECONDS = 10
MEMORY = 1 << 30  # bytes of addresses that reading may add; the files have at most some megabytes
REFUSED, REFUSED_WHOLE = "refused with file and place", "refused as a whole, with file and reason"
ACCEPTED = "accepted, rows equal the oracle's"
PLACE = (
    r"(:\d+\b|[:,] (row|line) \d+\b|Row #\d+|In CSV col|, question '"
    r"|, question \d+\b|, article \d+\b|\$[.\[]| at byte \d)"
)


class Invalid(Exception):
    """What an oracle raises for a file that violates its format."""


class Hang(BaseException):
    """Raised when a reader has taken SECONDS."""


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Raise Hang after SECONDS, and refuse more than MEMORY to this process."""

    def ring(*_: Any) -> None:
        raise Hang(f"not read in {SECONDS} s")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    old, earlier = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, ring)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, old[1]))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
        resource.setrlimit(resource.RLIMIT_AS, old)


def judged(
    read: Callable[[], Any],
    oracle: Callable[[], Any],
    name: str,
    whole: str = "",
    both: bool = True,
) -> str:
    """What became of the file, as the outcome of a fault.

    Args:
        read: reads the file with the project's reader, and returns its rows in the form of the oracle's.
        oracle: the rows of the file; raises Invalid, or what a library raises, if it is malformed.
        name: the name of the file, which the error must contain.
        whole: a pattern of those reasons that concern the file as a whole and therefore name no place.
        both: whether the oracle has all rules of the reader, so that a file which it reads must not be refused.
    """
    try:
        with limits():
            rows = read()
    except Exception as error:
        text = str(error)
        told = "".join(traceback.format_exception(error))[-3000:]
        assert is_for_the_user(error), told
        assert is_one_line(text), f"not one line of printable text: {text!r}"
        assert name in text, f"{name} is not named: {text}"
        assert not (both and is_read_by(oracle)), f"refused, although the format allows it: {text}"
        if re.search(re.escape(name) + ".{0,200}?" + PLACE, text):
            return REFUSED
        assert whole and re.search(whole, text), f"no place is named: {text}"
        return REFUSED_WHOLE
    try:
        expected = oracle()
    except Exception as error:
        raise AssertionError(f"accepted {rows!r:.1500}, although: {type(error).__name__}: {error}") from error
    assert repr(rows) == repr(expected), difference(rows, expected)
    return ACCEPTED


def is_read_by(oracle: Callable[[], Any]) -> bool:
    """Whether the oracle finds the file valid."""
    try:
        oracle()
    except Exception:
        return False
    return True


def is_one_line(text: str) -> bool:
    """Whether an error is one line, of a length that a terminal can show."""
    return bool(text.strip()) and len(text.splitlines()) == 1 and len(text) < 2000


def difference(rows: Any, expected: Any) -> str:
    """Where two lists of rows differ first."""
    if isinstance(rows, list) and isinstance(expected, list):
        for number, (one, other) in enumerate(zip(rows, expected)):
            if repr(one) != repr(other):
                return f"row {number} is {one!r:.600}, the oracle has {other!r:.600}"
        return f"{len(rows)} rows, the oracle has {len(expected)}"
    return f"{rows!r:.800} is not {expected!r:.800}"


# --- what the formats say ---------------------------------------------------------------------------------------------


def text_lines(content: bytes, may_be_one_line: bool = False) -> list[str]:
    """The lines of a text in UTF-8. They end at a line feed; a carriage return before it belongs to the end.

    Args:
        may_be_one_line: whether a file in which all lines end in a carriage return alone is one line, and no mistake.
    """
    text = content.decode("utf-8-sig")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    require("\0" not in text, "NUL")
    one = len(lines) == 1 and "\r" in lines[0].rstrip("\r")
    require(may_be_one_line or not one, "lines that end in \\r alone")
    return [line.removesuffix("\r") for line in lines]


def parsed(text: str) -> Any:
    """The content of a text of JSON, taken strictly: no field twice, no NaN, no half of a surrogate pair."""

    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        require(len({name for name, _ in pairs}) == len(pairs), "a field twice")
        return dict(pairs)

    def constant(name: str) -> Any:
        raise Invalid(name)

    return json.loads(text, object_pairs_hook=fields, parse_constant=constant)


def require(condition: object, reason: str = "") -> None:
    """Raise Invalid unless the condition holds."""
    if not condition:
        raise Invalid(reason)
