"""One function checks the flags of a script, and names everything that is wrong with them at once."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from bert_training.inputs.flags.natures import declared, default_of, kinds
from tokenization.errors import UserError

BOUNDS = {
    "at_least": ("at least", lambda value, bound: value >= bound),
    "above": ("above", lambda value, bound: value > bound),
    "at_most": ("at most", lambda value, bound: value <= bound),
    "below": ("below", lambda value, bound: value < bound),
}


@dataclass
class Flags:
    """The base of all classes of flags: they are checked as soon as they have values, also those of a copy."""

    def __post_init__(self) -> None:
        check(self)
        self.settle()

    def problems(self) -> Iterator[str]:
        """What is wrong beside what the flags declare one by one (``natures.py: flag``), each in a sentence."""
        yield from ()

    def settle(self) -> None:
        """Fill in the defaults that depend on other flags, so that run.json says what was done."""

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults that differ from those of the fields, for the flags that are given, by name."""
        return {}


def check(args: Flags) -> None:
    """Raise UserError, with one line for each problem of the flags, unless there is none."""
    limits, found = declared(type(args)), list[str]()
    for name, value in _given(args).items():
        found += [*problems_of_value(type(args), name, value), *_problems_beside(args, name, limits[name])]
    refuse(dict.fromkeys([*found, *args.problems()], True))


def refuse(problems: Mapping[str, object]) -> None:
    """Raise one UserError with a line for each sentence whose value is true, unless there is none."""
    if told := [problem for problem, there in problems.items() if there]:
        raise UserError("\n".join(told))


def problems_of_value(cls: type[Flags], name: str, value: Any) -> Iterator[str]:
    """What is wrong with the value of a flag, whatever the others are."""
    choices, limits = kinds(cls)[name].choices, declared(cls)[name]
    bounds = [(*BOUNDS[word], limits[word]) for word in BOUNDS if word in limits]
    if choices and value not in choices:
        yield f"--{name} must be one of {', '.join(map(str, choices))}; got {value!r}"
    if isinstance(value, float) and not math.isfinite(value):
        yield f"--{name} must be a finite number; got {value}"
    elif not all(fits(value, bound) for _, fits, bound in bounds):
        yield f"--{name} must be {' and '.join(f'{words} {bound}' for words, _, bound in bounds)}; got {value}"


def holds(args: object, wanted: str) -> bool:
    """Whether a flag is given ("train_file"), or has a value ("long_texts windows"); or one of several ("a or b")."""
    for one in wanted.split(" or "):
        name, _, value = one.partition(" ")
        if str(getattr(args, name, None)) == value if value else name in _given(args):
            return True
    return False


def in_words(args: Any, wanted: str) -> str:
    """What ``holds`` is asked, as words of a command: "--a or --b", of the flags that the script has."""
    names = [one.name for one in fields(args)]
    return " or ".join(f"--{one}" for one in wanted.split(" or ") if one.partition(" ")[0] in names)


def _given(args: Any) -> dict[str, Any]:
    """The flags that differ from their defaults, by name; those that are empty count as left out."""
    values = {one.name: (getattr(args, one.name), default_of(one)) for one in fields(args)}
    return {name: value for name, (value, usual) in values.items() if value != usual and value not in (None, "", [])}


def _problems_beside(args: Any, name: str, limits: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a flag beside the others."""
    for wanted in limits.get("needs", ()):
        if not holds(args, wanted):
            yield f"--{name} needs {in_words(args, wanted)}; give that, or leave --{name} out"
    for other in limits.get("excludes", ()):
        if holds(args, other):
            yield f"--{name} and {in_words(args, other)} exclude each other; leave one of them out"
