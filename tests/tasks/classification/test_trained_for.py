"""What a checkpoint was trained for, by its config."""

import pytest
from transformers import BertConfig

from bert_training.tasks.classification.trained_for import TrainedFor, store_facts, stored_facts, trained_for

HEAD = "BertForSequenceClassification"


def config(**fields) -> BertConfig:
    return BertConfig(**{"architectures": [HEAD]} | fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, TrainedFor(None, 2)),
        ({"architectures": None, "num_labels": 3}, TrainedFor(None, 3)),
        ({"num_labels": 1}, TrainedFor(None, 1, scores=True)),
        ({"id2label": {0: "score"}, "problem_type": "regression"}, TrainedFor(("score",), 1, scores=True)),
        ({"id2label": {0: "a", 1: "b"}}, TrainedFor(("a", "b"), 2)),
        ({"problem_type": "multi_label_classification"}, TrainedFor(None, 2, several_labels=True)),
        ({"architectures": ["BertModel"]}, TrainedFor(None, other_head="BertModel")),
        ({"architectures": ["BertFor2"], "num_labels": 1}, TrainedFor(None, other_head="BertFor2")),
    ],
)
def test_the_head_by_the_config(tmp_path, fields, expected):
    assert trained_for(config(**fields), str(tmp_path), HEAD) == expected


def test_the_names_of_the_classes():
    assert TrainedFor(None, 3).class_names == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert TrainedFor(("a", "b"), 2).class_names == ("a", "b")
    assert TrainedFor(("score",), 1, scores=True).class_names == TrainedFor().class_names == ()


def test_facts_are_stored_beside_others_and_may_be_absent(tmp_path):
    model = config(fine_tuning={"max_seq_length": 256})
    store_facts(model, texts_per_example=2, text_columns=["a", "b"], label_column="c")
    assert stored_facts(model)["max_seq_length"] == 256
    model.save_pretrained(tmp_path)
    found = trained_for(BertConfig.from_pretrained(tmp_path), str(tmp_path), HEAD)
    assert (found.texts, found.text_columns, found.label_column) == (2, ("a", "b"), "c")
    assert stored_facts(config()) == stored_facts(config(fine_tuning="x")) == {}
    # The columns of a model for something else are none of a text classification's.
    other = config(architectures=["BertForMultipleChoice"], fine_tuning={"text_columns": ["a"]})
    assert trained_for(other, str(tmp_path), HEAD).text_columns == ()
