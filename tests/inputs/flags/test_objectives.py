"""bert_training/inputs/flags/objectives.py: one table says what the objectives are."""

import pytest

from bert_training.inputs.flags.objectives import DEFAULT, NEXT_SENTENCE, OBJECTIVES, objective_of


def test_flags_without_an_objective_have_the_default():
    assert objective_of({}) is OBJECTIVES[DEFAULT] and OBJECTIVES[DEFAULT].pairs is NEXT_SENTENCE
    for wrong in (None, 3, ["mlm"], "MLM"):
        with pytest.raises(ValueError, match=r"objective is .*; expected one of mlm_nsp"):
            objective_of({"objective": wrong})
