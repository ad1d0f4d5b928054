"""bert_training/pretraining/data.py: the share of the text that an epoch uses."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.data import low_share, record_used_tokens, used_share
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from tests.helpers.small_corpora import make_tokenizer, random_documents


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
    assert used_share(instances) == used.mean()
    assert (used.mean() == 1) == (settings.get("objective") == "mlm")


@pytest.mark.parametrize(
    ("documents", "first", "last"),
    [
        ([["The dog sat on the mat. " * 20]] * 3, "raise --max_seq_length", "blank lines between documents only"),
        ([["the dog sat on the mat " * 20, "A cat."]] * 3, "put each sentence on", "--objective mlm, which uses every"),
        (
            [["the dog sat."]] * 3 + [["A dog.", "A cat."]],
            "put each sentence on a line of its own",
            "--objective mlm, which uses every",
        ),
    ],
)
def test_the_first_remedy_is_the_one_that_fits_the_text(tmp_path, documents, first, last):
    """Ordinary prose has its ends of sentences; only other text gains from lines."""
    tokenizer = make_tokenizer()
    corpus = build_corpus(documents, tokenizer, tmp_path / "c")
    instances = PretrainingInstances(corpus, tokenizer, InstanceSettings(seed=4, max_seq_length=32))
    text = low_share(0.7, instances)
    assert f"What helps: {first}" in text and last in text.rpartition("; or ")[2]


def test_shards_that_no_epoch_reads_are_said():
    said: list[str] = []
    run = SimpleNamespace(is_main=True, say=said.append, add_facts=lambda **facts: None)
    plan, shard = SimpleNamespace(used_tokens=9), SimpleNamespace(path="corpus/shard-00003")
    instances = SimpleNamespace(planned_tokens=10, plans=lambda epoch: [plan], without_pairs=[shard])
    record_used_tokens(run, {16: [instances]})
    assert said[1:] == [said[-1]] and said[-1].startswith(
        "warning: 1 shards of the corpus, such as corpus/shard-00003,"
    )
