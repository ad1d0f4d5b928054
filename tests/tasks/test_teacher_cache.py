"""bert_training/tasks/teacher_cache.py: what a file is named by, and what comes back out of it."""

import numpy as np
import pytest

from bert_training.engine.batches import Features
from bert_training.files.array_files import DAMAGE
from bert_training.tasks.classification.long_texts import WindowFeatures
from bert_training.tasks.teacher_cache import fingerprint, read_outputs, write_outputs
from tests.helpers.small_networks import small_config

WEIGHTS = {"model.safetensors": "a"}
IDS, TYPES = [[2, 7, 3], [2, 3]], [[0, 0, 0], [0, 0]]


def rows(ids=IDS, types=TYPES) -> Features:
    return Features({"input_ids": ids, "token_type_ids": types}, 0)


def test_a_file_is_named_by_the_teacher_and_by_its_rows():
    def key(weights=WEIGHTS, how=("BertForSequenceClassification", False), data=None, **config):
        return fingerprint(weights, small_config(**config), how, data or rows())

    windows = WindowFeatures({"input_ids": [IDS], "token_type_ids": [TYPES]}, 0)
    others = [
        key(weights={"model.safetensors": "b"}),
        key(how=("BertForSequenceClassification", True)),
        key(hidden_act="relu"),
        key(data=rows([[2, 7, 3], [2, 4]])),
        key(data=rows([[2, 7], [3, 2, 3]], [[0, 0], [0, 0, 0]])),  # the same ids, cut elsewhere
        key(data=rows(types=[[0, 0, 1], [0, 0]])),
        key(data=windows),
    ]
    assert len({key(), *others}) == 1 + len(others)
    assert key() == key(id2label={0: "x", 1: "y"}) == key(data=rows([np.array(row) for row in IDS]))


@pytest.mark.parametrize("ragged", [False, True], ids=["a row", "a token"])
def test_what_was_written_comes_back_and_nothing_else(tmp_path, ragged):
    draw, path = np.random.default_rng(0), tmp_path / "new" / "teacher.npz"
    each = [draw.normal(size=(length, 3)).astype(np.float32) for length in (4, 2)]
    outputs = {"logits": each if ragged else np.stack([row[0] for row in each])}
    write_outputs(path, "key", outputs)
    found = read_outputs(path, "key", 2)
    assert all(np.array_equal(one, other) for one, other in zip(found["logits"], outputs["logits"], strict=True))
    for key, count, message in (("other", 2, "outputs of another teacher"), ("key", 3, "expected")):
        with pytest.raises(ValueError, match=message):
            read_outputs(path, key, count)
    content = path.read_bytes()
    for place in range(0, len(content), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            again = read_outputs(path, "key", 2)
        except DAMAGE:
            continue
        assert all(np.array_equal(one, other) for one, other in zip(again["logits"], outputs["logits"], strict=True))
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DAMAGE):
        read_outputs(path, "key", 2)
