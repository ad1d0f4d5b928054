"""bert_training/inputs/flags/parsing.py: values out of range, flags that need or exclude others, all at once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import pytest

from bert_training.inputs.flags.parsing import Flags, check, flag


@dataclass
class Base(Flags):
    steps: float = flag(-1.0, at_least=1)
    share: float = flag(0.5, above=0, below=1)
    way: Literal["plain", "long"] = flag("plain")


@dataclass
class Own(Base):
    folder: str | None = flag(None, needs=("file or table",), excludes=("way long",))
    file: str | None = flag(None)
    table: str | None = flag(None, excludes=("file",))
    share: float = flag(0.25)  # with the bounds of the base class
    settled: int = flag(0)

    def problems(self) -> Iterator[str]:
        if self.steps == 7:
            yield "--steps 7 is a bad number"

    def settle(self) -> None:
        self.settled += 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 0.9}, "--steps must be at least 1; got 0.9"),
        ({"steps": float("inf")}, "--steps must be a finite number; got inf"),
        ({"steps": float("nan")}, "--steps must be a finite number; got nan"),
        ({"share": 1.0}, "--share must be above 0 and below 1; got 1.0"),
        ({"way": "short"}, "--way must be one of plain, long; got 'short'"),
        ({"folder": "x"}, "--folder needs --file or --table; give that, or leave --folder out"),
        ({"folder": "x", "file": ""}, "--folder needs --file or --table; give that, or leave --folder out"),
        ({"file": "a", "table": "b"}, "--table and --file exclude each other; leave one of them out"),
        (
            {"folder": "x", "file": "a", "way": "long"},
            "--folder and --way long exclude each other; leave one of them out",
        ),
        ({"steps": 7.0}, "--steps 7 is a bad number"),
        (
            {"steps": 0.0, "share": 2.0, "folder": "x"},
            "--steps must be at least 1; got 0.0\n--share must be above 0 and below 1; got 2.0\n"
            "--folder needs --file or --table; give that, or leave --folder out",
        ),
    ],
)
def test_what_is_declared_is_checked_all_at_once(given, message):
    with pytest.raises(ValueError) as refusal:
        Own(**given)
    assert sorted(str(refusal.value).splitlines()) == sorted(message.splitlines())


def test_values_at_their_bounds_and_defaults_beyond_them_are_accepted():
    assert Own().steps == -1.0 and Own(steps=1.0, share=0.99).settled == 1
    assert Own(folder="x", table="t").folder == "x" and Own(folder="x", file="f").folder == "x"


def test_a_copy_is_checked_and_settled_again():
    args = Own(folder="x", file="f")
    assert replace(args, steps=2.0).settled == 2
    with pytest.raises(ValueError, match="--steps must be at least 1"):
        replace(args, steps=0.0)
    args.way = "long"
    with pytest.raises(ValueError, match="exclude each other"):
        check(args)
