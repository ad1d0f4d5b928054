"""bert_training/inputs/flags/objectives.py: one table says what the objectives are."""

from bert_training.inputs.flags.objectives import DEFAULT, NEXT_SENTENCE, OBJECTIVES, objective_of


def test_flags_without_an_objective_have_the_default():
    assert objective_of({}) is OBJECTIVES[DEFAULT] and OBJECTIVES[DEFAULT].pairs is NEXT_SENTENCE
