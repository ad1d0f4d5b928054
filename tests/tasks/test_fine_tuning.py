"""bert_training/tasks/fine_tuning.py: what is said of a checkpoint that does not suit the texts."""

import json

import pytest

from bert_training.flags.fine_tuning import GlueArguments
from bert_training.tasks.fine_tuning import untrained_positions


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
    facts = {"script": "run_pretraining.py", "flags": {"max_seq_length": 128} | flags}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    args = GlueArguments(output_dir="x", task_name="rte", model_name_or_path=str(tmp_path), max_seq_length=length)
    found = untrained_positions(args)
    assert bool(found) == said and (not said or "at most 128 tokens" in found)
    (tmp_path / "run.json").unlink()
    assert untrained_positions(args) is None
