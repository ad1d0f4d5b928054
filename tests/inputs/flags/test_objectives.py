"""bert_training/inputs/flags/objectives.py: one table says what the objectives are."""

import dataclasses

from bert_training.inputs.flags.objectives import DEFAULT, NEXT_SENTENCE, OBJECTIVES, objective_of


def test_flags_without_an_objective_have_the_default():
    assert objective_of({}) is OBJECTIVES[DEFAULT] and OBJECTIVES[DEFAULT].pairs is NEXT_SENTENCE


def test_the_least_text_of_each_kind():
    """Pairs need two sentences of one document, and those with a random segment another document as well."""
    one = OBJECTIVES["mlm"]
    same = dataclasses.replace(one, pairs=dataclasses.replace(NEXT_SENTENCE, random_second=False))
    assert (one.fewest, same.fewest, OBJECTIVES["mlm_nsp"].fewest) == ((1, 1), (1, 2), (2, 2))
