"""bert_training/pretraining/data.py: flags arrive at the instances, and an epoch uses most of the text."""

from dataclasses import MISSING, fields
from types import SimpleNamespace

import numpy as np
import pytest

from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining import data
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from bert_training.pretraining.masking import MaskSettings
from tests.helpers.small_corpora import make_tokenizer, random_documents


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


@pytest.mark.parametrize(
    "settings", [{}, {"max_seq_length": 12}, {"objective": "mlm"}, {"short_seq_prob": 0.9}, {"objective": "mlm_sop"}]
)
@pytest.mark.parametrize("sentences", [2, 6])
def test_the_share_is_that_of_the_union_of_the_segments(tmp_path, settings, sentences):
    """The reference marks every token of every A and of every B that follows it."""
    tokenizer = make_tokenizer()
    corpus = build_corpus(random_documents(60, sentences=sentences), tokenizer, tmp_path / "c")
    settings = {"max_seq_length": 32} | settings
    instances = PretrainingInstances(corpus, tokenizer, InstanceSettings(seed=4, **settings))
    plan, used = instances.plan(0), np.zeros(corpus.num_tokens, bool)
    for a, a_length, b, b_length, label in zip(
        plan.a_start, plan.a_length, plan.b_start, plan.b_length, plan.label, strict=True
    ):
        used[a : a + a_length] = True
        if label == 0 or settings.get("objective") == "mlm_sop":
            used[b : b + b_length] = True
    assert data.used_share(instances) == used.mean()
    assert (used.mean() == 1) == (settings.get("objective") == "mlm")


@pytest.mark.parametrize(("used", "warned"), [(79, True), (80, False)])
def test_an_epoch_that_uses_less_than_four_fifths_of_the_text_and_shards_that_none_reads_are_said(used, warned):
    said: list[str] = []
    run = SimpleNamespace(is_main=True, say=said.append, add_facts=lambda **facts: None)
    plan, shard = SimpleNamespace(used_tokens=used), SimpleNamespace(path="corpus/shard-00003")
    instances = SimpleNamespace(planned_tokens=100, plans=lambda epoch: [plan], without_pairs=[shard])
    data.record_used_tokens(run, {16: [instances]})
    assert any(line.startswith("warning: so little of the text is used") for line in said) == warned
    assert said[-1].startswith("warning: 1 shards of the corpus, such as corpus/shard-00003,")
