"""bert_training/engine/divergence.py: the message of a step whose loss is not finite, with positions worked out by
hand.
"""

from pathlib import Path

import pytest

from bert_training.engine.divergence import Divergence, check_outputs, explain_divergence
from bert_training.inputs.flags.phases import Phase

NAN = float("nan")


def test_positions_are_those_of_the_stream_of_the_data():
    """Step 3 of 8 instances has the positions 16 to 23, and its instances 1 and 5 are the positions 17 and 21."""
    message = explain_divergence(Divergence(3, NAN, 2.5, 8, [1, 5]))
    assert message.startswith("step 3: the loss is nan, the gradient norm 2.5; the weights are still those of step 2. ")
    assert "positions 16 to 23 of the data (no finite loss by itself: 17, 21). Try a lower --learning_rate" in message


def test_positions_of_a_second_phase_begin_at_its_first_step():
    """Step 12 is the second step of a phase that begins after step 10; its 4 instances are the positions 4 to 7."""
    phases = [Phase(16, 0.5, 8, 1, start=0, stop=10), Phase(24, 0.5, 4, 1, start=10, stop=20)]
    message = explain_divergence(Divergence(12, NAN, NAN, 4, [3]), phases, Path("run"))
    assert "positions 4 to 7 of the data of length 24 (no finite loss by itself: 7)" in message
    assert "; bert-repro inspect run --step 12 prints them. Try" in message


def test_the_type_is_named_if_it_may_be_at_fault():
    own, mixed = (explain_divergence(Divergence(1, NAN, NAN, 16, [], precision)) for precision in ("no", "bf16"))
    assert own.endswith("Try a lower --learning_rate or a longer --warmup_steps")
    assert mixed == own + "; the run computes in bf16: also try --mixed_precision no"
    for precision, ending in (("no", "earlier checkpoint"), ("bf16", "also try --mixed_precision no")):
        with pytest.raises(FloatingPointError, match=f"1 of 4 rows .*{ending}$"):
            check_outputs([2], 4, precision)
