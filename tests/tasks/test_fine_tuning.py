"""bert_training/tasks/fine_tuning.py: what is said of a checkpoint that does not suit the texts."""

import json

import pytest
import torch
from transformers import BertForSequenceClassification

from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.networks.initial_weights import LoadedNetwork
from bert_training.tasks.fine_tuning import _keep_or_replace_head, untrained_positions
from tests.helpers.small_networks import small_config


@pytest.mark.parametrize(
    ("flags", "length", "said"),
    [
        ({}, 129, True),
        ({}, 128, False),
        ({"model_name_or_path": "google-bert/bert-base-uncased"}, 512, False),  # it has all positions
        ({"keep_layers": "0,2"}, 512, False),  # and so have the layers of a teacher
    ],
)
def test_texts_longer_than_those_of_the_pre_training(tmp_path, flags, length, said):
    facts = {"format": 1, "script": "run_pretraining.py", "flags": {"max_seq_length": 128} | flags}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    args = GlueArguments(output_dir="x", task_name="rte", model_name_or_path=str(tmp_path), max_seq_length=length)
    found = untrained_positions(args)
    assert bool(found) == said and (not said or "at most 128 tokens" in found)
    (tmp_path / "run.json").unlink()
    assert untrained_positions(args) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "kept"),
    [(["score"], ["toxicity"], True), (["a", "b"], ["c", "d"], False), (["a", "b"], ["A", "B"], True)],
)
def test_a_score_may_have_any_name_and_a_class_any_case(ours, theirs, kept):
    """A model from elsewhere calls its one output "toxicity"; of classes, another name is another class."""

    def config(names):
        labels = {"id2label": dict(enumerate(names)), "label2id": {name: row for row, name in enumerate(names)}}
        return small_config(**labels, problem_type="regression" if len(names) == 1 else None)

    model = BertForSequenceClassification(config(ours))
    before = model.classifier.weight.clone()
    replaced = _keep_or_replace_head(LoadedNetwork(model, [], []), config(theirs))
    assert torch.equal(model.classifier.weight, before) is kept and bool(replaced) is not kept
