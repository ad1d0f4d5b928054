"""bert_training/inputs/flags/objectives.py: one table says what the objectives are."""

import dataclasses

import pytest

from bert_training.inputs.flags.objectives import DEFAULT, NEXT_SENTENCE, OBJECTIVES, objective_of
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments


def test_help_and_choices_come_from_the_table(capsys, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "another", OBJECTIVES["mlm"])
    parse_arguments(PretrainingArguments, ["--output_dir", "x", "--objective", "another"])
    with pytest.raises(SystemExit):
        parse_arguments(PretrainingArguments, ["--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "--objective {mlm_nsp,mlm,ltr" in printed and "ltr: left-to-right LM." in printed
    with pytest.raises(ValueError, match="--objective must be one of mlm_nsp, mlm, ltr"):
        PretrainingArguments(output_dir="x", objective="gpt")


def test_flags_without_an_objective_have_the_default():
    assert objective_of({}) is OBJECTIVES[DEFAULT] and OBJECTIVES[DEFAULT].pairs is NEXT_SENTENCE
    for wrong in (None, 3, ["mlm"], "MLM"):
        with pytest.raises(ValueError, match=r"objective is .*; expected one of mlm_nsp"):
            objective_of({"objective": wrong})


def test_the_least_text_of_each_kind():
    """Pairs need two sentences of one document, and those with a random segment another document as well."""
    one = OBJECTIVES["mlm"]
    same = dataclasses.replace(one, pairs=dataclasses.replace(NEXT_SENTENCE, random_second=False))
    assert (one.fewest, same.fewest, OBJECTIVES["mlm_nsp"].fewest) == ((1, 1), (1, 2), (2, 2))
