"""The findings of a check of a finished folder: one line for each claim, with a verdict and the reason for it.

A folder of unknown origin may name, and be made of, anything: what is read here are ordinary files of limited size.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tokenization.errors import UserError

VERIFIED, DIFFERS, ADDED, UNKNOWN = "verified", "differs", "not in the record", "not recomputed"
VERDICTS = (VERIFIED, DIFFERS, ADDED, UNKNOWN)
# What reading a file of unknown origin may raise, because it is malformed or says something unexpected.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError, OSError, ArithmeticError,
             RecursionError)  # fmt: skip


class Finding(NamedTuple):
    """A claim, the verdict on it (one of VERDICTS), and the reason."""

    verdict: str
    claim: str
    reason: str

    def line(self) -> str:
        """The finding as a line of text, without characters that a terminal would obey."""
        text = f"{self.verdict:<{max(map(len, VERDICTS))}}  {self.claim}: {self.reason}".removesuffix(": ")
        return "".join(character if character.isprintable() else "?" for character in text)


def verified(claim: str, reason: str) -> Finding:
    """A claim that was confirmed."""
    return Finding(VERIFIED, claim, reason)


def differs(claim: str, reason: str) -> Finding:
    """A claim that is wrong."""
    return Finding(DIFFERS, claim, reason)


def added(claim: str, reason: str) -> Finding:
    """A file of which the record says nothing."""
    return Finding(ADDED, claim, reason)


def unknown(claim: str, reason: str) -> Finding:
    """A claim that was not computed again."""
    return Finding(UNKNOWN, claim, reason)


def compare_values(claim: str, recorded: Any, actual: Any, source: str) -> Finding:
    """Whether a value that the folder records is the one that ``source`` gives."""
    if recorded == actual:
        return verified(claim, f"{short_text(recorded)}, as {source}")
    return differs(claim, f"the folder says {short_text(recorded)}, but {source} gives {short_text(actual)}")


def short_text(value: Any) -> str:
    """A value as text of at most 80 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def run_check(claim: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of a check, and one more if it stops at something malformed."""
    try:
        yield from check()
    except UserError as error:
        yield differs(claim, str(error))
    except MALFORMED as error:
        yield differs(claim, f"not in the form that a run writes ({type(error).__name__}: {short_text(str(error))})")


def print_findings(parts: Iterable[tuple[Path, Iterable[Finding]]], brief: bool = False) -> dict[str, int]:
    """Print the findings of each part, below its path, and return how many there are of every verdict.

    Args:
        brief: print only those that differ.
    """
    counts = dict.fromkeys(VERDICTS, 0)
    for part, findings in parts:
        print(part)
        for finding in findings:
            if finding.verdict == DIFFERS or not brief:
                print(f"  {finding.line()}", flush=True)
            counts[finding.verdict] += 1
    return counts
