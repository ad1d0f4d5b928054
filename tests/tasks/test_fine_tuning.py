"""bert_training/tasks/fine_tuning.py: whether a checkpoint's head is kept."""

import pytest
import torch
from transformers import BertForSequenceClassification

from bert_training.networks.initial_weights import LoadedNetwork
from bert_training.tasks.fine_tuning import _keep_or_replace_head
from tests.helpers.small_networks import small_config


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
