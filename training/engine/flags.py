"""Flags are fields of dataclasses with natures, by which the rest of the project treats them; parsing of flags."""

import argparse
import difflib
import math
import re
import sys
from dataclasses import MISSING, Field, field, fields
from typing import Any, ClassVar, Protocol, TypeVar

from transformers import HfArgumentParser
from transformers.hf_argparser import DataClassType

NATURES = {
    "fixed": "must not change between a checkpoint and the run that resumes from it, because the data, the learning "
    "rate or the dropout masks of a step depend on it",
    "free": "may differ between two starts of a run, because the finished model does not depend on it",
    "card": "is listed among the hyperparameters of the model card",
    "instance": "decides, with the seed and the corpus, what the instances of pre-training are",
    # The report averages runs only if all flags agree that are neither "free" nor of one of the following natures.
    "start": "says from which weights and which tokenizer a run started; the report has a column for each such start",
    "data": "says where the data is; whether two runs have the same data is decided by its hash",
    "later": "concerns a finished run, or data on which the run is neither trained nor scored",
    "series": "differs between the runs of a series, or describes the series",
    "choice": "has an effect only if the best of several evaluations is chosen",
}


class Dataclass(Protocol):
    """Any dataclass, such as the flags of a script."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


Flags = TypeVar("Flags", bound=Dataclass)


def flag(default: Any, help_text: str, nature: str = "", **options: Any) -> Any:
    """A field of a dataclass of flags.

    Args:
        nature: words of ``NATURES``, separated by spaces. A class that redefines a flag of its base class, for example
            with another default, need not repeat them.
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


def natures(cls: type[Dataclass]) -> dict[str, set[str]]:
    """The natures of every flag of a dataclass, including those that a base class gives to a flag of the same name."""
    found: dict[str, set[str]] = {one.name: set() for one in fields(cls)}
    for base in cls.__mro__:
        for name, one in vars(base).get("__dataclass_fields__", {}).items():
            found[name] |= set(one.metadata.get("nature", "").split())
    return found


class _Parser(HfArgumentParser):
    """A parser that accepts the metadata of a flag, of which "nature" is not an option of argparse."""

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        options.pop("nature", None)
        return super().add_argument(*names, **options)


def parse_arguments(cls: type[Flags], argv: list[str] | None = None) -> Flags:
    """Parse ``argv`` (default: the command line) into ``cls``.

    Exits with status 2 and one line for an unknown flag or a value out of range.
    """
    needed = " ".join(f"--{one.name} {one.name.split('_')[-1].upper()}" for one in fields(cls) if _required(one))
    parser = _Parser(DataClassType(cls), allow_abbrev=False, usage=f"%(prog)s {needed} [flags]; --help lists the flags")
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
    """Join ``--layers -1,-2`` to ``--layers=-1,-2``, because argparse would take the value for another flag."""
    words: list[str] = []
    for word in argv:
        if words and words[-1].startswith("--") and re.fullmatch(r"-\d+(,-?\d+)+", word):
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _unknown_flags(cls: type[Dataclass], unknown: list[str]) -> str:
    known = [f"--{one.name}" for one in fields(cls)]
    name = unknown[0].split("=")[0]
    close = difflib.get_close_matches(name.replace("-", "_").replace("__", "--", 1), known, n=1)
    hint = f"; did you mean {close[0]}?" if close else "; --help lists the flags"
    return f"unknown argument {' '.join(unknown)}{hint}"


def at_least(args: object, bound: float, *names: str) -> None:
    """Raise ValueError unless the flags are finite numbers of at least ``bound``."""
    for name in names:
        if not bound <= getattr(args, name) < math.inf:
            finite = " and finite" if getattr(args, name) == math.inf else ""
            raise ValueError(f"--{name} must be at least {bound}{finite}; got {getattr(args, name)}")


def refuse_idle(args: object, *rules: tuple[object, tuple[str, ...]]) -> None:
    """Raise ValueError for a flag that was given, but has no effect together with the others.

    Args:
        rules: why flags have no effect, or something false where they have; and the names of these flags.
    """
    for reason, names in rules:
        for name in names:
            if reason and getattr(args, name) != getattr(type(args), name):
                raise ValueError(f"--{name} has no effect {reason}; leave it out")


def in_unit_interval(args: object, *names: str) -> None:
    """Raise ValueError unless the flags lie between 0 and 1."""
    for name in names:
        if not 0 <= getattr(args, name) <= 1:
            raise ValueError(f"--{name} must lie between 0 and 1; got {getattr(args, name)}")
