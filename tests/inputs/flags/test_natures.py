"""bert_training/inputs/flags/parsing.py and scripts.py: what a flag means for resume, model cards and reports."""

import dataclasses
from typing import Literal

import pytest

from bert_training.inputs.flags.feature_extraction import FeatureArguments
from bert_training.inputs.flags.parsing import CARD, FIXED, FREE, STORED, Nature, declared, flag, helps, kinds, natures
from bert_training.inputs.flags.scripts import SCRIPTS, flags_with


@dataclasses.dataclass
class Base:
    """The base.

    Attributes:
        rate: The rate.
        folder: The folder, whose help
            has two lines.
        silent: Whether it is silent.
    """

    rate: float = flag(0.1, FIXED | CARD, above=0)
    folder: str | None = flag("x", FREE)
    silent: bool = flag(False)


@dataclasses.dataclass
class Script(Base):
    """The script.

    Attributes:
        rate: The rate: with another default.
        layers: The layers.
    """

    rate: float = flag(0.5)
    folder: str | None = flag("y", CARD)
    layers: list[int] = flag([1, 2], FIXED, may_be_empty=True)
    way: Literal["a", "b"] | None = flag(None)


def test_natures_worked_by_hand():
    """A flag has the natures of its class and those of the base classes."""
    assert natures(Base) == {"rate": FIXED | CARD, "folder": FREE, "silent": Nature.NONE}
    assert natures(Script) == {
        "rate": FIXED | CARD, "folder": FREE | CARD, "silent": Nature.NONE, "layers": FIXED, "way": Nature.NONE
    }  # fmt: skip


def test_a_flag_keeps_its_default_its_kind_its_help_and_its_limits():
    assert Script() == Script(rate=0.5, folder="y", silent=False, layers=[1, 2], way=None)
    assert declared(Script)["layers"] == {"nature": FIXED, "may_be_empty": True}
    assert declared(Script)["rate"] == {"nature": FIXED | CARD, "above": 0}
    assert kinds(Script) == {
        "rate": (float, False, ()), "folder": (str, False, ()), "silent": (bool, False, ()),
        "layers": (int, True, ()), "way": (str, False, ("a", "b")),
    }  # fmt: skip
    assert helps(Script) == {
        "rate": "The rate: with another default.", "folder": "The folder, whose help has two lines.",
        "silent": "Whether it is silent.", "layers": "The layers.",
    }  # fmt: skip


@pytest.mark.parametrize("cls", [*(script.arguments for script in SCRIPTS.values()), FeatureArguments])
def test_every_flag_has_help(cls):
    assert helps(cls).keys() == {field.name for field in dataclasses.fields(cls)}


def test_a_flag_has_one_nature_in_all_scripts():
    """STORED is left out: only fine-tuned models store a length."""
    found: dict[str, set] = {}
    for script in SCRIPTS.values():
        for name, nature in natures(script.arguments).items():
            found.setdefault(name, set()).add(nature & ~STORED)
    assert {name: kinds for name, kinds in found.items() if len(kinds) > 1} == {}
    assert all(flags_with(nature) for nature in Nature)
    assert not set(flags_with(FIXED)) & set(flags_with(FREE))
