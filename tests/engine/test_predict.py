"""bert_training/engine/predict.py: its outputs come in order, and its three callers use one loop and get the same
bits.
"""

import numpy as np
import pytest
import torch
import transformers

import modeling_bert_repro
from bert_training.engine import predict
from bert_training.engine.batches import Features
from bert_training.tasks import feature_extraction
from bert_training.tasks.feature_extraction import Row

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


@pytest.fixture
def rows() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(5, 50, length).tolist() for length in rng.integers(3, 20, 11)]


def network(name: str, library=transformers, **more):
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=32, **SIZES, **more)
    return getattr(library, name)(config)


def columns(rows: list[list[int]]) -> dict:
    return {"input_ids": rows, "token_type_ids": [[0] * len(row) for row in rows]}


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_predictions_come_in_order_and_do_not_depend_on_the_batch(make_run, rows, batch_size):
    labels = [number % 3 for number in range(len(rows))]
    model = network("BertForSequenceClassification", modeling_bert_repro, num_labels=3)
    found = predict.predict(make_run(), model, Features(columns(rows) | {"labels": labels}, 0), batch_size)
    model.eval()
    for row, logits in zip(rows, found["logits"], strict=True):
        with torch.no_grad():
            alone = model(input_ids=torch.tensor([row])).logits[0]
        np.testing.assert_allclose(logits, alone.numpy(), atol=1e-5)
    expected = torch.nn.functional.cross_entropy(torch.tensor(found["logits"]), torch.tensor(labels))
    assert found["loss"] == pytest.approx(float(expected), rel=1e-5)


def test_token_outputs_are_cut_to_their_rows(make_run, rows):
    model = network("BertForQuestionAnswering", modeling_bert_repro)
    found = predict.predict(make_run(), model, Features(columns(rows), 0), 4, per_token=True)
    assert [len(row) for row in found["start_logits"]] == [len(row) for row in rows]
    assert "loss" not in found


def test_rows_without_finite_outputs_are_named(make_run, rows, monkeypatch):
    model = network("BertForSequenceClassification", num_labels=3)
    original = predict.logits_of

    def spoilt(outputs):
        logits = original(outputs)
        logits["logits"][0, 1] = float("nan")  # the longest row of the batch
        return logits

    monkeypatch.setattr(predict, "logits_of", spoilt)
    longest = max(range(len(rows)), key=lambda number: len(rows[number]))
    message = rf"NaN or infinite for 1 of 11 rows \(counted from 0: {longest}\)"
    with pytest.raises(FloatingPointError, match=message):
        predict.predict(make_run(), model, Features(columns(rows), 0), 64)


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_extracted_vectors_are_those_of_the_same_batches(rows, batch_size):
    model = network("BertModel")
    lines = [[Row(ids, [0] * len(ids), slice(None))] for ids in rows]
    found = list(feature_extraction.extract(model.train(), lines, [-1, 0], 0, batch_size, torch.device("cpu")))
    assert [ids for ids, _ in found] == rows
    order = np.argsort([-len(ids) for ids in rows], kind="stable")
    features = Features(columns(rows), 0)
    for first in range(0, len(rows), batch_size):
        indices = order[first : first + batch_size]
        with torch.no_grad():
            states = model.eval()(**features.collate(indices), output_hidden_states=True).hidden_states
        for place, row in enumerate(indices):
            expected = torch.stack([states[-1][place], states[1][place]], dim=1)[: len(rows[row])]
            np.testing.assert_allclose(found[row][1], expected.numpy(), rtol=0, atol=1e-6, strict=True)
