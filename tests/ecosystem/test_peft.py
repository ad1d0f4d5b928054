"""peft puts LoRA into the network: it trains, merges, saves and opens again."""

import pytest
import torch

from tests.helpers.ecosystem import OWN, deprecations, every_way, largest_difference, needed, open_folder

peft = needed("peft")
pytestmark = [pytest.mark.slow, *deprecations]
TEXTS = ["the old house", "a king walked by the river", "the queen opened the letter .", "the night was old ."]


@pytest.fixture
def batch(tokenizer) -> dict[str, torch.Tensor]:
    return {**tokenizer(TEXTS, padding=True, return_tensors="pt"), "labels": torch.tensor([0, 1, 2, 1])}


def adapted(way: str, folder, **options):
    """The classifier with LoRA at query and value, and with a head that is trained whole."""
    torch.manual_seed(0)
    settings = {"task_type": "SEQ_CLS", "r": 4, "lora_alpha": 16, "target_modules": ["query", "value"], **options}
    model = peft.get_peft_model(open_folder(way, "BertForSequenceClassification", folder), peft.LoraConfig(**settings))
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert {name.rpartition(".lora_")[0].rpartition(".")[2] for name in trained if "lora_" in name} == {
        "query",
        "value",
    }
    assert [name for name in trained if "lora_" not in name and "classifier" not in name] == []
    return model


def train(model, batch, steps: int = 40) -> list[float]:
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model.train()(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    model.eval()
    return losses


@pytest.mark.tried("peft", "LoRA at query and value: training changes nothing else and lowers the loss")
@every_way
def test_lora_lowers_the_loss(way, classifier, batch, record_property):
    model = adapted(way, classifier)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    losses = train(model, batch)
    record_property("smallest loss before", losses[0])
    record_property("largest loss after", losses[-1])
    assert losses[-1] < losses[0] / 2
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name]) != weight.requires_grad, name


@pytest.mark.tried("peft", "`merge_and_unload`, saved as a folder: the outputs of the adapted network")
@every_way
def test_the_merged_network_gives_the_same_outputs(way, classifier, batch, tmp_path, record_property):
    model = adapted(way, classifier)
    train(model, batch)
    with torch.no_grad():
        expected, base = model(**batch).logits, open_folder(way, "BertForSequenceClassification", classifier)
        assert largest_difference(base(**batch).logits, expected) > 0.1
        merged = model.merge_and_unload()
        assert set(merged.state_dict()) == set(base.state_dict())
        record_property("largest difference", difference := largest_difference(merged(**batch).logits, expected))
        assert difference < 1e-5
        merged.save_pretrained(tmp_path / "merged")
        again = open_folder(way, "BertForSequenceClassification", tmp_path / "merged")
        torch.testing.assert_close(again(**batch).logits, merged(**batch).logits)


@pytest.mark.tried("peft", "the adapter saved alone, and opened again over the unchanged folder")
@every_way
def test_a_saved_adapter_opens_again(way, classifier, batch, tmp_path, record_property):
    model = adapted(way, classifier)
    train(model, batch)
    model.save_pretrained(tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    base = open_folder(way, "BertForSequenceClassification", classifier)
    again = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    with torch.no_grad():
        difference = largest_difference(again(**batch).logits, model(**batch).logits)
    record_property("largest difference", difference)
    assert difference == 0


@pytest.mark.tried("peft", "LoRA with our fast path switched on: the same gradients as without it")
def test_lora_on_the_fast_path(classifier, batch, fast_paths, record_property):
    found = []
    for unpad in (False, True):
        model = adapted(OWN, classifier).train()
        model.config.unpad_inputs = unpad
        model(**batch).loss.backward()
        found.append({name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad})
    assert "unpadded" in fast_paths
    difference = max(largest_difference(found[1][name], gradient) for name, gradient in found[0].items())
    record_property("largest difference", difference)
    assert difference < 1e-5
