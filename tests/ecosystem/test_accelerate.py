"""accelerate's loading of big models: empty weights, dispatch over devices, offload to memory and disk."""

import accelerate
import pytest
import torch
from transformers import AutoConfig

from modeling_bert_repro import BertForSequenceClassification
from tests.helpers.ecosystem import every_way, largest_difference, open_folder

pytestmark = pytest.mark.slow
TEXTS = ["the old house", "a king walked by the river", "the queen opened the letter ."]


@pytest.fixture
def batch(tokenizer) -> dict[str, torch.Tensor]:
    return dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))


@pytest.fixture
def expected(classifier, batch) -> torch.Tensor:
    with torch.no_grad():
        return BertForSequenceClassification.from_pretrained(classifier).eval()(**batch).logits


@pytest.mark.tried("accelerate", "`init_empty_weights`, then `load_checkpoint_and_dispatch` with one layer on the disk")
@pytest.mark.parametrize("unpad", [False, True])
def test_a_network_without_weights_is_filled_and_dispatched(
    unpad, classifier, batch, expected, tmp_path, fast_paths, record_property
):
    """Also with the fast path, whose Layout accelerate moves to the device of each layer."""
    with accelerate.init_empty_weights():
        model = BertForSequenceClassification(AutoConfig.from_pretrained(classifier))
    assert {weight.device.type for weight in model.parameters()} == {"meta"}
    model.tie_weights()
    places = {"bert.embeddings": "cpu", "bert.encoder.layer.0": "cpu", "bert.encoder.layer.1": "disk"}
    places |= {"bert.pooler": "cpu", "dropout": "cpu", "classifier": "disk"}
    model = accelerate.load_checkpoint_and_dispatch(
        model, str(classifier / "model.safetensors"), device_map=places, offload_folder=str(tmp_path / "disk")
    ).eval()
    model.config.unpad_inputs = unpad
    assert model.bert.encoder.layer[1].output.dense.weight.device.type == "meta"
    with torch.no_grad():
        difference = largest_difference(model(**batch).logits, expected)
    assert ("unpadded" in fast_paths) == unpad
    record_property("largest difference", difference)
    assert difference < 1e-5


@pytest.mark.tried("accelerate", '`device_map="auto"` with little memory: layers are offloaded to the disk')
@every_way
def test_an_automatic_device_map_offloads(way, classifier, batch, expected, tmp_path, record_property):
    model = open_folder(
        way,
        "BertForSequenceClassification",
        classifier,
        device_map="auto",
        max_memory={"cpu": "80KB"},
        offload_folder=str(tmp_path / "disk"),
    )
    assert set(map(str, model.hf_device_map.values())) == {"cpu", "disk"}
    with torch.no_grad():
        difference = largest_difference(model(**batch).logits, expected)
    record_property("largest difference", difference)
    assert difference < 1e-6
