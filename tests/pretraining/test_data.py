"""bert_training/pretraining/data.py: the flags arrive at the instances, and the shapes at the network."""

from dataclasses import MISSING, fields
from types import SimpleNamespace

import pytest

from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining import data
from bert_training.pretraining.instances import InstanceSettings
from bert_training.pretraining.masking import MaskSettings


def test_flags_reach_the_instances(monkeypatch):
    made = []
    monkeypatch.setattr(data, "PretrainingInstances", lambda corpus, tokenizer, settings: made.append(settings))
    flags = {"objective": "mlm", "short_seq_prob": 0.3, "mlm_probability": 0.2, "mask_replace_prob": 0.5}
    flags |= {"random_replace_prob": 0.4, "whole_word_mask": True, "max_predictions_per_seq": 7}
    given = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    args = parse_arguments(
        PretrainingArguments, ["--output_dir", "x", "--seed", "9", "--phases", "16:0.5,32:0.5", *given]
    )
    for held_out in (False, True):
        data.instances_by_length(vars(args), None, None, held_out)
    # The held-out instances do not depend on the seed of the run.
    assert made == [
        InstanceSettings(**flags, max_seq_length=length, seed=seed, fixed=fixed)
        for seed, fixed in ((9, False), (0, True))
        for length in (16, 32)
    ]


def test_settings_and_flags_have_the_same_defaults():
    defaults = {field.name: field.default for field in fields(PretrainingArguments)}
    names = {field.name for field in fields(InstanceSettings) if field.default is not MISSING} & defaults.keys()
    assert {"objective", "short_seq_prob"} | {field.name for field in fields(MaskSettings)} == names
    settings = InstanceSettings(seed=0, max_seq_length=128)
    assert {name: getattr(settings, name) for name in names} == {name: defaults[name] for name in names}


def test_an_epoch_too_short_for_the_recipe_names_what_to_give():
    train = {length: [SimpleNamespace(epoch_size=lambda epoch: 100)] for length in (32, 64, 128)}
    args = parse_arguments(PretrainingArguments, ["--output_dir", "x", "--recipe", "fast"])
    with pytest.raises(ValueError, match=r"1 epochs of this text are 2 optimiser steps.*give --max_steps.*128:1$"):
        data.planned_phases(args, train, 1)
    args.num_train_epochs = 5
    assert [phase.stop for phase in data.planned_phases(args, train, 1)] == [3, 6, 8]
