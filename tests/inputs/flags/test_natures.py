"""bert_training/inputs/flags/natures.py and scripts.py: what a flag means for resume, model cards and reports."""

import dataclasses

from bert_training.inputs.flags.natures import CARD, FIXED, FREE, INSTANCE, STORED, Nature, flag, natures
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.flags.scripts import SCRIPTS, flags_with
from bert_training.inputs.flags.shared import SharedArguments


@dataclasses.dataclass
class Base:
    rate: float = flag(0.1, "The rate.", FIXED | CARD)
    folder: str = flag("x", "The folder.", FREE)
    silent: bool = flag(False, "Whether it is silent.")


@dataclasses.dataclass
class Script(Base):
    rate: float = flag(0.5, "The rate, with another default.")
    folder: str = flag("y", "The folder, which now counts for the model card.", CARD)
    layers: list = flag([1, 2], "The layers.", FIXED, nargs="+")


def test_natures_worked_by_hand():
    """A flag has the natures of its class and those of the base classes."""
    assert natures(Base) == {"rate": FIXED | CARD, "folder": FREE, "silent": Nature.NONE}
    assert natures(Script) == {"rate": FIXED | CARD, "folder": FREE | CARD, "silent": Nature.NONE, "layers": FIXED}


def test_a_flag_keeps_its_default_its_help_and_its_options():
    by_name = {field.name: field for field in dataclasses.fields(Script)}
    assert Script() == Script(rate=0.5, folder="y", silent=False, layers=[1, 2])
    assert by_name["layers"].metadata == {"help": "The layers.", "nature": FIXED, "nargs": "+"}
    first, second = Script(), Script()
    first.layers.append(3)
    assert second.layers == [1, 2]  # A list is made anew for every run.


def test_flags_with_a_nature_are_named_once_in_the_order_of_help():
    fixed = flags_with(FIXED)
    assert len(set(fixed)) == len(fixed) and {"seed", "learning_rate"} <= set(fixed)
    shared = [field.name for field in dataclasses.fields(SharedArguments) if field.name in fixed]
    assert [name for name in fixed if name in shared] == shared
    assert set(flags_with(FIXED | FREE)) == set(fixed) | set(flags_with(FREE))


def test_a_flag_has_one_nature_in_all_scripts():
    """INSTANCE and STORED are left out: only pre-training has instances, only fine-tuned models store a length."""
    found: dict[str, set] = {}
    for script in SCRIPTS.values():
        for name, nature in natures(script.arguments).items():
            found.setdefault(name, set()).add(nature & ~(INSTANCE | STORED))
    assert {name: kinds for name, kinds in found.items() if len(kinds) > 1} == {}
    assert all(flags_with(nature) for nature in Nature)
    assert not set(flags_with(FIXED)) & set(flags_with(FREE))


def test_a_redefined_flag_keeps_the_nature_of_its_base():
    assert natures(PretrainingArguments)["learning_rate"] == natures(SharedArguments)["learning_rate"] == FIXED | CARD
    assert natures(PretrainingArguments)["vocab_size"] is Nature.NONE
