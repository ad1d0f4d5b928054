"""bert_training/inputs/flags/checks.py: values out of range, and flags that would have no effect."""

from dataclasses import dataclass

import pytest

from bert_training.inputs.flags.checks import at_least, in_unit_interval, refuse_idle


@dataclass
class Flags:
    steps: float = 1.0
    share: float = 0.5
    folder: str | None = None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.9, "--steps must be at least 1; got 0.9"),
        (float("inf"), "--steps must be at least 1 and finite; got inf"),
        (float("nan"), "--steps must be at least 1; got nan"),
    ],
)
def test_a_value_below_its_bound_or_without_an_end_is_refused(value, message):
    with pytest.raises(ValueError) as refusal:
        at_least(Flags(steps=value), 1, "steps")
    assert str(refusal.value) == message


def test_a_value_at_its_bound_is_accepted():
    at_least(Flags(steps=1.0, share=1.0), 1, "steps", "share")
    in_unit_interval(Flags(share=0.0), "share")
    in_unit_interval(Flags(share=1.0), "share", "steps")


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_share_lies_between_0_and_1(value):
    with pytest.raises(ValueError, match=rf"--share must lie between 0 and 1; got {value}"):
        in_unit_interval(Flags(share=value), "steps", "share")


def test_a_flag_without_effect_is_refused_only_if_it_was_given():
    rule = ("without --folder", ("share", "steps"))
    refuse_idle(Flags(), rule)
    refuse_idle(Flags(share=0.1), (None, ("share",)))  # The reason does not hold.
    with pytest.raises(ValueError, match="--share has no effect without --folder; leave it out"):
        refuse_idle(Flags(share=0.1), (False, ("steps",)), rule)
