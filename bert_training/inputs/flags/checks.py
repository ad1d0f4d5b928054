"""Checks of the values of flags; each raises ValueError with the name of the flag."""

import math

from tokenization.errors import UserError


def at_least(args: object, bound: float, *names: str) -> None:
    """Raise ValueError unless the flags are finite numbers of at least ``bound``."""
    for name in names:
        if not bound <= getattr(args, name) < math.inf:
            finite = " and finite" if getattr(args, name) == math.inf else ""
            raise UserError(f"--{name} must be at least {bound}{finite}; got {getattr(args, name)}")


def refuse_idle(args: object, *rules: tuple[object, tuple[str, ...]]) -> None:
    """Raise ValueError for a flag that was given, but has no effect together with the others.

    Args:
        rules: pairs (reason, names). A true reason says why the flags with these names have no effect; a false one
            switches the rule off.
    """
    for reason, names in rules:
        for name in names:
            if reason and getattr(args, name) != getattr(type(args), name):
                raise UserError(f"--{name} has no effect {reason}; leave it out")


def in_unit_interval(args: object, *names: str) -> None:
    """Raise ValueError unless the flags are between 0 and 1."""
    for name in names:
        if not 0 <= getattr(args, name) <= 1:
            raise UserError(f"--{name} must lie between 0 and 1; got {getattr(args, name)}")
