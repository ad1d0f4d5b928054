"""Flags: fields of a dataclass, each with its nature, which the rest of the project reads; and how they are parsed."""

import argparse
import difflib
import math
import re
import sys
from dataclasses import MISSING, Field, field, fields
from typing import Any

from transformers import HfArgumentParser

NATURES = {
    "fixed": "must not change between a checkpoint and the run that goes on from it: it decides which data, which "
    "learning rate or which dropout masks a step sees",
    "free": "may differ between two starts of a command: it does not shape a finished run",
    "card": "is listed among the hyperparameters of the model card",
    "instance": "decides, with the seed and the corpus, what the instances of pre-training are",
    # The others tell the report which runs may be averaged. A flag with none of them must be equal in those.
    "start": "says which weights and which tokenizer a run began with; these make the columns of the report",
    "data": "says where the data lies; what the data is, is compared by its hash",
    "later": "is about a finished run, or about data on which the run is neither trained nor scored",
    "series": "differs between the runs of a series, or describes the series",
    "choice": "matters only where the best of several evaluations is chosen",
}


def flag(default: Any, help_text: str, nature: str = "", **options: Any) -> Any:
    """A field of a dataclass of flags.

    Args:
        nature: words of ``NATURES``, with spaces between them. A class that redefines a flag of its base, with another
            default, say, does not repeat them.
        options: for ``ArgumentParser.add_argument``.

    Raises:
        ValueError: a word of ``nature`` is not one of ``NATURES``.
    """
    if unknown := set(nature.split()) - NATURES.keys():
        raise ValueError(f"{help_text!r}: expected natures out of {', '.join(NATURES)}; got {', '.join(unknown)}")
    metadata = {"help": help_text, "nature": nature, **options}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def natures(cls: type) -> dict[str, set[str]]:
    """The natures of every flag of a dataclass, with those that its base classes give to a flag of the same name."""
    found: dict[str, set[str]] = {one.name: set() for one in fields(cls)}
    for base in cls.__mro__:
        for name, one in vars(base).get("__dataclass_fields__", {}).items():
            found[name] |= set(one.metadata.get("nature", "").split())
    return found


class _Parser(HfArgumentParser):
    """Takes what is metadata of a field, but no option of argparse, out of the options."""

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        options.pop("nature", None)
        return super().add_argument(*names, **options)


def parse_arguments(cls: type, argv: list[str] | None = None):
    """Parse ``argv`` (default: the command line) into ``cls``.

    Exits with status 2 and one line for an unknown flag or a value out of range.
    """
    needed = " ".join(f"--{f.name} {f.name.split('_')[-1].upper()}" for f in fields(cls) if _required(f))
    parser = _Parser(cls, allow_abbrev=False, usage=f"%(prog)s {needed} [flags]; --help lists the flags")
    try:
        args, unknown = parser.parse_args_into_dataclasses(
            _joined(sys.argv[1:] if argv is None else argv), return_remaining_strings=True, look_for_args_file=False
        )
    except ValueError as error:
        parser.error(str(error))
    if unknown:
        parser.error(_unknown_flags(cls, unknown))
    return args


def _required(one: Field) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _joined(argv: list[str]) -> list[str]:
    """``--layers=-1,-2`` for ``--layers -1,-2``: argparse takes the value for a flag of its own."""
    words: list[str] = []
    for word in argv:
        if words and words[-1].startswith("--") and re.fullmatch(r"-\d+(,-?\d+)+", word):
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _unknown_flags(cls: type, unknown: list[str]) -> str:
    known = [f"--{f.name}" for f in fields(cls)]
    name = unknown[0].split("=")[0]
    close = difflib.get_close_matches(name.replace("-", "_").replace("__", "--", 1), known, n=1)
    hint = f"; did you mean {close[0]}?" if close else "; --help lists the flags"
    return f"unknown argument {' '.join(unknown)}{hint}"


def at_least(args: Any, bound: float, *names: str) -> None:
    """Raise ValueError unless the flags are finite numbers of at least ``bound``."""
    for name in names:
        if not bound <= getattr(args, name) < math.inf:
            finite = " and finite" if getattr(args, name) == math.inf else ""
            raise ValueError(f"--{name} must be at least {bound}{finite}; got {getattr(args, name)}")


def refuse_idle(args: Any, *rules: tuple[Any, tuple[str, ...]]) -> None:
    """Raise ValueError for a flag that was given, but has no effect together with the others.

    Args:
        rules: why flags have no effect, or something false where they have; and the names of these flags.
    """
    for reason, names in rules:
        for name in names:
            if reason and getattr(args, name) != getattr(type(args), name):
                raise ValueError(f"--{name} has no effect {reason}; leave it out")


def in_unit_interval(args: Any, *names: str) -> None:
    """Raise ValueError unless the flags lie between 0 and 1."""
    for name in names:
        if not 0 <= getattr(args, name) <= 1:
            raise ValueError(f"--{name} must lie between 0 and 1; got {getattr(args, name)}")
